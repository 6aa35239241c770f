"""One recorded exchange played through the pure half, with fixed ids and clocks.

A case is a folder `fixtures/<provider>/<case>/`. Written by hand: `source.txt` (whose public reference the shapes
follow), `request.json`, and what the provider answers: `upstream.sse`, `upstream.json` or `upstream_error.json`. Where
streams are binary, `upstream.events` has a message in each line, by name and payload, and `upstream.bin` is derived.
Derived, and reviewed by eye: `upstream_request.json`, `client.sse` or `client.json`, `receipt.json`.

The same answer is asked for by a client of another dialect than the provider's: `request.<client>.json`, where
<client> is `openai` or `anthropic`. So there is a second set of derived files, with the client's name before their
endings. A provider whose dialect no client speaks has those two and no `request.json`. The provider's model is the one
that `request.json` names, or else `request.openai.json`, since what it is asked depends on its traits.
`python -m tests.golden.replay` writes the derived files anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from gateway.core.accounts import Key, Tier
from gateway.core.call import Call, CallOptions, UpstreamRequest
from gateway.core.catalog import ClientDialectName, Mode, Model, Provider, Route
from gateway.core.errors import STREAM_INTERRUPTED, Failure, UpstreamFailed
from gateway.core.exchange import Attempt, Exchange, Outcome
from gateway.core.money import Price, Weight, parse_price, parse_weight
from gateway.core.receipt import Receipt, Tariff, draw_up, row_of
from gateway.dialects.base import ClientDialect, Journey, LaneRules
from gateway.dialects.errors import error_body
from gateway.dialects.pairs import open_lane, read_completion
from gateway.dialects.registry import CLIENT_DIALECTS, DIALECTS
from gateway.providers.families import family_of
from gateway.providers.presets import PRESETS
from gateway.providers.requests import build_request
from tests.support.eventstream import event, exception

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(path.parent for path in FIXTURES.glob("*/*/source.txt"))

ANY_BASE_URL = "https://upstream.example"  # of vendors whose customers each have their own
REQUEST_ID, TRACE_ID = "req_golden", "0123456789abcdef0123456789abcdef"
CREATED_EPOCH_S = 1_700_000_000
# The documents' example: 7 tokens at 3 and 4 at 5 USD per million are 0.000041; a mid model counts fourfold.
PRICE = Price(
    input=parse_price("3"), output=parse_price("5"), cached_input=parse_price("0.30"), cache_write=parse_price("3.75")
)
MODES: dict[Mode, Weight] = {"realtime": parse_weight("1"), "provider_cache": parse_weight("0.9")}
TARIFF = Tariff(modes=MODES, bill_interrupted=True, region="id")
CLIENTS: dict[str, ClientDialectName] = {"openai": "openai_chat", "anthropic": "anthropic_messages"}
ENDPOINTS = {"openai_chat": "chat_completions", "anthropic_messages": "messages"}

Settled = tuple[str, bytes, Receipt]
"""The client's file by name and content, and the receipt."""


def replay(case: Path) -> dict[str, bytes]:
    """The derived files of *case*."""
    own = CLIENT_DIALECTS.get(PRESETS[case.parent.name].dialect)
    derived = _asked(case, case / "request.json", own) if own is not None else {}
    for client, dialect in CLIENTS.items():
        if (request := case / f"request.{client}.json").exists():
            files = _asked(case, request, CLIENT_DIALECTS[dialect])
            derived |= {name.replace(".", f".{client}."): content for name, content in files.items()}
    if (events := case / "upstream.events").exists():
        derived["upstream.bin"] = _binary(events.read_text())
    return derived


def _asked(case: Path, request: Path, client: ClientDialect) -> dict[str, bytes]:
    """The files that follow from *request*, as they are named in its provider's own dialect."""
    call = client.read_call(request.read_bytes(), CallOptions(), ())
    route = _route(case, call)
    exchange = _exchange(call, route)
    assert exchange.model is not None
    asked = build_request(call, route, exchange.model)
    exchange.params = asked.params
    family = family_of(route.model, call.slug)
    journey = Journey(call, route, REQUEST_ID, CREATED_EPOCH_S, LaneRules(), family, asked.params.tools)
    name, body, receipt = _answered(case, journey, exchange)
    return {"upstream_request.json": _request(asked), name: body, "receipt.json": _pretty(receipt)}


def _route(case: Path, call: Call) -> Route:
    preset = PRESETS[case.parent.name]
    base_url = preset.service.base_url("us-east-1") if preset.service else preset.base_url or ANY_BASE_URL
    place = (preset.name, preset.dialect, base_url, preset.type, preset.region)
    odd = {"path": preset.path, "omits": preset.omits, "quirks": preset.quirks}
    provider = Provider(*place, parse_weight("1"), preset.auth("secret"), **odd)
    asked = next(case / name for name in ("request.json", "request.openai.json") if (case / name).exists())
    theirs = json.loads(asked.read_bytes())["model"]
    model = f"vendor-{call.slug}" if preset.dialect == call.dialect else theirs
    return Route(provider, model)


def _binary(events: str) -> bytes:
    """The messages of an event stream, from lines such as `messageStart {"role": "assistant"}`."""
    out = b""
    for line in events.splitlines():
        name, _, payload = line.partition(" ")
        raises = name.endswith("Exception")
        out += (exception if raises else event)(name, json.loads(payload))
    return out


def _answered(case: Path, journey: Journey, exchange: Exchange) -> Settled:
    if (case / "upstream.events").exists():
        return _stream(journey, exchange, _binary((case / "upstream.events").read_text()))
    if (case / "upstream.sse").exists():
        return _stream(journey, exchange, (case / "upstream.sse").read_bytes())
    if (case / "upstream.json").exists():
        return _whole(journey, exchange, (case / "upstream.json").read_bytes())
    error = json.loads((case / "upstream_error.json").read_bytes())
    raw = json.dumps(error["body"]).encode()
    provider = DIALECTS[journey.route.provider.dialect]
    return _refused(exchange, provider.read_failure(error["status"], error["headers"], raw, CREATED_EPOCH_S))


def _exchange(call: Call, route: Route) -> Exchange:
    """An exchange that was asked for at second 100 and answered within milliseconds."""
    exchange = Exchange(
        request_id=REQUEST_ID,
        trace_id=TRACE_ID,
        endpoint=ENDPOINTS[call.dialect],
        call=call,
        key=Key("key_golden", "golden", Tier("enterprise")),
        started_s=100.0,
    )
    exchange.model = Model(call.slug, "mid", parse_weight("4"), PRICE, (route,), 128_000, max_output_tokens=64_000)
    exchange.route = route
    exchange.attempts = [Attempt(route, "ok")]
    exchange.dispatched_s, exchange.answered_s = 100.001, 100.251
    return exchange


def _stream(journey: Journey, exchange: Exchange, upstream: bytes) -> Settled:
    lane = open_lane(journey)
    out = lane.feed(upstream)
    if not lane.ended and lane.failure is None:
        out += lane.end()
    if lane.failure is not None and not lane.complete and not out:
        return _refused(exchange, lane.failure)
    exchange.usage, exchange.basis = lane.measure()
    exchange.note, exchange.status = lane.note, 200
    exchange.committed_s = exchange.first_token_s = 100.252
    if lane.failure is None or lane.complete:
        receipt = _settle(exchange, "completed")
        return "client.sse", out + lane.finish(receipt), receipt
    exchange.failure, exchange.error_code = lane.failure, STREAM_INTERRUPTED.code
    exchange.attempts[0].result = "failed"
    receipt = _settle(exchange, "interrupted")
    return "client.sse", out + lane.fail(lane.failure, receipt), receipt


def _whole(journey: Journey, exchange: Exchange, upstream: bytes) -> Settled:
    try:
        completion = read_completion(upstream, journey)
    except UpstreamFailed as exc:
        return _refused(exchange, exc.failure)
    exchange.usage, exchange.basis, exchange.note = completion.usage, completion.basis, completion.note
    exchange.status, exchange.committed_s = 200, 100.252
    receipt = _settle(exchange, "completed")
    return "client.json", _indented(completion.render(receipt)), receipt


def _refused(exchange: Exchange, failure: Failure) -> Settled:
    error = failure.as_error()
    exchange.failure, exchange.status, exchange.error_code = failure, error.kind.status, error.kind.code
    exchange.attempts[0].result = "failed"
    receipt = _settle(exchange, "rejected" if error.kind.status < 500 else "failed")
    return "client.json", _indented(error_body(exchange.call.dialect, error, REQUEST_ID)), receipt


def _settle(exchange: Exchange, outcome: Outcome) -> Receipt:
    return draw_up(exchange, outcome, now_s=100.9, epoch_s=0.0, tariff=TARIFF)


def _request(request: UpstreamRequest) -> bytes:
    return _json({"url": request.url, "headers": dict(request.headers), "body": json.loads(request.body)})


def _pretty(receipt: Receipt) -> bytes:
    return _indented(msgspec.json.encode(row_of(receipt)))


def _indented(body: bytes) -> bytes:
    return _json(json.loads(body))


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


if __name__ == "__main__":
    for case in CASES:
        for name, content in replay(case).items():
            (case / name).write_bytes(content)
