"""The house rules that can be held mechanically."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import telemetry
from gateway.core.account_checks import LABEL, SLUG
from gateway.providers.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gateway"
MODULES = sorted(PACKAGE.rglob("*.py"))
# It plays a foreign service in a process of its own and shares nothing with the gateway but the repository.
FOREIGN = "demo_provider"
VENDORS = re.compile(
    r"openai|anthropic|deepseek|groq|mistral|azure|bedrock|gemini|cerebras|fireworks|moonshot|ollama|openrouter|qwen"
    r"|dashscope|together|vllm|^xai$"
)
# The names of the dialects, of their endpoints and of the modules that speak them are no vendors.
DIALECT_WORDS = re.compile(
    r"openai_chat|anthropic_messages|gemini_content|bedrock_converse|openai_type|anthropic_type|/anthropic[/\w]*"
    r"|anthropic-version|anthropic[-_]beta|openai-beta"
)
# The functions in which an exception may end, since nobody is above who could do better, and why each is outermost.
OUTERMOST = {
    "app.py App.reload": "a signal asked for it: a bug in reading settings must not end what serves by the old ones",
    "master.py Service.reload": "the same in the launcher, which keeps the workers alive",
    "storage/journal/carrying.py Backlog._steadily": "told once; to empty journals must not take a restart",
    "storage/redis_upkeep.py Upkeep._look_after": "told once; to connect again must not take a restart",
    "worker.py GatewayWorker.init_process": "the process ends here; gunicorn would print what it does not know",
    "imaging/first_frame.py run": "a process that lives for one picture: whatever fails is the picture's fault",
    "guards/sieve.py Sieve.glance": "a look follows, which tells what fails in an engine",
    "guards/sieve.py Sieve.look": "whatever fails in an engine, the answer's mode says what becomes of the answer",
    "http/protocol.py GatewayProtocol.data_received": "strangers feed the parser: what it raises is their bad request",
    "http/protocol.py GatewayProtocol._serve_next": "the connection is closed here; past it nobody would hear of it",
    "http/protocol.py GatewayProtocol.finish_response": "past it the framework drops the connection without a word",
}


def _ours() -> list[Path]:
    return [path for path in MODULES if FOREIGN not in path.parts]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _calls(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_tasks_only_through_aio() -> None:
    """Only aio.py creates tasks: any other would be untracked."""
    makers = re.compile(r"(?:^|\.)(?:create_task|ensure_future|TaskGroup|gather)$")

    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in _ours()
        if path.name != "aio.py"
        for name, line in _calls(_tree(path))
        if makers.search(name)
    ]

    assert found == []


def test_environment_only_in_settings() -> None:
    """Only the settings package touches the environment."""
    found = [
        str(path.relative_to(ROOT))
        for path in _ours()
        if "settings" not in path.parts and re.search(r"os\.environ|getenv|putenv", path.read_text(encoding="utf-8"))
    ]

    assert found == []


def test_json_without_a_schema_is_decoded_with_a_hook() -> None:
    """A decoder of any JSON has a hook for floats: where it converts them itself, a body can hold the loop."""
    found = []
    for path in _ours():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "msgspec.json.Decoder":
                unguarded = not node.args and not node.keywords
            else:
                unguarded = isinstance(node, ast.Attribute) and ast.unparse(node) == "msgspec.json.decode"
            if unguarded:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert found == []


def test_vendors_only_in_providers() -> None:
    """A vendor's name as a string literal stands in providers/ and in the demo's catalogue only."""
    found = []
    for path in _ours():
        if "providers" in path.parts or path.name in ("demo.py", "reference.py"):
            continue
        tree = _tree(path)
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                rest = DIALECT_WORDS.sub("", node.value)
                if VENDORS.search(rest) and " " not in rest.strip():
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.value!r}")

    # The kinds of provider that weights are configured for are the contract's own words.
    assert [line for line in found if not line.endswith("'bedrock'")] == []


def test_events_are_logged_at_their_level() -> None:
    """A call that logs an event of the catalogue by a fixed level uses the catalogue's."""
    found, levels = [], {"info", "warning", "error"}
    for path in _ours():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                name = getattr(telemetry, ast.unparse(node.args[0]).removeprefix("events."), None)
                if node.func.attr in levels and name in telemetry.EVENTS:
                    found.append((name, node.func.attr))

    assert len({name for name, _ in found}) >= 9  # settled and library lines have a level of their own each time
    assert [(name, level) for name, level in found if telemetry.EVENTS[name].level != level] == []


def _catches_all(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in caught)


def _scopes(node: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every node below *node* with the qualified name of the innermost function or class around it."""
    for child in ast.iter_child_nodes(node):
        is_scope = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        inner = f"{name}.{child.name}".lstrip(".") if is_scope else name
        yield inner, child
        yield from _scopes(child, inner)


def test_no_catch_all() -> None:
    """`except Exception` ends with a raise; only in the named outermost functions, once in each, it does not."""
    found = [
        f"{path.relative_to(PACKAGE)} {scope}"
        for path in _ours()
        for scope, node in _scopes(_tree(path))
        if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not isinstance(node.body[-1], ast.Raise)
    ]

    assert sorted(found) == sorted(OUTERMOST)


def test_every_vendor_is_known() -> None:
    """The rule about vendors' names knows every one that a preset has, `..._compatible` ones aside."""
    names = [name for name in PRESETS if not name.endswith("_compatible")]

    assert [name for name in names if not VENDORS.search(name)] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sizes(path: Path) -> None:
    """No file over 500 lines, no function over 60 (revisions are lists), at most five positional parameters."""
    source = path.read_text(encoding="utf-8")

    long = [f.name for f in _functions(ast.parse(source)) if (f.end_lineno or 0) - f.lineno >= 60]
    if path.parent.name == "versions":
        long = []
    wide = [
        f.name
        for f in _functions(ast.parse(source))
        if len([a for a in (*f.args.posonlyargs, *f.args.args) if a.arg not in ("self", "cls")]) > 5
    ]

    assert source.count("\n") <= 500
    assert long == []
    assert wide == []


def test_foreign_service_shares_nothing() -> None:
    """The built-in provider imports nothing of the gateway."""
    imports = re.compile(r"^\s*(?:from|import) (gateway[\w.]*)", re.MULTILINE)

    found = {
        name
        for path in MODULES
        if FOREIGN in path.parts
        for name in imports.findall(path.read_text(encoding="utf-8"))
        if not name.startswith(f"gateway.{FOREIGN}")
    }

    assert found == set()


@pytest.mark.parametrize("pattern", [LABEL.pattern, SLUG.pattern])
def test_what_names_look_like_is_said_once(pattern: str) -> None:
    """The file, the database and the admin API take the same names, by one pattern."""
    assert [path.name for path in _ours() if pattern in path.read_text()] == ["account_checks.py"]
