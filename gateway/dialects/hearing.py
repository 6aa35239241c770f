"""The texts in a piece of a call, in either dialect: all that a model may read, whatever it is a part of.

What is not known is a text. Left out are only names and values by which programs find each other, pictures and other
files that are no text, and links to such.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from msgspec import Raw, Struct

from gateway.core.guarding import Role, Text
from gateway.core.held import Held
from gateway.dialects.forms import (
    BEGINNING,
    begins_as_text,
    decoded,
    is_base64,
    is_link,
    is_name,
    long_number,
    text_of_file,
    unescaped,
)
from gateway.dialects.validate import LIMITS
from gateway.wire.body import BadBody, parse_object
from gateway.wire.splice import Path, splice
from gateway.wire.values import decode_values

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_RESULT = "tool_result"  # a block of Anthropic's, and the end of the names of its own tools' results
_TOOL_ROLES = ("tool", "function")
_IDS = frozenset(("id", "tool_call_id", "tool_use_id", "call_id", "file_id"))
# Members whose values are names among programs; what has not the form of a name is read like all else.
_NAMES = frozenset(
    {"type", "role", "id", "tool_call_id", "tool_use_id", "call_id", "file_id", "signature", "encrypted_content",
     "encrypted_index", "media_type", "mime_type", "format", "detail", "authorization_token"}
)  # fmt: skip
# Members that hold what somebody else has defined: no name in it means anything here.
_FREE = frozenset(("input", "input_schema", "parameters", "schema", "json_schema"))
_ARGUMENTS = "arguments"  # JSON that is spelled as a text
# Members that lead to a file: their `url` is a link, their `data` its content.
_LINKS = frozenset(("image_url", "video_url", "audio_url", "source", "file"))
_DATA = frozenset(("data", "file_data"))
# Of a schema: what a program goes by, where it is no more than a name.
_KEYWORDS = frozenset(("type", "format", "required", "additionalProperties", "$ref", "$schema"))
WORDS = frozenset(
    {"content", "text", "refusal", "name", "tool_calls", "function_call", "function", "source", "file", "title",
     "context", "thinking", "description", "reasoning", "reasoning_content", "summary", "query", _ARGUMENTS}
    | _FREE | _LINKS | _DATA | _NAMES
)  # fmt: skip
"""Names of members that are the API's: others are of the caller's choice, and may be something to be found."""
_OWN_NAMES = (("name",), ("function", "name"))  # a tool's own
_MARK = "cache_control"
_MARK_CHARS = 16  # of its values
_LONG_NAME = 40
_HEAD_CHARS = 512  # of a data URL: a media type has up to 255 (RFC 6838), its parameters a few more


class Heard(Struct, frozen=True):
    """
    A text, and how it would be said otherwise.

    Attributes:
        text: Its place is left empty: it is worked out where it is told.
        path: Where it stands in its piece; `inner` in the JSON that is spelled there, where it is one.
        head: What stands before the base64 that it is in; None where it is in none.
        is_fixed: Nothing else could stand in its place: the names of members and tools.
    """

    text: Text
    path: Path
    inner: Path | None = None
    head: str | None = None
    is_fixed: bool = False


def hear(raw: Raw, role: Role, held: Held | None, *, is_free: bool = False) -> list[Heard]:
    """
    The texts of *raw*, in order.

    Args:
        role: Whose words they are, where *raw* does not say so itself.
        held: What was set aside from it.
        is_free: Whether no name in it means anything to us.
    """
    value = decode_values(raw)
    if isinstance(value, dict) and "role" in value:
        given = value["role"]
        role = "tool" if given in _TOOL_ROLES else _ROLES.get(given, "user") if isinstance(given, str) else "user"
    ear = _Ear(held)
    if is_free or role == "definition":
        ear.free(value, (), role)
    else:
        ear.visit(value, (), role)
    return ear.heard


def said_otherwise(raw: Raw, heard: list[Heard], texts: Mapping[int, str]) -> Raw:
    """*raw* with other *texts*, by their positions in what was *heard* of it. None of them may be fixed."""
    changes: dict[Path, object] = {}
    spelled: dict[Path, dict[Path, object]] = {}
    for position, text in texts.items():
        one = heard[position]
        if one.inner is not None:
            spelled.setdefault(one.path, {})[one.inner] = text
        else:
            changes[one.path] = text if one.head is None else one.head + b64encode(text.encode()).decode()
    root: Any = decode_values(raw) if spelled else None
    for path, inner in spelled.items():
        host = root
        for step in path:
            host = host[step]
        changes[path] = bytes(splice(Raw(host.encode()), inner)).decode()
    return splice(raw, changes)


def place_of(path: Path) -> str:
    """*path* in the words of whoever wrote the body: `messages[0].content`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


class _Ear:
    """Goes through values; the depth is the body's, which is bounded."""

    def __init__(self, held: Held | None) -> None:
        self.heard: list[Heard] = []
        self._held = held

    def visit(self, node: Any, path: Path, role: Role, *, is_link: bool = False) -> None:
        """Hear *node*, a value of which all names are known; *is_link* beneath a member that leads to a file."""
        if isinstance(node, str):
            self._add(node, path, role)
        elif isinstance(node, list):
            for at, item in enumerate(node):
                self.visit(item, (*path, at), role)
        elif isinstance(node, dict):
            kind = node.get("type")
            if isinstance(kind, str) and kind.endswith(_RESULT):
                role = "tool"
            for name, value in node.items():
                if name not in WORDS and not is_short_name(name):
                    self._add(name, path, role, is_fixed=True)
                if isinstance(value, str):
                    self._member(node, name, value, path, role, is_link=is_link)
                elif name in _FREE:
                    self.free(value, (*path, name), role)
                elif name != _MARK or not _is_mark(value):
                    self.visit(value, (*path, name), role, is_link=name in _LINKS)
        elif (number := long_number(node)) is not None:
            self._add(number, path, role)

    def free(self, node: Any, path: Path, role: Role) -> None:
        """Hear *node*, in which no name means anything, and the names in it."""
        names: list[str] = []
        for text, here in _leaves(node, path, names, is_schema=role == "definition"):
            self._add(text, here, role, is_fixed=role == "definition" and here in _OWN_NAMES)
        self._add("\n".join(names), path, role, is_fixed=True)

    def _member(self, node: dict[str, Any], name: str, value: str, path: Path, role: Role, *, is_link: bool) -> None:
        here = (*path, name)
        if name == _ARGUMENTS:
            self._arguments(value, here, role)
        elif name in _DATA:
            self._data(node, value, here, role)
        elif name in _LINKS or (name == "url" and is_link):
            self._link(value, here, role)
        elif name == "name":
            self._add(value, here, role, is_fixed=True)
        elif name not in _NAMES or not is_name(value, may_be_number=name in _IDS):
            self._add(value, here, role)

    def _arguments(self, spelled: str, path: Path, role: Role) -> None:
        """The values of JSON in a text; what is no object, or says a thing twice, is a text as a whole."""
        try:
            parse_object(spelled.encode(), LIMITS)
        except BadBody:
            self._add(spelled, path, role)
            if "\\u" in spelled:  # whoever reads it all the same gets what that stands for
                self._add(unescaped(spelled), path, role, is_fixed=True)
            return
        names: list[str] = []
        for text, inner in _leaves(decode_values(spelled), (), names, is_schema=False):
            self.heard.append(Heard(Text(text, role), path, inner))
        self._add("\n".join(names), path, role, is_fixed=True)

    def _data(self, node: dict[str, Any], value: str, path: Path, role: Role) -> None:
        """The content of a file: of a data URL, in base64, or plain."""
        if value[:5].lower() == "data:":
            self._link(value, path, role)
        elif node.get("type") == "text" or not self._is_base64(value):
            self._add(self._whole(value), path, role)
        else:
            self._file(_type_of(node), "", value, path, role)

    def _link(self, value: str, path: Path, role: Role) -> None:
        """A link, or a data URL: only the text that the latter holds is heard. What is neither is a text."""
        if value[:5].lower() != "data:":
            if not (is_link(value) or is_name(value)):
                self._add(value, path, role)
            return
        comma = value.find(",")
        head, data = value[: comma + 1], value[comma + 1 :]
        if len(head) > _HEAD_CHARS:
            self._add(head, path, role, is_fixed=True)
        if ";base64" in head.lower() and self._is_base64(data):
            self._file(head[5:], head, data, path, role)
            return
        self._add(value, path, role)
        if "%" in data:
            self._add(unquote(data), path, role, is_fixed=True)

    def _file(self, media_type: str, head: str, data: str, path: Path, role: Role) -> None:
        """The text in base64, if there is one: what it is called says nothing, as programs guess by other things."""
        if not begins_as_text(self._beginning(data)):
            if len(data) <= BEGINNING and not media_type:
                self._add(data, path, role)  # too short for a file: it may be meant as it stands
            return
        content = decoded(self._whole(data))
        found = text_of_file(content) if content is not None else None
        if found is not None:
            text, is_utf8 = found
            self.heard.append(Heard(Text(text, role), path, head=head, is_fixed=not is_utf8))

    def _beginning(self, data: str) -> str:
        part = self._held.find(data) if self._held is not None else None
        return data[:BEGINNING] if part is None else bytes(part[:BEGINNING]).decode()

    def _is_base64(self, data: str) -> bool:
        """Whether *data* is base64: what was set aside is."""
        return (self._held is not None and self._held.find(data) is not None) or is_base64(data)

    def _whole(self, value: str) -> str:
        """*value*, or what was set aside for it."""
        part = self._held.find(value) if self._held is not None else None
        return value if part is None else bytes(part).decode()

    def _add(self, text: str, path: Path, role: Role, *, is_fixed: bool = False) -> None:
        # A token stands for what nobody reads as a text, and must stay as it is.
        if text and (self._held is None or self._held.mark not in text):
            self.heard.append(Heard(Text(text, role), path, is_fixed=is_fixed))


def _leaves(node: Any, path: Path, names: list[str], *, is_schema: bool) -> Iterator[tuple[str, Path]]:
    """The strings in *node* and its long numbers, with their paths; names that may be a text go to *names*."""
    if isinstance(node, str):
        if node:
            yield node, path
    elif isinstance(node, list):
        for at, item in enumerate(node):
            yield from _leaves(item, (*path, at), names, is_schema=is_schema)
    elif isinstance(node, dict):
        for name, value in node.items():
            if not is_short_name(name):
                names.append(name)
            if not (is_schema and name in _KEYWORDS and not _is_prose(value)):
                yield from _leaves(value, (*path, name), names, is_schema=is_schema)
    elif (number := long_number(node)) is not None:
        yield number, path


def _is_prose(value: Any) -> bool:
    """Whether *value* is more than a keyword: a list of names, or one, is none."""
    if isinstance(value, list):
        return any(_is_prose(item) for item in value)
    return not is_name(value) if isinstance(value, str) else isinstance(value, dict)


def _type_of(node: dict[str, Any]) -> str:
    found = node.get("media_type") or node.get("mime_type")
    return found if isinstance(found, str) else ""


def _is_mark(value: Any) -> bool:
    """Whether *value* is what a mark of the cache is made of: short words."""
    return isinstance(value, dict) and all(
        isinstance(one, str) and len(one) <= _MARK_CHARS and is_name(one) and is_short_name(name)
        for name, one in value.items()
    )


def is_short_name(name: str) -> bool:
    """Whether *name* is one that a program would choose for a member."""
    return len(name) <= _LONG_NAME and name.isidentifier() and name.isascii()
