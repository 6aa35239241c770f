"""The playground: one request that runs the pipeline once for each of its panels, and answers for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Raw

from gateway.aio import CANCEL_GRACE_S, Tasks
from gateway.core.accounts import Key
from gateway.core.errors import INTERNAL_ERROR, NOT_FOUND, OVERLOADED, GatewayError
from gateway.core.exchange import NO_LIMITS, Answer, Exchange
from gateway.core.ports import Sink
from gateway.dialects.openai_panels import cancelled_panel, error_frame, panel_error
from gateway.http.answer_headers import Headers
from gateway.http.answers import JsonAnswer
from gateway.http.endpoints import PLAYGROUND
from gateway.http.panels import PanelSink, SharedStream
from gateway.http.sinks import StreamSink
from gateway.pipeline.services import Services
from gateway.siblings import Siblings

Relay = Callable[[Exchange, Sink], Awaitable[Answer | None]]

# A run's id has the digits of its request's, and names the worker that has it.
_PANEL = re.compile(rf"{re.escape(PLAYGROUND)}/(run_[0-9a-f]{{32}}-([0-9]{{1,5}}))/panels/([A-Za-z0-9_-]{{1,64}})")
_YES, _NO = b"1", b"0"

_encode = msgspec.json.encode
_decode_cancel = msgspec.json.Decoder(tuple[str, str, str]).decode


@dataclass(slots=True)
class Panel:
    """One panel of a run. `answer` is that of a run without streaming, `error` why there is none."""

    exchange: Exchange
    sink: PanelSink
    task: asyncio.Task[None] | None = None
    is_cancelled: bool = False
    answer: Answer | None = None
    error: GatewayError | None = None
    _is_dropped: bool = False

    def cancel(self) -> bool:
        """End the panel for its owner, the upstream in this very moment; whether there was something to end."""
        if self.is_cancelled or self.sink.ended or self.task is None or self.task.done():
            return False
        self.is_cancelled = True
        self.drop()
        return True

    def drop(self) -> None:
        """End the panel without a word. Its task must not get to look at an upstream that is closed under it."""
        if not self._is_dropped:
            self._is_dropped = True
            self.sink.leave()
            if self.task is not None:
                self.task.cancel()


class Run:
    """
    The panels of one request, from their start to the last one's end.

    Args:
        lead: Stands for the run as a whole; it is never settled. Its call is that of the first panel.
        exchanges: By panel id.
    """

    def __init__(
        self, run_id: str, sink: StreamSink, services: Services, lead: Exchange, exchanges: dict[str, Exchange]
    ) -> None:
        self.id = run_id
        self.key_id = lead.key.id
        self._is_stream = lead.call.stream
        self._sink = sink
        self._head = partial(_head, services, lead, tuple(exchanges.values()), run_id)
        self._stream = SharedStream(
            self._sink,
            self._head,
            heartbeat_s=services.deadlines.heartbeat_s,
            clock_s=services.clock.monotonic_s,
            panels=len(exchanges),
        )
        self.panels = {name: Panel(exchange, PanelSink(self._stream, name)) for name, exchange in exchanges.items()}

    async def through(self, tasks: Tasks, relay: Relay) -> web.StreamResponse | GatewayError:
        """The answer, when every panel has its own; the error of an only panel while it can be a plain HTTP error."""
        self._sink.on_leave(self._leave)
        running = []
        for panel in self.panels.values():
            panel.task = tasks.spawn(self._run(panel, relay), name=f"panel {panel.exchange.request_id}")
            running.append(panel.task)
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError:
            self._leave()
            await asyncio.wait(running, timeout=CANCEL_GRACE_S)  # no panel waits for anything on its way out
            raise
        finally:
            self._stream.close()
        if self._sink.response is not None:
            return self._sink.response
        return self._json()

    def _leave(self) -> None:
        """The client is gone: so is every panel, in this very moment."""
        for panel in self.panels.values():
            panel.drop()

    async def _run(self, panel: Panel, relay: Relay) -> None:
        """One panel. Whatever becomes of it, the others go on."""
        try:
            panel.answer = await relay(panel.exchange, panel.sink)
        except GatewayError as error:
            self._refuse(panel, error)
        except asyncio.CancelledError:
            if not panel.is_cancelled:
                raise
            self._end(panel, cancelled_panel(panel.exchange.usage.completion_tokens))
        except Exception:
            self._refuse(panel, GatewayError(INTERNAL_ERROR))
            raise
        finally:
            panel.sink.forget()

    def _refuse(self, panel: Panel, error: GatewayError) -> None:
        panel.error = error.with_traceback(None)
        if len(self.panels) > 1 or self._stream.committed:
            self._end(panel, panel_error(error, panel.exchange.request_id))

    def _end(self, panel: Panel, error: dict[str, Any]) -> None:
        """Have *error* as the last that is heard of *panel*."""
        if not self._is_stream or panel.sink.ended:
            return
        with contextlib.suppress(ConnectionError):  # then there is nobody to hear it
            self._stream.open()
            panel.sink.close(error_frame(error))

    def _json(self) -> web.StreamResponse | GatewayError:
        panels = self.panels.values()
        errors = [panel.error for panel in panels if panel.error is not None]
        if errors and len(panels) == 1:
            return errors[0]
        said = {name: _said(panel) for name, panel in self.panels.items()}
        answers = [panel.answer for panel in panels if panel.answer is not None]
        headers = {**dict(self._head()), **dict(_joint_headers(answers))}
        return JsonAnswer(Answer(200, _encode({"run_id": self.id, "panels": said}), tuple(headers.items())))


class Playground:
    """
    The runs under way in this process, and the way to those of its siblings.

    Args:
        tasks: Where the panels run.
    """

    def __init__(self, tasks: Tasks, siblings: Siblings) -> None:
        self._tasks = tasks
        self._siblings = siblings
        self._runs: dict[str, Run] = {}

    def run_id(self, request_id: str) -> str:
        """The id of the run that was asked for by *request_id*: it names this worker."""
        return f"run_{request_id.removeprefix('req_')}-{self._siblings.slot}"

    async def run(self, run: Run, relay: Relay) -> web.StreamResponse | GatewayError:
        """What `Run.through` gives, each of its panels having passed through *relay*; meanwhile it can be cancelled."""
        self._runs[run.id] = run
        try:
            return await run.through(self._tasks, relay)
        finally:
            del self._runs[run.id]

    async def cancel(self, key: Key, path: str) -> bytes:
        """
        Cancel the panel that *path* names, in whichever worker it runs.

        Raises:
            GatewayError: 404 where no such panel runs, or it is another key's; 503 where its worker does not answer.
        """
        named = _PANEL.fullmatch(path)
        if named is None or not await self._reach(int(named[2]), key.id, named[1], named[3]):
            raise GatewayError(NOT_FOUND, "No such panel is running for this key.")
        return _encode({"run_id": named[1], "panel": named[3], "cancelled": True})

    async def _reach(self, slot: int, key_id: str, run_id: str, panel_id: str) -> bool:
        if slot == self._siblings.slot:
            return self._cancel(key_id, run_id, panel_id)
        try:
            return await self._siblings.ask(slot, _encode((key_id, run_id, panel_id))) == _YES
        except LookupError:
            return False
        except TimeoutError:
            raise GatewayError(OVERLOADED, "The process that has this run does not answer.") from None

    def answer(self, question: bytes) -> bytes:
        """Cancel a panel for a sibling, whose client has asked it to; whether it ran here."""
        return _YES if self._cancel(*_decode_cancel(question)) else _NO

    def _cancel(self, key_id: str, run_id: str, panel_id: str) -> bool:
        run = self._runs.get(run_id)
        if run is None or run.key_id != key_id:
            return False
        panel = run.panels.get(panel_id)
        return panel is not None and panel.cancel()


def _head(services: Services, lead: Exchange, exchanges: Sequence[Exchange], run_id: str) -> Headers:
    """The head of a run's 200: of the limits it says what the panels that have been admitted by now have left."""
    standing = [exchange.limits for exchange in exchanges if exchange.limits.rpm is not None]
    lead.limits = min(standing, key=lambda limits: limits.rpm_remaining or 0, default=NO_LIMITS)
    return (*services.headers(lead, None), ("x-anoman-run-id", run_id))


def _said(panel: Panel) -> dict[str, Any]:
    """What a run without streaming says of *panel*."""
    if panel.answer is not None:
        return {"completion": Raw(panel.answer.body)}
    if panel.error is not None:
        return {"error": panel_error(panel.error, panel.exchange.request_id)}
    return {"error": cancelled_panel(panel.exchange.usage.completion_tokens)}


def _joint_headers(answers: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    """What the heads of *answers* say of cache and cost, over all of them."""
    told = [pair for answer in answers for pair in answer.headers]
    if ("x-anoman-cache", "provider") in told:
        yield "x-anoman-cache", "provider"
    for name in ("x-anoman-cost-usd", "x-anoman-weighted-tokens"):
        values = [Decimal(value) for told_name, value in told if told_name == name]
        if values:
            yield name, f"{sum(values, Decimal()):f}"
