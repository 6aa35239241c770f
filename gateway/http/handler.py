"""The one request handler: checks, routes, runs the pipeline, renders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from aiohttp import web
from msgspec import structs
from multidict import istr

from gateway.core.accounts import Key
from gateway.core.call import Call, CallOptions
from gateway.core.catalog import Catalog, ClientDialectName
from gateway.core.errors import (
    INVALID_API_KEY,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    RIGHT_DENIED,
    SHUTTING_DOWN,
    STORAGE_UNAVAILABLE,
    GatewayError,
)
from gateway.core.exchange import NO_LIMITS, Answer, Exchange, Limits
from gateway.core.held import Held, mark_of
from gateway.core.ports import Claim, Sink, StoreUnavailable
from gateway.dialects.base import ClientDialect
from gateway.dialects.openai_panels import PanelCall, read_run
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.http.admin.desk import AdminDesk
from gateway.http.answer_headers import Headers, limit_headers, refusal_headers
from gateway.http.answers import JsonAnswer
from gateway.http.door import Door
from gateway.http.endpoints import SUPPORTED, Endpoint, find
from gateway.http.errors import error_response
from gateway.http.intake import check_request, read_body, route_path, set_aside
from gateway.http.keeping import BodyWatch
from gateway.http.models import models_body
from gateway.http.naming import IDEMPOTENCY_KEY, claim_of
from gateway.http.playground import Playground, Run
from gateway.http.protocol import REQUEST_ID, connection_of
from gateway.http.replays import Passage, Repeater
from gateway.http.sinks import StreamSink
from gateway.http.turnstile import Turnstile
from gateway.pipeline.run import Pipeline
from gateway.pipeline.services import Services
from gateway.wire.headers import FORWARDED, MAX_ID_CHARS, clean_text, is_true
from gateway.wire.payloads import MIN_PAYLOAD_BYTES

# `istr` folds the case once instead of at every look-up.
_SESSION, _X_SESSION = istr("anoman-session-id"), istr("x-session-id")
_AGENT, _X_AGENT = istr("anoman-agent-id"), istr("x-agent-id")
_STRIP, _STRICT = istr("x-anoman-strip-extension"), istr("x-anoman-strict-params")


_NO_INFERENCE_KEY = "This is an admin key (anm-ak-...); models are called with inference keys (anm-sk-...)."

Asked = Call | tuple[PanelCall, ...]
BASE_URLS = "SDKs: a base_url ends in /v1 for OpenAI's, in /anthropic for Anthropic's."  # what most of them got wrong


@dataclass(slots=True)
class Site:
    """What the handler serves. Replaced as a whole by a reload, so a request sees one state from start to end.

    Attributes:
        secrets: Every credential, for keeping them out of the log.
    """

    catalog: Catalog
    pipeline: Pipeline
    services: Services
    small_body_bytes: int
    large_body_bytes: int
    body_s: float
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the handler calls outside of itself.

    Attributes:
        on_bad_request: One log line for a request that was refused before it became an exchange: our word for why, the
            status, the request id, and the address that it came from.
        metrics_type: The content type of what `render_metrics` gives.
        stream_opened: A stream has been asked for; `stream_closed` is called when its exchange is over.
        standing: Where a key stands, for answers that nothing was taken for.
    """

    new_request_id: Callable[[], str]
    new_trace_id: Callable[[], str]
    on_bad_request: Callable[[str, int, str, str | None], None]
    render_metrics: Callable[[], Awaitable[bytes]]
    metrics_type: str
    stream_opened: Callable[[], None]
    stream_closed: Callable[[], None]
    standing: Callable[[Key], Limits]


class GatewayHandler:
    """Answers every request whose head could be read. `active` counts those under way."""

    def __init__(
        self,
        site: Site,
        door: Door,
        hooks: Hooks,
        turnstile: Turnstile,
        *,
        playground: Playground,
        desk: AdminDesk,
        repeater: Repeater,
        bodies: BodyWatch,
    ) -> None:
        self.site = site
        self.active = 0
        self.draining = False
        self._door = door
        self._hooks = hooks
        self._playground = playground
        self._desk = desk
        self._repeater = repeater
        self._bodies = bodies
        self._idle = asyncio.Event()
        self._idle.set()
        self._uploads: set[asyncio.Task[object]] = set()
        self._turnstile = turnstile

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        request_id = self._hooks.new_request_id()
        path = route_path(request)
        self.active += 1
        self._idle.clear()
        try:
            secret = check_request(request)
            endpoint = self._endpoint(path, request.method)
            if endpoint.dialect is not None:
                return await self._complete(request, endpoint, secret, request_id)
            if endpoint.kind == "admin":
                return await self._desk.answer(request, secret, request_id, partial(self._read_small, request))
            return await self._serve(request, endpoint, secret, request_id)
        except GatewayError as error:
            self._refused(request, error, request_id)
            return error_response(
                path, error, request_id, self._allowed(path) if error.kind is METHOD_NOT_ALLOWED else ()
            )
        except Exception:
            request[REQUEST_ID] = request_id
            raise
        finally:
            self.active -= 1
            if not self.active:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until no request is under way, nor waits for its turn to begin."""
        await self._turnstile.enter()
        await asyncio.sleep(0)  # those that were let in before begin now
        await self._idle.wait()

    def refuse_uploads(self) -> None:
        """Refuse the requests whose bodies are still coming: once the server closes, what arrives is not looked at."""
        while self._uploads:
            self._uploads.pop().cancel()

    def _endpoint(self, path: str, method: str) -> Endpoint:
        endpoint = find(path)
        if endpoint is None:
            raise GatewayError(NOT_FOUND, f"No such route. Supported: {SUPPORTED}. {BASE_URLS}")
        if method not in endpoint.methods:
            raise GatewayError(METHOD_NOT_ALLOWED, f"This route takes {' and '.join(endpoint.methods)}.")
        return endpoint

    def _refused(self, request: web.BaseRequest, error: GatewayError, request_id: str) -> None:
        self._hooks.on_bad_request(error.kind.code, error.kind.status, request_id, self._door.address_of(request))

    async def _authenticate(self, request: web.BaseRequest, secret: str | None) -> Key:
        try:
            key = await self._door.key_of(request, secret)
        except StoreUnavailable as exc:
            raise GatewayError(STORAGE_UNAVAILABLE) from exc
        if key is None:
            raise GatewayError(INVALID_API_KEY)
        if "inference" not in key.rights:
            raise GatewayError(RIGHT_DENIED, _NO_INFERENCE_KEY)
        return key

    async def _complete(
        self, request: web.BaseRequest, endpoint: Endpoint, secret: str | None, request_id: str
    ) -> web.StreamResponse:
        """One exchange, or one for each panel, from the caller's key to the answer."""
        site = self.site
        if self.draining:
            request.protocol.close()
            raise GatewayError(SHUTTING_DOWN)
        key = await self._authenticate(request, secret)
        try:
            asked, claim = await self._ask(request, endpoint, key, request_id)
        except GatewayError as error:
            self._hooks.on_bad_request(error.kind.code, error.kind.status, request_id, self._door.address_of(request))
            return error_response(route_path(request), error, request_id, limit_headers(self._hooks.standing(key)))
        exchange = Exchange(
            request_id=request_id,
            trace_id=self._hooks.new_trace_id(),
            endpoint=endpoint.name,
            call=asked if isinstance(asked, Call) else asked[0].call,
            key=key,
            started_s=connection_of(request).came_s,
            limits=NO_LIMITS if claim is None else self._hooks.standing(key),  # it may be refused before admission
            source=endpoint.source,
        )
        answer = partial(self._answer, request, exchange, asked, site)
        relay = partial(self._run, site.pipeline)
        if claim is None:
            return await answer(Passage(StreamSink(request), relay))
        try:
            return await self._repeater.answer(request, exchange, claim, answer, relay)
        except GatewayError as error:
            self._refused(request, error, request_id)
            return error_response(route_path(request), error, request_id, refusal_headers(exchange))

    async def _answer(
        self, request: web.BaseRequest, exchange: Exchange, asked: Asked, site: Site, passage: Passage
    ) -> web.StreamResponse:
        """Have *asked* done; *exchange* is its own, or stands for those of its panels."""
        if not isinstance(asked, Call):
            return await self._play(request, site, exchange, asked, passage)
        sink = passage.sink
        try:
            answer = await passage.relay(exchange, sink)
        except GatewayError as error:
            return error_response(route_path(request), error, exchange.request_id, refusal_headers(exchange))
        if answer is None:
            assert sink.response is not None
            return sink.response
        return JsonAnswer(answer)

    async def _ask(
        self, request: web.BaseRequest, endpoint: Endpoint, key: Key, request_id: str
    ) -> tuple[Asked, Claim | None]:
        """What the body asks for, and the claim of one that has a name. Raises GatewayError."""
        site, dialect = self.site, endpoint.dialect
        assert dialect is not None
        body = await self._read_body(request, small_bytes=site.small_body_bytes, large_bytes=site.large_body_bytes)
        options, forwarded = _options(request), _forwarded(request, dialect)
        claim = held = None
        if IDEMPOTENCY_KEY in request.headers and endpoint.kind != "count":
            claim = await claim_of(request, key, request_id, body, (endpoint.name, options, forwarded))
        if len(body) >= MIN_PAYLOAD_BYTES:  # shorter ones, which are nearly all, hold nothing that is that long
            body, held = await set_aside(body, mark_of(request_id))
        asked = _reader(CLIENT_DIALECTS[dialect], endpoint)(body, options, forwarded)
        return (asked if held is None else _holding(asked, held)), claim

    async def _play(
        self,
        request: web.BaseRequest,
        site: Site,
        lead: Exchange,
        panels: tuple[PanelCall, ...],
        passage: Passage,
    ) -> web.StreamResponse:
        """One exchange for each of *panels*; *lead* stands for all of them and is none itself."""
        for _ in panels[1:]:
            await self._turnstile.enter()  # each panel is as much work as a request
        exchanges = {
            panel.id: structs.replace(
                lead,
                request_id=f"{lead.request_id}-{panel.id}",
                trace_id=self._hooks.new_trace_id(),
                call=panel.call,
                attempts=[],
                verdicts={},
            )
            for panel in panels
        }
        run = Run(self._playground.run_id(lead.request_id), passage.sink, site.services, lead, exchanges)
        answer = await self._playground.run(run, passage.relay)
        if isinstance(answer, GatewayError):
            headers = refusal_headers(exchanges[panels[0].id])
            return error_response(route_path(request), answer, lead.request_id, headers)
        return answer

    async def _read_small(self, request: web.BaseRequest, max_bytes: int) -> bytes:
        return await self._read_body(request, small_bytes=max_bytes, large_bytes=max_bytes)

    async def _read_body(self, request: web.BaseRequest, *, small_bytes: int, large_bytes: int) -> bytes:
        """The body; raises GatewayError, also when `refuse_uploads` ends the wait for it."""
        reading = read_body(request, small_bytes=small_bytes, large_bytes=large_bytes, body_s=self.site.body_s)
        if request.content.is_eof():
            return await reading  # it is here already
        task = asyncio.current_task()
        assert task is not None
        self._uploads.add(task)
        try:
            body = await reading
        except asyncio.CancelledError:
            if task in self._uploads or task.uncancel():
                raise  # it was the client, or the client as well
            raise GatewayError(SHUTTING_DOWN) from None
        finally:
            self._uploads.discard(task)
        connection_of(request).came_s = await self._turnstile.enter()  # its head had a turn, not it
        return body

    async def _run(self, pipeline: Pipeline, exchange: Exchange, sink: Sink) -> Answer | None:
        hooks = self._hooks
        if exchange.call.stream:
            hooks.stream_opened()
        relay = self._bodies.through(pipeline.run, exchange)
        try:
            return await relay(exchange, sink)
        finally:
            if exchange.call.stream:
                hooks.stream_closed()

    def _allowed(self, path: str) -> Headers:
        endpoint = find(path)
        if endpoint is None:
            return ()
        methods = self._desk.table.allowed(path) if endpoint.kind == "admin" else endpoint.methods
        return (("Allow", ", ".join(methods)),)

    async def _serve(
        self, request: web.BaseRequest, endpoint: Endpoint, secret: str | None, request_id: str
    ) -> web.StreamResponse:
        """Everything that is no completion: small, and not counted."""
        path = route_path(request)
        ids = (("x-request-id", request_id), ("request-id", request_id))
        if endpoint.kind == "models":
            key = await self._authenticate(request, secret)
            headers = (*ids, *limit_headers(self._hooks.standing(key)))
            return _json(models_body(path, self.site.catalog, key, self.site.services.clock.epoch_s()), 200, headers)
        if endpoint.kind == "panel":
            key = await self._authenticate(request, secret)
            headers = (*ids, *limit_headers(self._hooks.standing(key)))
            return _json(await self._playground.cancel(key, path), 200, headers)
        if endpoint.kind == "metrics":
            text = await self._hooks.render_metrics()
            return web.Response(body=text, headers={"Content-Type": self._hooks.metrics_type})
        if endpoint.kind == "ready" and self.draining:
            return _json(b'{"status":"draining"}', 503, ids)
        return _json(b'{"status":"ok"}', 200, ids)


def _json(body: bytes, status: int, headers: Headers) -> web.Response:
    response = web.Response(body=body, status=status, content_type="application/json")
    for name, value in headers:
        response.headers[name] = value
    return response


def _reader(spoken: ClientDialect, endpoint: Endpoint) -> Callable[[bytes, CallOptions, Headers], Asked]:
    """What reads the bodies of *endpoint*, which speaks the dialect *spoken*."""
    if endpoint.kind == "completion":
        return spoken.read_call
    if endpoint.kind == "playground":
        return read_run
    assert spoken.counting is not None  # else the table would not have the endpoint
    return spoken.counting.read_call


def _holding(asked: Asked, held: Held) -> Asked:
    """*asked* with what was taken out of its body, in every call that it makes."""
    if isinstance(asked, Call):
        return structs.replace(asked, held=held)
    return tuple(structs.replace(panel, call=structs.replace(panel.call, held=held)) for panel in asked)


def _options(request: web.BaseRequest) -> CallOptions:
    get = request.headers.get
    session = get(_SESSION) or get(_X_SESSION)
    agent = get(_AGENT) or get(_X_AGENT)
    return CallOptions(
        strip_extension=is_true(get(_STRIP)),
        strict_params=is_true(get(_STRICT)),
        session_id=clean_text(session, MAX_ID_CHARS) if session else None,
        agent_id=clean_text(agent, MAX_ID_CHARS) if agent else None,
    )


def _forwarded(request: web.BaseRequest, dialect: ClientDialectName) -> Headers:
    get = request.headers.get
    return tuple((name, value) for name in FORWARDED[dialect] if (value := get(name)) is not None)
