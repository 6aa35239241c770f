# Included by the Makefile of the repository: `make bench`, options in ARGS, e.g. `make bench ARGS="--quick --only json"`.
BENCH_PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
BENCH_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: bench
bench:
	@PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null \
		|| { $(BENCH_ROOT) apt-get update -q && $(BENCH_ROOT) apt-get install -qy --no-install-recommends nginx-light; } \
		|| echo "nginx could not be installed: the bench goes on without it" >&2
	$(BENCH_PYTHON) -m tests.bench $(ARGS)
