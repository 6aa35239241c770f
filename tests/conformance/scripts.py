"""All clients, and what the scripted provider tells them in their dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.conftest import MODELS, Stand
from tests.conformance.node_clients import NODE_CLIENTS
from tests.conformance.outcome import Client
from tests.conformance.python_clients import PYTHON_CLIENTS
from tests.support.notation import CBD, CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, TC, R, T, U, json_answer

CLIENTS = [*PYTHON_CLIENTS, *NODE_CLIENTS]
WHOLE = [client for client in CLIENTS if "helper" not in client.name]  # the helpers only stream
PIECES = ["Halo ", "北🦀é", " dan\u2028\u0085 ", "se", "lesai…"]  # line separators of Unicode are no ends of SSE lines
TEXT = "".join(PIECES)
ARGUMENTS = {"city": "Jakarta", "units": "celsius"}

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
each_core_client = pytest.mark.parametrize(
    "client", [client for client in WHOLE if "async" not in client.name], ids=lambda client: client.name
)
each_whole_client = pytest.mark.parametrize("client", WHOLE, ids=lambda client: client.name)


def opening(client: Client) -> list[bytes]:
    return [R()] if client.dialect == "openai" else [MS(7), CBS(0)]


def piece(client: Client, text: str) -> bytes:
    return T(text) if client.dialect == "openai" else CBD(0, text)


def ending(client: Client) -> list[bytes]:
    return [FIN(), U(7, 4), DONE] if client.dialect == "openai" else [CBX(0), MD("end_turn", 4), MX]


def told(client: Client) -> list[Any]:
    return [*opening(client), *(piece(client, text) for text in PIECES), *ending(client)]


def tool_call(client: Client) -> list[bytes]:
    halves = ['{"city": "Jakarta", ', '"units": "celsius"}']
    if client.dialect == "openai":
        pieces = [TC(0, name="get_weather"), *(TC(0, half) for half in halves)]
        return [R(), *pieces, FIN("tool_calls"), U(7, 4), DONE]
    block = [CBS(0, "tool_use", name="get_weather"), *(CBJ(0, half) for half in halves), CBX(0)]
    return [MS(7), *block, MD("tool_use", 4), MX]


def tool_answer(client: Client) -> Any:
    if client.dialect == "anthropic":
        block = {"type": "tool_use", "id": "toolu_0", "name": "get_weather", "input": ARGUMENTS}
        return json_answer("", (7, 4), dialect="anthropic", finish="tool_use", content=[block])
    call = {"index": 0, "id": "call_0", "type": "function"}
    call["function"] = {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return json_answer("", (7, 4), choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])


def script(stand: Stand, client: Client, *answers: Any) -> None:
    stand.provider.script(MODELS[client.dialect], *answers)
