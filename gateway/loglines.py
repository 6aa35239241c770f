"""What a log line looks like: fields in, one line of bytes out. Nothing a caller passes can make it raise or leak."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import msgspec
from msgspec import structs

Fields = MutableMapping[str, Any]
Render = Callable[[Any, str, Fields], bytes]
RenderRow = Callable[[str, str, msgspec.Struct, float], bytes]

MAX_MESSAGE = 300  # characters of an exception's or a library's own words
MAX_FRAMES = 16  # innermost ones; our deepest await chain is about ten
MAX_LINKS = 4  # of a chain of causes
_MAX_DEPTH = 4

# Words of others may quote a header, a URL or a key. What looks like a credential goes, and so does every run of 20 or
# more of the characters that keys are made of: few words are longer, and the exception's type is told apart.
_SECRET = re.compile(
    r"(?i)\b(?:bearer|basic)\s+\S+"
    r"|\b(?:[a-z]{2,8}-)?[sa]k-\S+"
    r"|\b(?:[a-z-]*api[-_]?key|authorization|cookie|password|secret|token)[\"']?\s*[:=]\s*(?:(?:bearer|basic)\s+)?\S+"
    r"|[a-z0-9_+/=-]{20,}"
)
_MASK = "***"


def clean(text: str) -> str:
    """The first line of *text* with everything that may be a secret masked, at most `MAX_MESSAGE` characters."""
    line = text[: 4 * MAX_MESSAGE].partition("\n")[0]
    return _SECRET.sub(_MASK, line)[:MAX_MESSAGE]


def describe(exc: BaseException, *, words: Callable[[str], str] = clean) -> list[dict[str, Any]]:
    """
    *exc* and its causes (of a group, its first member), outermost first: type, message, frames as `module:line name`.

    No source lines and no local variables: they hold request bodies and credentials.

    Args:
        words: Applied to each message.
    """
    chain: list[dict[str, Any]] = []
    link: BaseException | None = exc
    while link is not None and len(chain) < MAX_LINKS:
        chain.append({"type": type(link).__qualname__, "message": words(_words(link)), "frames": _frames(link)})
        if isinstance(link, BaseExceptionGroup):
            link = link.exceptions[0]
        else:
            link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return chain


def _words(exc: BaseException) -> str:
    # Unlike str(exc), this survives a library's exception whose own __str__ raises.
    return str(traceback.TracebackException(type(exc), exc, None, lookup_lines=False, compact=True))


def _frames(exc: BaseException) -> list[str]:
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(exc.__traceback__)
    ]
    return frames[-MAX_FRAMES:]


class Clock:
    """UTC in ISO 8601 with milliseconds; the part down to the second is rendered once per second."""

    def __init__(self) -> None:
        self._cached = (-1, "")

    def __call__(self, now_s: float) -> str:
        second, text = self._cached
        if second != int(now_s):
            second = int(now_s)
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._cached = (second, text)
        return f"{text}.{int((now_s - second) * 1000):03d}Z"


_stamp = Clock()


def _line_fields(level: str, fields: Fields, epoch_s: float) -> dict[str, Any]:
    """The fields in reading order, an exception described."""
    exc_info = fields.pop("exc_info", None)
    line = {"timestamp": _stamp(epoch_s), "level": level, "event": fields.pop("event", ""), **fields}
    if exc_info:
        exc = _exception(exc_info)
        if exc is not None:
            line["exception"] = describe(exc)
    return line


def _exception(exc_info: object) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return exc_info[1] if isinstance(exc_info[1], BaseException) else None
    return sys.exc_info()[1]


def _type_name(value: object) -> str:
    return f"<{type(value).__name__}>"  # never its repr: it may hold anything


_encoder = msgspec.json.Encoder(enc_hook=_type_name)


def render_json(_logger: Any, level: str, fields: Fields) -> bytes:
    """One JSON object and a newline."""
    return _json_line(_line_fields(level, fields, time.time()))


def _json_line(line: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(line) + b"\n"
    except (TypeError, ValueError, RecursionError):  # a lone surrogate, a key that is no string, a loop
        return _encoder.encode(_plain(line)) + b"\n"


def _plain(value: object, depth: int = 0) -> object:
    """*value* as something that can always be encoded."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(_plain(key, _MAX_DEPTH)): _plain(item, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return _type_name(value)


def render_json_row(level: str, event: str, row: msgspec.Struct, epoch_s: float) -> bytes:
    """As `render_json`, of a struct whose fields are the line's."""
    try:
        fields = _encoder.encode(row)
    except (TypeError, ValueError, RecursionError):
        return _json_line(_line_fields(level, {"event": event, **_fields(row)}, epoch_s))
    head = f'{{"timestamp":"{_stamp(epoch_s)}","level":"{level}","event":"{event}",'
    return head.encode() + fields[1:] + b"\n"


def render_console_row(level: str, event: str, row: msgspec.Struct, epoch_s: float) -> bytes:
    """As `render_console`, of a struct whose fields are the line's."""
    return _console_line(_line_fields(level, {"event": event, **_fields(row)}, epoch_s))


def _fields(row: msgspec.Struct) -> Fields:
    """The fields of *row* that its JSON has too."""
    return {name: value for name, value in structs.asdict(row).items() if value is not msgspec.UNSET}


def render_console(_logger: Any, level: str, fields: Fields) -> bytes:
    """For people: time, level, event, key=value; an exception on lines of its own."""
    return _console_line(_line_fields(level, fields, time.time()))


def _console_line(line: dict[str, Any]) -> bytes:
    stamp, level, event = line.pop("timestamp"), line.pop("level"), line.pop("event")
    chain = line.pop("exception", [])
    parts = [stamp[11:23], f"{level:<8}", _word(event), *(f"{key}={_word(value)}" for key, value in line.items())]
    lines = [" ".join(parts)]
    for link in chain if isinstance(chain, list) else []:
        lines.append(f"    {link['type']}: {_word(link['message'])}")
        lines.extend(f"        {frame}" for frame in link["frames"])
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def _word(value: object) -> str:
    """*value* so that it cannot be taken for another field or another line, nor steer the terminal."""
    plain = _plain(value)
    text = plain if isinstance(plain, str) else _encoder.encode(plain).decode()
    return text if text.isprintable() and text and not set(text) & set(" ='\"") else repr(text)
