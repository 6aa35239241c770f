"""In what the models behind one dialect differ, as far as it decides whether a body is accepted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Literal

from msgspec import Struct

from gateway.core.catalog import DialectName

# OpenAI refuses longer ids of tool calls, and names of users; the digest of 64 hexadecimals just fits.
_MAX_CALL_ID_CHARS = 40
_MAX_USER_CHARS = 64


class Traits(Struct, frozen=True):
    """What a model wants otherwise than the plainest one.

    Attributes:
        names: Its own names of members.
        lacks: Members that it refuses.
        efforts: What `reasoning_effort`, or Gemini's `thinkingLevel`, may be, from the least on; empty where neither
            must be sent.
        switch: It has DeepSeek's `thinking` object, which turns thinking on and off.
        toggle: Its member that turns thinking on and off, by true and false.
        effort_with_tools: The one effort that goes with tools, and has to be given then.
        places_system: It takes instructions where they stand in the conversation; others want them in front.
        remembers: It takes `reasoning_content` in history, and wants it in turns that call tools. Others refuse it.
        continues: It continues an assistant's last turn, where OpenAI's dialect is spoken if that has `prefix`; others
            begin a new one behind it.
        echoes: Its answer then begins with the text that it was given.
        prefills: Where its dialect continues an assistant's last turn without a word: it still does.
        call_ids: What ids of tool calls look like.
        thinking: How it is told to think where its dialect knows both: with a budget of tokens, or by itself with an
            effort. Models take one of the two, or the other, or either.
        budgets: The least and the most tokens that Gemini's `thinkingBudget` may name, 0 apart; None where it must not
            be sent.
        rests: A budget of 0 turns its thinking off.
        signs: It refuses its own calls in history without the signature that came with them.
        sees_results: Results of tools may have pictures and PDFs inside.
        own: The dialect of its vendor, where it is asked in another one that has room for members of that.
        call_id_chars: How long one of ours is that replaces an id which does not look like that.
    """

    names: Mapping[str, str] = {}
    lacks: frozenset[str] = frozenset()
    efforts: tuple[str, ...] = ()
    switch: bool = False
    toggle: str | None = None
    effort_with_tools: str | None = None
    places_system: bool = False
    remembers: bool = False
    continues: bool = False
    echoes: bool = False
    prefills: bool = False
    call_ids: re.Pattern[str] = re.compile(rf".{{1,{_MAX_CALL_ID_CHARS}}}", re.DOTALL)
    call_id_chars: int = _MAX_CALL_ID_CHARS
    thinking: Literal["budget", "adaptive"] = "budget"
    budgets: tuple[int, int] | None = None
    rests: bool = False
    signs: bool = False
    sees_results: bool = False
    own: DialectName | None = None

    def call_id(self, original: str) -> str:
        """*original*, or where the model would refuse it, always the same other id."""
        return original if self.call_ids.fullmatch(original) else _digest(original)[: self.call_id_chars]


def user_name(original: str) -> str:
    """*original*, or its digest where it is too long: Claude Code's have 150 characters and more."""
    return original if len(original) <= _MAX_USER_CHARS else _digest(original)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


PLAIN = Traits()
