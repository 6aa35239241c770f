"""Fenced blocks of a Markdown file, and how each is to be tried.

The words behind the language say how:

    bash demo       run as it is, beside the demo          bash make    what the Makefile would run
    bash check      run beside the configurations          bash serve   start, wait until it is ready, stop
    bash heroku     compared with what is shipped for Heroku
    bash keys       run one after the other in an empty folder; KEY_ID is the first key's
    bash admin      run one after the other beside a gateway of their own; OPERATOR_KEY is an operator's
    bash books      run where a gateway serves that has keys and has answered two calls
    python demo, js demo    run beside the demo
    toml NAME       a configuration; kept as NAME for the blocks that follow
    text output     what the block before it prints
    sse PATH MODEL PROMPT, json PATH MODEL PROMPT    what the gateway answers; PATH is `chat` or `messages`
    json GET PATH   the same for a GET
    sse run MODELS PROMPT, json run MODELS PROMPT    the same for panels "a", "b", "c" of the playground, one for
                    each of MODELS, which commas join. Of a stream each panel's frames are compared for themselves
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MASKS = (
    (re.compile(r'"(id|request_id)":"(chatcmpl|msg|req)[-_][^"]*"'), r'"\1":"*"'),
    (re.compile(r'"run_id":"run_[^"]*"'), '"run_id":"*"'),
    (re.compile(r'"trace_id":"[^"]*"'), '"trace_id":"*"'),
    (re.compile(r'"created":17\d{8}'), '"created":0'),
    (re.compile(r'"overhead_ms":[0-9.]+'), '"overhead_ms":0'),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block; `line` is where it starts, `output` what it should print where the document says so."""

    path: Path
    line: int
    language: str
    how: str
    text: str
    output: str | None = None

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}:{self.language}"


def blocks(path: Path) -> Iterator[Block]:
    """Every block of *path*, with its output."""
    document = path.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in _FENCE.finditer(document):
        language, _, how = match[1].partition(" ")
        block = Block(path, document.count("\n", 0, match.start()) + 1, language, how, match[2])
        if (language, how) == ("text", "output") and found:
            before = found.pop()
            block = Block(path, before.line, before.language, before.how, before.text, output=match[2])
        found.append(block)
    yield from found


def masked(text: str) -> str:
    """*text* without what differs from call to call: ids, times, and how many pings there were."""
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return re.sub(r"(: ping\n\n)+", ": ping\n\n", text)
