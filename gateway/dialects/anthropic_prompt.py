"""A call of Anthropic messages, understood: the way in for a client whose model has a provider of another dialect.

What Anthropic keeps on its servers (threads, containers, uploaded files) or runs there (its own tools, MCP) is refused;
what only tunes it is noted.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from gateway.core.call import Call
from gateway.core.errors import INVALID_REQUEST, GatewayError
from gateway.dialects.anthropic_prompt_blocks import read_texts, read_turn
from gateway.dialects.anthropic_prompt_members import Draft, read_members
from gateway.dialects.anthropic_prompt_tools import note_rest
from gateway.dialects.neutral import Aside, Message, Prompt, Text
from gateway.dialects.validate import refuse
from gateway.wire.values import decode_values

# A conversation that the server remembers: a provider of another dialect has nothing of the kind, and without it the
# rest of the call would be half of what was meant. The SDKs know the code, and send the whole history then.
_CONVERSATION = ("thread", "previous_message_id")
_THREAD_CODE = "thread_unsupported_request"
_BETA = "anthropic-beta"
_NULL = Raw(b"null")
_MESSAGE_MEMBERS = frozenset({"role", "content"})


def read_prompt(call: Call) -> Prompt:
    """
    *call*, which its dialect has accepted, as a prompt.

    Raises:
        GatewayError: 400 naming the place of what is malformed, or must not be ignored and cannot be carried.
    """
    fields = {name: raw for name, raw in call.fields.items() if raw != _NULL}
    _refuse_conversation(fields)
    draft = Draft(fields)
    read_members(draft)
    _read_messages(draft)
    notes = draft.notes
    return Prompt(
        names=draft.names,
        sampling=draft.sampling,
        betas=_betas(call),
        others=draft.others,
        translated=tuple(notes.translated),
        dropped=tuple(notes.dropped),
        **draft.members,
    )


def _betas(call: Call) -> tuple[str, ...]:
    """What the client's header lists."""
    lists = (value for name, value in call.forward_headers if name == _BETA)
    return tuple(name for value in lists for beta in value.split(",") if (name := beta.strip()))


def _refuse_conversation(fields: Mapping[str, Raw]) -> None:
    found = tuple(name for name in _CONVERSATION if name in fields)
    if found:
        raise GatewayError(
            INVALID_REQUEST,
            "This model cannot continue a conversation kept by the provider; send the whole conversation.",
            param=found[0],
            error_code=_THREAD_CODE,
            unsupported=found,
        )


def _read_messages(draft: Draft) -> None:
    """Turns, and all instructions in order, also those that stand among the turns."""
    system: list[Text] = []
    moved: list[Aside] = []
    messages: list[Message] = []
    if "system" in draft.fields:
        system += read_texts(decode_values(draft.fields["system"]), "system", draft.notes)
    for index, given in enumerate(decode_values(draft.fields["messages"])):
        place = f"messages[{index}]"
        role, content = given["role"], given.get("content")
        note_rest(given, _MESSAGE_MEMBERS, place, draft.notes)
        if role == "system":
            told = read_texts(content, f"{place}.content", draft.notes)
            system += told
            if messages:
                moved += [Aside(len(messages), place)] * len(told)
        elif role == "user" or role == "assistant":
            messages.append(read_turn(content, role, place, draft.notes))
        else:
            raise refuse(f"{place}.role", f"{place}.role must be user, assistant or system.")
    if not any(message.parts for message in messages):
        raise refuse("messages", "messages must have at least one message with content.")
    draft.put("messages", tuple(messages), "messages")
    if system:
        draft.put("system", tuple(system), "system")
        draft.members["moved"] = tuple(moved)
