# Two commands matter: `make run` starts the gateway with a built-in provider, `make test` installs what the tests need
# and runs everything. Both keep to a virtual environment of their own in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: run test check unit fuzz bench soak golden train-guards eval-guards docs lock clean

run: $(VENV)/.run
	$(BIN)/python -m gateway demo $(ARGS)

test: $(VENV)/.test
	sh tests/prepare.sh
	$(MAKE) check
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not alone" $(ARGS)
	$(BIN)/python -m pytest -m alone $(ARGS)

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(VENV)/.test
	$(BIN)/python -m pytest tests/unit tests/golden $(ARGS)

# The full seeded run: 100,000 raw HTTP inputs, JSON bodies and SSE splits.
fuzz: $(VENV)/.test
	GATEWAY_FUZZ_SCALE=50 $(BIN)/python -m pytest -m fuzz --timeout 3600 $(ARGS)

bench: $(VENV)/.test
	sh tests/prepare.sh nginx
	$(BIN)/python -m tests.bench $(ARGS)
	$(BIN)/python -m tests.bench.admitting
	$(BIN)/python -m tests.bench.guarding

# 100,000 calls under kills, restarts and outages, and the ledger held against the provider's own record.
soak: $(VENV)/.test
	sh tests/prepare.sh
	$(BIN)/python -m tests.soak $(ARGS)

golden: $(VENV)/.test
	$(BIN)/python -m tests.golden.replay

# Rewrites the injection guard's weights from tests/guards/data; the same texts give the same file.
train-guards: $(VENV)/.test
	$(BIN)/python -m tests.guards.train

# How many attacks the guards find, and what they take for one, on texts that nothing was tuned on.
eval-guards: $(VENV)/.test
	$(BIN)/python -m tests.guards.evaluate $(ARGS)
	$(BIN)/python -m tests.guards.content.measure

docs: $(VENV)/.run
	$(BIN)/python -m gateway.reference docs

# Rewrites the hash-locked requirements from the ranges in setup.cfg.
lock: $(VENV)/.test
	$(PIP) install pip-tools
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe \
		--no-emit-index-url --no-emit-find-links --strip-extras -o requirements.txt setup.cfg
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe \
		--no-emit-index-url --no-emit-find-links --strip-extras --extra test -c requirements.txt \
		-o requirements-test.txt setup.cfg

clean:
	rm -rf $(VENV) build *.egg-info tests/conformance/node/node_modules

# The stamp, not the interpreter: an interrupted run leaves that one behind without pip.
$(VENV)/.made:
	sh tests/venv.sh $(PYTHON) $(VENV)
	echo $(PYTHON) >$@

# Another PYTHON than made it makes it anew, stamps below included; where none is named, what is there will do.
ifneq ($(origin PYTHON),file)
ifneq ($(PYTHON),$(shell cat $(VENV)/.made 2>/dev/null))
.PHONY: $(VENV)/.made
endif
endif

$(VENV)/.run: $(VENV)/.made requirements.txt
	$(PIP) install --require-hashes -r requirements.txt
	touch $@

$(VENV)/.test: $(VENV)/.made requirements-test.txt
	$(PIP) install --require-hashes -r requirements-test.txt
	touch $@ $(VENV)/.run
