"""The sample programs of the documentation run as they are, against the demo."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.demo_provider.texts import ESSAY, STORY
from tests.conformance.demo import DEMO, ROOT, Served, serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-samples")]

EXAMPLES = ROOT / "docs" / "examples"
BROKEN = "stream_interrupted - upstream_error after 11 tokens\n"

PYTHON = {
    "chat.py": "The capital of Indonesia is Jakarta.\n28 tokens, 0.000104 USD\n",
    "stream.py": STORY + "\n",
    "stream_anthropic.py": STORY + "\n",
    "cancel.py": "Collected: " + ESSAY[:20],
    "interruption.py": BROKEN,
    "tools.py": 'get_weather {"city":"Jakarta","units":"celsius"}\nThe tool says: 31 degrees in Jakarta\n',
    "vision.py": "I see image/png of 67 bytes, 1 x 1 pixels.\n",
    "json_mode.py": "Indonesia\n",
}
NODE = {
    "stream.mjs": STORY + "\n",
    "stream_anthropic.mjs": STORY + "\n",
    "cancel.mjs": ESSAY[:20],
    "interruption.mjs": BROKEN,
    "fetch.mjs": STORY,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo() -> AsyncIterator[Served]:
    async with serving(DEMO) as served:
        yield served


async def test_none_is_left_out() -> None:
    """Every sample has its line here."""
    assert {path.name for path in (EXAMPLES / "python").glob("*.py")} == set(PYTHON)
    assert {path.name for path in (EXAMPLES / "node").glob("*.mjs")} == set(NODE)


@pytest.mark.parametrize("name", PYTHON)
async def test_python(demo: Served, name: str) -> None:
    """It ends well and prints what it should."""
    run = await demo.run([sys.executable, str(EXAMPLES / "python" / name)])

    assert (run.code, run.errors) == (0, "")
    assert run.out.startswith(PYTHON[name])


@pytest.mark.parametrize("name", NODE)
async def test_node(demo: Served, name: str) -> None:
    """It ends well and prints what it should."""
    run = await demo.node((EXAMPLES / "node" / name).read_text())

    assert (run.code, run.errors) == (0, "")
    assert run.out.startswith(NODE[name])
    assert ("[cancelled]" in run.out) == (name == "cancel.mjs")


@pytest.mark.parametrize(
    ("model", "error"),
    [("demo-broken", "upstream stream interrupted"), ("demo-truncated", "upstream stream interrupted")],
)
async def test_raw_parser_sees_the_failure(demo: Served, model: str, error: str) -> None:
    """The parser without an SDK throws at the error frame."""
    run = await demo.node((EXAMPLES / "node" / "fetch.mjs").read_text(), model)

    assert run.code == 1
    assert error in run.errors


async def test_curl(demo: Served) -> None:
    """The curl line prints frames to the terminator, and nothing else, to a pipe neither."""
    run = await demo.run(["sh", str(EXAMPLES / "stream.sh")])

    assert (run.code, run.errors) == (0, "")
    assert run.out.endswith("data: [DONE]\n\n")
