"""What a provider's moderation is asked, and what its answers find."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.guarding import Finding
from gateway.guards.moderation import KINDS, MAX_BYTES, MAX_TEXTS, THRESHOLD, Part, batches, findings, question, scores


def answer(*results: dict[str, tuple[bool, float]]) -> bytes:
    return json.dumps(
        {
            "id": "modr-1",
            "model": "omni",
            "results": [
                {
                    "flagged": any(flag for flag, _ in result.values()),
                    "categories": {name: flag for name, (flag, _) in result.items()},
                    "category_scores": {name: score for name, (_, score) in result.items()},
                    "category_applied_input_types": {},
                }
                for result in results
            ],
        }
    ).encode()


ONE = [Part(0, "x")]


def test_question() -> None:
    """The model, and the texts as a list; what no UTF-8 can say is a question mark."""
    assert json.loads(question("omni", [Part(0, "a"), Part(3, "\ud800\u00e9")])) == {
        "model": "omni",
        "input": ["a", "?\u00e9"],
    }


@given(st.lists(st.one_of(st.text(max_size=9), st.sampled_from(["", " ", "ab c" * 9000, "\u00e9 \U0001f600" * 9000]))))
def test_all_that_is_no_blank_is_asked_about(texts: list[str]) -> None:
    """Each text in its pieces, in order and whole, and no request is too long."""
    asked = list(batches(texts))
    said: dict[int, str] = {}
    for part in (part for batch in asked for part in batch):
        said[part.number] = said.get(part.number, "") + part.text

    assert said == {number: text for number, text in enumerate(texts) if text.strip()}
    assert list(said) == sorted(said)
    assert all(len(batch) <= MAX_TEXTS for batch in asked)
    assert all(sum(len(part.text.encode("utf-8", "replace")) for part in batch) <= MAX_BYTES for batch in asked)


def test_categories_are_our_kinds() -> None:
    """Several categories of one kind are as sure as the surest; one that we do not know keeps its name."""
    body = answer(
        {
            "violence": (False, 0.2),
            "violence/graphic": (False, 0.3),
            "sexual/minors": (True, 0.9),
            "New/Thing": (True, 0.8),
        }
    )

    assert scores(body, ONE) == [{"violence": 0.3, "minors": 0.9, "new_thing": 0.8}]


def test_documented_categories() -> None:
    """The document's table has all categories, under their kinds."""
    document = (Path(__file__).parents[3] / "docs" / "guardrails.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ((?:`[a-z/-]+` ?)+)\|$", document, re.MULTILINE)
    told = {category: kind for kind, categories in rows for category in re.findall(r"`([^`]+)`", categories)}

    assert told == KINDS
    assert f"{MAX_TEXTS} texts or {MAX_BYTES:,} bytes" in document
    assert f"has {THRESHOLD} at least" in document


def test_what_is_flagged_counts() -> None:
    """A flag is worth the threshold, however low its score: the provider has a limit of its own for each category."""
    assert scores(answer({"self-harm": (True, 0.21), "illicit": (False, 0.21)}), ONE) == [
        {"self_harm": THRESHOLD, "illegal_trade": 0.21}
    ]


def test_a_category_without_a_score_or_a_flag() -> None:
    """Older models leave some out, or say null."""
    body = json.dumps(
        {"results": [{"categories": {"hate": True, "illicit": None}, "category_scores": {"illicit": None}}]}
    )

    assert scores(body.encode(), ONE) == [{"hate": THRESHOLD, "illegal_trade": 0.0}]


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"results":[]}', b'{"results":[{},{}]}', b'{"results":[{"categories":{"hate":"yes"}}]}'],
)
def test_what_is_no_answer(body: bytes) -> None:
    """It is an error: what was not judged has not passed."""
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec's own words
        scores(body, ONE)


def test_findings_are_of_the_whole_text() -> None:
    """The surest first, of all pieces together; next to nothing is not told."""
    found = findings("abc", [{"hate": 0.2, "sexual": 0.001}, {"hate": 0.9, "violence": 0.3}])

    assert found == (
        Finding("hate", 0, 3, 0.9, "by the provider"),
        Finding("violence", 0, 3, 0.3, "by the provider"),
    )
