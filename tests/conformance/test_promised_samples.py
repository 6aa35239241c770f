"""
The samples of the two documents that describe the API to its users, run as they stand but for address and key.

The documents are kept apart from the code: in the folder that GATEWAY_DOCUMENTS names, by default one beside the
repository. Without them this module is skipped as a whole, and `test_samples.py` and `test_docs.py`, whose programs use
the SDKs in the same way, are what remains.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import Stand
from tests.conformance.demo import NODE, ROOT, Run, Served
from tests.support.acts import pause_ms, repeat
from tests.support.config import KEY
from tests.support.frames import blocks, parsed, text_of
from tests.support.notation import DONE, FIN, RST, R, T, U, json_answer
from tests.support.panels import RUN
from tests.support.stage import Seen

FOLDER = Path(os.environ.get("GATEWAY_DOCUMENTS") or ROOT.parent / "shared" / "seeds")
DOCUMENTS = sorted(FOLDER.glob("*.txt")) if FOLDER.is_dir() else []
if len(DOCUMENTS) != 2:
    pytest.skip(f"the documents are not in {FOLDER} (GATEWAY_DOCUMENTS)", allow_module_level=True)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-promised-samples")]

STREAMING, CHAT = (path.read_text(encoding="utf-8").replace("\xa0", " ") for path in DOCUMENTS)
STORY = ["Once ", "upon a ", "time… ", "北🦀é"]
SAID = "".join(STORY)
ADDRESS = "https://api.anoman.io"
KEY_OF_SAMPLES = "anm-sk-..."


def between(document: str, first: str, last: str) -> str:
    """The sample that starts with the line *first* and ends with the next line *last*."""
    found = re.search(rf"^{re.escape(first)}$.*?^{re.escape(last)}$", document, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the document has no sample from {first!r} to {last!r}"
    return found[0]


def from_line(document: str, anchor: str, first: str, last: str) -> str:
    """The same, searched behind *anchor*."""
    return between(document[document.index(anchor) :], first, last)


def placed(stand: Stand, text: str) -> str:
    """*text* with the gateway's address and a key that it knows."""
    assert ADDRESS in text
    return text.replace(ADDRESS, stand.base_url).replace(KEY_OF_SAMPLES, KEY)


def answer(seen: Seen) -> Any:
    """What the model says to the samples' requests."""
    prompt = json.dumps(seen.json["messages"])
    if seen.json.get("tools"):
        call: dict[str, Any] = {"id": "call_0", "type": "function"}
        call["function"] = {"name": "get_weather", "arguments": '{"city": "Jakarta", "units": "celsius"}'}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return [json_answer("", (7, 4), choices=[choice])]
    if "essay" in prompt:
        return [R(), repeat(T("word "), pause_ms(20))]
    if seen.json.get("stream"):
        return [R(), *map(T, STORY), FIN(), U(7, 4), DONE]
    return [json_answer("The capital of Indonesia is Jakarta.", (24, 9))]


@pytest.fixture
def models(stand: Stand) -> None:
    stand.provider.script("*", answer)


async def python(stand: Stand, text: str) -> Run:
    run = await Served(stand.gateway.port).python(placed(stand, text))
    assert (run.code, run.errors) == (0, "")
    return run


async def typescript(stand: Stand, text: str) -> Run:
    """Run *text* with its types taken out; what is below its imports becomes a function, since one sample returns."""
    text = placed(stand, text).replace("process.env.ANOMAN_API_KEY", json.dumps(KEY))
    imports = "\n".join(re.findall(r"^import .*$", text, re.MULTILINE))
    body = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
    served = Served(stand.gateway.port)
    stripped = await served.run(
        ["node", str(NODE / "strip_types.mjs")], f"{imports}\nasync function main() {{\n{body}\n}}\nawait main();\n"
    )
    assert (stripped.code, stripped.errors) == (0, "")
    run = await served.node(stripped.out)
    assert (run.code, run.errors) == (0, "")
    return run


CLIENT_PY = ("from openai import OpenAI", 'client = OpenAI(base_url="https://api.anoman.io/v1", api_key="anm-sk-...")')
CLIENT_TS = ('import OpenAI from "openai";', "});")


async def test_python_stream(stand: Stand, models: None) -> None:
    """The loop prints the story."""
    run = await python(stand, between(STREAMING, CLIENT_PY[0], '    print(delta, end="", flush=True)'))

    assert run.out == SAID


async def test_typescript_stream(stand: Stand, models: None) -> None:
    """The loop prints the story."""
    sample = between(STREAMING, CLIENT_TS[0], "  process.stdout.write(delta);") + "\n}"

    assert (await typescript(stand, sample)).out == SAID


async def test_curl(stand: Stand, models: None) -> None:
    """The command prints every frame."""
    sample = between(STREAMING, "curl -N https://api.anoman.io/v1/chat/completions \\", "  }'")

    run = await Served(stand.gateway.port).shell(placed(stand, sample))

    assert run.code == 0
    assert text_of(blocks(run.out.encode())) == SAID
    assert parsed(blocks(run.out.encode()))[-1] == "[DONE]"


async def test_typescript_fetch(stand: Stand, models: None) -> None:
    """The parser without an SDK prints the story, untroubled by the metadata frame."""
    sample = between(STREAMING, "const response = await fetch(", "    if (delta) process.stdout.write(delta);")

    assert (await typescript(stand, sample + "\n  }\n}")).out == SAID


def fetching(panels: str) -> str:
    """The parser without an SDK, which asks the playground for *panels* instead of the model."""
    sample = between(STREAMING, "const response = await fetch(", "    if (delta) process.stdout.write(delta);")
    changes = {"/v1/chat/completions": RUN, 'model: "claude-sonnet-4-6",': panels}
    for said, instead in changes.items():
        assert said in sample
        sample = sample.replace(said, instead)
    return sample + "\n  }\n}"


async def test_typescript_fetch_of_the_playground(stand: Stand, models: None) -> None:
    """The same parser prints the story of a run without panels, and those of three panels, mixed as they come."""
    plain = await typescript(stand, fetching('model: "claude-sonnet-4-6",'))
    panels = ", ".join(f'{{ id: "{panel}", model: "claude-sonnet-4-6" }}' for panel in "abc")
    three = await typescript(stand, fetching(f"panels: [{panels}],"))

    assert plain.out == SAID
    assert sorted(three.out) == sorted(3 * SAID)


async def test_typescript_fetch_of_a_panel_that_fails(stand: Stand, models: None) -> None:
    """The same parser throws at a panel's error frame, as it does at any."""
    panels = 'panels: [{ id: "a", model: "claude-sonnet-4-6" }, { id: "b", model: "nobody" }],'
    sample = f"try {{ {fetching(panels)} }} catch (error) {{ console.log('thrown: ' + (error as Error).message); }}"

    run = await typescript(stand, sample)

    assert "thrown: The model does not exist" in run.out


async def test_python_cancel(stand: Stand, models: None) -> None:
    """After five seconds the stream is closed, at the provider too."""
    before = len(stand.provider.requests)
    started_s = time.monotonic()

    run = await python(stand, between(STREAMING, "import time", 'print("Collected:", "".join(collected))'))

    assert run.out.startswith("Collected: word word ")
    assert time.monotonic() - started_s > 5
    await stand.provider.requests[before].gone(within_s=1)


async def test_typescript_cancel(stand: Stand, models: None) -> None:
    """After five seconds the stream is aborted, at the provider too."""
    client = from_line(STREAMING, "TypeScript — OpenAI SDK", *CLIENT_TS)
    sample = between(STREAMING, "const controller = new AbortController();", "    throw e;")
    before = len(stand.provider.requests)

    run = await typescript(stand, f"{client}\n{sample}\n  }}\n}}")

    assert run.out.startswith("word word ")
    await stand.provider.requests[before].gone(within_s=1)


async def test_python_first_request(stand: Stand, models: None) -> None:
    """The quick example prints the answer."""
    run = await python(stand, between(CHAT, CLIENT_PY[0], "print(response.choices[0].message.content)"))

    assert run.out == "The capital of Indonesia is Jakarta.\n"


async def test_python_vision(stand: Stand, models: None) -> None:
    """The picture reaches the provider as it was sent."""
    sample = from_line(CHAT, "Vision", "response = client.chat.completions.create(", ")")
    before = len(stand.provider.requests)

    await python(stand, "\n".join((*CLIENT_PY, sample)))

    sent = stand.provider.requests[before].json["messages"][0]["content"]
    assert [part["type"] for part in sent] == ["text", "image_url"]


async def test_python_tools(stand: Stand, models: None) -> None:
    """The call is printed with its name and arguments."""
    last = "print(tool_call.function.name, tool_call.function.arguments)"
    sample = from_line(CHAT, "Tool calling", "response = client.chat.completions.create(", last)

    run = await python(stand, "\n".join((*CLIENT_PY, sample)))

    assert run.out == 'get_weather {"city": "Jakarta", "units": "celsius"}\n'


async def test_python_short_stream(stand: Stand, models: None) -> None:
    """The three-line loop of the reference prints the story."""
    last = '    print(chunk.choices[0].delta.content or "", end="", flush=True)'
    sample = between(CHAT, "stream = client.chat.completions.create(", last)

    assert (await python(stand, "\n".join((*CLIENT_PY, sample)))).out == SAID


async def test_json_answer(stand: Stand, models: None) -> None:
    """Every member of the documented answer is in ours, with a value of the same kind."""
    shown = json.loads(from_line(CHAT, "Respons 200", "{", "}"))
    body = {"model": "claude-sonnet-4-6", "messages": [{"role": "user", "content": "x"}], "stream": False}

    reply = await stand.gateway.client().request("POST", "/v1/chat/completions", body)

    assert missing(shown, reply.json) == ["$.choices[0].logprobs", *LATER]


LATER = ["$._anoman.guardrails.injection.score"]
"""Comes with the guardrails. `logprobs` is the provider's to give."""


def missing(shown: Any, sent: Any, place: str = "$") -> list[str]:
    """Where *sent* lacks something that *shown* has."""
    if isinstance(shown, dict) and isinstance(sent, dict):
        lacks = [f"{place}.{name}" for name in shown if name not in sent]
        return lacks + [
            path for name in shown if name in sent for path in missing(shown[name], sent[name], f"{place}.{name}")
        ]
    if isinstance(shown, list) and isinstance(sent, list):
        return [
            path for i, (a, b) in enumerate(zip(shown, sent, strict=True)) for path in missing(a, b, f"{place}[{i}]")
        ]
    return [] if type(shown) is type(sent) else [place]


async def test_error_frame(stand: Stand, models: None) -> None:
    """A stream that breaks ends in the documented frame, to the byte but for the count, and the terminator."""
    (shown,) = re.findall(r'^data: \{"error":.*$', STREAMING, re.MULTILINE)
    stand.provider.script("gpt-4o", [R(), T("a"), RST])
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "x"}], "stream": True}

    reply = await stand.gateway.client().request("POST", "/v1/chat/completions", body)

    expected = re.sub(r'"completion_tokens":\d+', '"completion_tokens":1', shown) + "\n\ndata: [DONE]\n\n"
    assert reply.body.decode().endswith("\n\n" + expected)


async def test_frames(stand: Stand, models: None) -> None:
    """The documented frames come in that order, each with every member that is shown."""
    frames = STREAMING[STREAMING.index("Format wire") : STREAMING.index("Chunk pertama")]
    shown = parsed(blocks(re.sub(r"\n\s*\n", "\n\n", frames[frames.index("data: ") :]).encode() + b"\n\n"))
    body = {"model": "claude-sonnet-4-6", "messages": [{"role": "user", "content": "x"}], "stream": True}

    reply = await stand.gateway.client().request("POST", "/v1/chat/completions", body)

    sent = parsed(blocks(reply.body))
    assert (shown[-1], sent[-1]) == ("[DONE]", "[DONE]")
    pairs = [(shown[0], sent[0]), (shown[1], sent[1]), (shown[-3], sent[-3]), (shown[-2], sent[-2])]
    assert [path for pair in pairs for path in missing(*pair)] == LATER
    assert next(iter(sent[-2])) == "_anoman"
