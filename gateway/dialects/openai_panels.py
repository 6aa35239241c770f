"""The playground's words: a body of chat completions asked several times over, and frames that say whose they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.core.call import Call, CallOptions
from gateway.core.errors import PANEL_CANCELLED, GatewayError
from gateway.dialects.errors import openai_error
from gateway.dialects.openai_chat import call_of
from gateway.dialects.openai_prompt_raw import as_objects, is_null
from gateway.dialects.validate import read_members, refuse
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

MAX_PANELS = 3  # documented: the playground compares three
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OF_THE_RUN = ("stream", "panels")
# Stands for messages that have been found right: with images they are megabytes, and each reading takes 10 ms for 20.
_READ = Raw(b'[{"role":"user"}]')
_MEMBER = re.compile(r"[^.\[]*")
_FRAME_END = b"\n\n"
_OBJECT_END = b"}\n\n"

_encode = msgspec.json.encode


class PanelCall(Struct, frozen=True):
    """One panel of a run, by the id that the client gave it."""

    id: str
    call: Call


def read_run(
    body: bytes, options: CallOptions, forward_headers: tuple[tuple[str, str], ...]
) -> Call | tuple[PanelCall, ...]:
    """
    What *body* asks for: one to `MAX_PANELS` panels in the client's order, or one plain call where it names none.

    A panel's members stand in front of the body's of the same name; all of them keep the bytes they were sent as.

    Raises:
        GatewayError: 400 naming the field at fault, as in `panels[1].temperature`.
    """
    fields = read_members(body)
    said = fields.pop("panels", None)
    if said is None or is_null(said):
        return call_of(fields, body, options, forward_headers)
    panels: list[PanelCall] = []
    unread: dict[str, Raw] = fields  # as far as their facts are to be read
    for index, own in enumerate(_read_panels(said)):
        panel_id = _take_id(own, index)
        if any(panel_id == panel.id for panel in panels):
            raise refuse(f"panels[{index}].id", f"panels[{index}].id is that of another panel.")
        _check_own(own, index)
        try:
            call = call_of({**fields, **own}, replace_members(unread, own), options, forward_headers)
        except GatewayError as error:
            raise _placed(error, fields, own, index) from None
        panels.append(PanelCall(panel_id, call))
        if "messages" not in own:
            unread = {**fields, "messages": _READ}
    return tuple(panels)


def _read_panels(said: Raw) -> list[dict[str, Raw]]:
    panels = as_objects(said, "panels")
    if not 1 <= len(panels) <= MAX_PANELS:
        raise refuse("panels", f"panels must have 1 to {MAX_PANELS} entries.")
    return panels


def _take_id(own: dict[str, Raw], index: int) -> str:
    place, said = f"panels[{index}].id", own.pop("id", None)
    value = None if said is None else decode_values(said)
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise refuse(place, f"{place} must be 1 to 64 of the characters A-Z, a-z, 0-9, _ and -.")
    return value


def _check_own(own: Mapping[str, Raw], index: int) -> None:
    for name in _OF_THE_RUN:
        if name in own:
            place = f"panels[{index}].{name}"
            raise refuse(place, f"{place}: {name} is the whole run's, not a panel's.")


def _placed(error: GatewayError, shared: Mapping[str, Raw], own: Mapping[str, Raw], index: int) -> GatewayError:
    """*error* with the place of a member that is the panel's own, or that neither it nor the body has."""
    found = _MEMBER.match(error.param or "")
    member = found[0] if found is not None else ""
    if not error.param or (member not in own and member in shared):
        return error
    place = f"panels[{index}]."
    message = f"{place}{error.message}" if error.message.startswith(error.param) else error.message
    return GatewayError(error.kind, message, param=f"{place}{error.param}")


class PanelMark:
    """Puts the last member `"panel":"ID"` into the frames of a panel, which begin with what they are about."""

    def __init__(self, panel_id: str) -> None:
        self._id = panel_id
        self._end = b',"panel":%b}\n\n' % _encode(panel_id)

    def __call__(self, frames: bytes) -> bytes:
        """*frames* marked: whole ones as the OpenAI lane writes them, each one line of ASCII JSON."""
        if b'"panel"' in frames or frames.count(_OBJECT_END) != frames.count(_FRAME_END):
            return b"".join(map(self._anew, frames.split(_FRAME_END)[:-1]))
        return frames.replace(_OBJECT_END, self._end)  # no line end stands inside of JSON on one line

    def _anew(self, text: bytes) -> bytes:
        """A frame that a provider ended with a blank, or gave a member of that name."""
        members = decode_members(text.removeprefix(b"data: "))
        members.pop("panel", None)
        return frame(ascii_json(replace_members(members, {"panel": self._id})))


def panel_error(error: GatewayError, request_id: str) -> dict[str, Any]:
    """The `error` of a panel that was refused or failed, with what an HTTP answer would tell in its head."""
    extension: dict[str, Any] = {"request_id": request_id, "status": error.kind.status}
    if error.retry_after_s is not None:
        extension["retry_after_s"] = max(0, error.retry_after_s)
    return openai_error(error, extension)


def cancelled_panel(completion_tokens: int) -> dict[str, Any]:
    """The `error` of a panel that was cancelled, in the form of a stream's interruption."""
    kind = PANEL_CANCELLED
    extension = {"completion_tokens": completion_tokens}
    return {"type": kind.openai_type, "code": kind.code, "message": kind.message, "_anoman": extension}


def error_frame(error: dict[str, Any]) -> bytes:
    """The frame of *error*, still without its panel."""
    return frame(ascii_json(_encode({"error": error})))
