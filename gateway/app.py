"""The composition root: settings become running objects here. Which stores those are, `storage.open` picks for it."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from gateway import telemetry as events
from gateway.administration import open_desk
from gateway.aio import Tasks
from gateway.bookkeeping import Writer, open_janitor, open_journal, open_shelf
from gateway.core.accounts import Key
from gateway.core.catalog import Catalog, Route
from gateway.core.errors import KEY_CUT, SHUTDOWN, Failure
from gateway.core.exchange import Exchange
from gateway.core.guarding import NO_RULES
from gateway.core.ports import StoreUnavailable
from gateway.core.receipt import Tariff
from gateway.dialects.base import LaneRules
from gateway.dialects.scrub import redact
from gateway.dialects.tokens import warm_up
from gateway.guardroom import moderation_of, open_guards
from gateway.http.answer_headers import constant_headers, success_headers
from gateway.http.door import Door
from gateway.http.handler import GatewayHandler, Hooks, Site
from gateway.http.keeping import BodyWatch
from gateway.http.playground import Playground
from gateway.http.replays import Repeater
from gateway.http.server import GatewayServer
from gateway.http.turnstile import Turnstile
from gateway.ids import RequestIds, new_trace_id
from gateway.imaging.stills import ProcessStills
from gateway.loglines import clean
from gateway.metrics import CONTENT_TYPE as METRICS_TYPE
from gateway.metrics import MetricsRecorder
from gateway.pipeline.drains import Drains
from gateway.pipeline.run import Pipeline
from gateway.pipeline.services import Clock, Services
from gateway.pipeline.stages.abide import Abide
from gateway.pipeline.stages.admit import Admit, Refuse
from gateway.pipeline.stages.choose import Choose
from gateway.pipeline.stages.measure import Measure
from gateway.pipeline.stages.pictures import CheckPictures, PictureTimes, PictureWorks
from gateway.pipeline.stages.record import Record
from gateway.pipeline.watch import Watch
from gateway.policy.breaker import BreakerBoard, State
from gateway.policy.loads import LoadBoard
from gateway.policy.retry import RetryRules
from gateway.policy.strangers import Strangers
from gateway.providers.presets import PRESETS
from gateway.rules import (
    admission_rules,
    breaker_rules,
    budget_rules,
    deadlines,
    idempotency_rules,
    kept_from_start,
    picture_rules,
    room,
    secrets,
    server_limits,
    sharing_rules,
    upstream_limits,
)
from gateway.settings import FileTerms, Settings, SettingsError, build_catalog, build_keys
from gateway.siblings import Siblings
from gateway.storage.idempotency import SqlReplays
from gateway.storage.open import Watchers, open_stores
from gateway.storage.preparing import prepare
from gateway.storage.redis_upkeep import Observer
from gateway.telemetry import LogRecorder, RefusalLog, Telemetry
from gateway.upstream.client import AiohttpUpstream
from gateway.upstream.guarded import GuardedClient
from gateway.wire.hops import networks

BACKLOG = 2048  # connections the kernel holds while the loop is busy: a burst of 1,000 clients fits
# Allocations before a young collection, and young ones before older ones. Python's own (700, 10, 10) would look for
# cycles every few requests, and an exchange leaves none; the exact figures are a choice, not a measurement.
GC_THRESHOLDS = (20_000, 20, 50)
TICK_S = 1.0  # what other workers render, and what the log tells of a flood, lags by no more: scrapes are seconds apart
DETAIL_CHARS = 2_000  # of what a provider said, in the log: enough for any of their messages
TAKE_OVER_S = 5.0  # for journals of dead processes, at the start; a database that answers takes a fraction of it
FAREWELL_S = 2.0  # after the drain: the last frames get 1.5 s, and their sockets a moment
# For each of the steps that close what still runs then. With the farewell, cancelled tasks and the log they take at
# most what the settings keep free between drain_s and exit_s.
FORCE_S = 0.25
BOOKS_S = 3.0  # for the newest rows at the end: the database takes some thousands a second
LOG_S = 2.5  # of `exit_s`: the database 0.6 beside a lock, log and interpreter 0.5 each, the master kills 0.5 early

_CLOCK = Clock(time.monotonic, time.time, random.random)


def _settle_memory() -> None:
    """Take what has been loaded so far out of the collector's sight, and let it look less often.

    Cycles are rare here: nearly everything an exchange makes dies by reference count. With the defaults a collection
    walks the modules, the catalogue and every open stream again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class App:
    """
    One serving process. Make it inside the running loop.

    Args:
        reread: Gives fresh settings for a reload, or raises SettingsError.
        siblings: The way to the other processes of this service.

    Attributes:
        started: Whether it has begun to serve.
    """

    def __init__(
        self,
        settings: Settings,
        reread: Callable[[], Settings],
        telemetry: Telemetry,
        metrics: MetricsRecorder,
        siblings: Siblings,
    ) -> None:
        self.started = False
        self._settings = settings
        self._reread = reread
        self._telemetry = telemetry
        self._metrics = metrics
        self._refusals = RefusalLog(telemetry.log, time.monotonic)
        self._tasks = Tasks(self._report_crash)
        self._stop = asyncio.Event()
        self._running: set[Watch] = set()
        self._board = BreakerBoard(breaker_rules(settings), budget_rules(settings), self._route_changed)
        self._loads = LoadBoard()
        self._drains = Drains(Tasks(self._report_crash))
        self._upstream = AiohttpUpstream(upstream_limits(settings), self._tasks)
        self._fetcher, self._stills = GuardedClient(dns_s=settings.upstream.dns_s), ProcessStills()
        writer = Writer()
        self._stores = open_stores(
            build_keys(settings),
            FileTerms.of(settings),
            database_url=settings.storage.database_url,
            tasks=self._tasks,
            watchers=self._watchers(),
            clock_s=time.monotonic,
            epoch_s=time.time,
            workers=settings.server.workers,
            succeeds=siblings.succeeds,
            redis_url=settings.storage.redis_url,
            sharing=sharing_rules(settings, writer.name),
        )
        self._journal = open_journal(
            settings, self._stores, telemetry, metrics, Tasks(self._report_crash), of=writer,
            bill_interrupted=lambda: self._settings.stream.bill_interrupted,
        )  # fmt: skip
        self._guard, self._answering = open_guards(telemetry, metrics)
        self._exit_by_s: float | None = None
        self._replays = SqlReplays(self._stores.database, idempotency_rules(settings), self._report_crash)
        self._repeater = Repeater(self._replays, self._stores.counters, room(settings), self._replayed)
        door = Door(self._stores.keys, Strangers(time.monotonic), networks(settings.server.trusted_proxies))
        new_request_id = RequestIds().new
        turnstile = Turnstile(time.monotonic)
        self._siblings = siblings
        self._playground = Playground(self._tasks, siblings)
        self._sweeping: asyncio.Task[None] | None = None
        self._janitor = open_janitor(settings, self._stores)
        self._handler = self._make_handler(door, new_request_id, turnstile)
        self._server = GatewayServer(
            self._handler,
            server_limits(settings),
            turnstile,
            on_bad_request=self._refused,
            on_crash=self._crashed,
            new_request_id=new_request_id,
        )

    def _watchers(self) -> Watchers:
        log = self._telemetry.log
        observer = Observer(
            blind=lambda reason: log.warning(events.LIMITS_BLIND, reason=clean(reason)),
            sees=self._sees_again,
            failed=self._metrics.limits_failed,
            displaced=lambda key, new_key: log.error(events.LIMITS_DISPLACED, key=key, new_key=new_key),
        )
        return Watchers(self._storage_changed, self._key_unusable, observer)

    def _make_handler(self, door: Door, new_request_id: Callable[[], str], turnstile: Turnstile) -> GatewayHandler:
        settings, stores = self._settings, self._stores
        desk = open_desk(stores, door, lambda: FileTerms.of(self._settings), lambda: self._settings.models, _now_ms)
        shelf = open_shelf(settings, stores, self._telemetry, self._tasks, redact=self._redact)
        return GatewayHandler(
            self._site(settings),
            door,
            self._hooks(new_request_id),
            turnstile,
            playground=self._playground,
            desk=desk,
            repeater=self._repeater,
            bodies=BodyWatch(shelf.keep, settings.traces.max_body_bytes),
        )

    def _hooks(self, new_request_id: Callable[[], str]) -> Hooks:
        return Hooks(
            new_request_id=new_request_id,
            new_trace_id=new_trace_id,
            on_bad_request=self._refused,
            render_metrics=self._render_metrics,
            metrics_type=METRICS_TYPE,
            stream_opened=self._metrics.stream_opened,
            stream_closed=self._metrics.stream_closed,
            standing=self._stores.counters.standing,
        )

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Serve on *sockets* until `stop`, then drain. Signals are taken over for as long, and ignored from then on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        try:
            await self._prepare_storage()
            await self._stores.counters.start()
            await loop.run_in_executor(None, warm_up)
            warm_up()  # again, for the library keeps 16 MB for each thread: the first cancel would wait 16 ms for them
            _settle_memory()
            self._every_second()
            self._replays.start()
            self._journal.start()
            await self._take_over()
            self._sweeping = self._tasks.spawn(self._janitor.run(), name="retention")
            self._siblings.listen(self._playground.answer)
            servers = [await loop.create_server(self._server, sock=sock, backlog=BACKLOG) for sock in sockets]
            addresses = [":".join(map(str, sock.getsockname()[:2])) for sock in sockets]
            self.started = True
            models = len(self._handler.site.catalog.models)
            self._telemetry.log.info(events.SERVER_STARTED, addresses=addresses, models=models)
            await self._stop.wait()
            await self._drain(servers)
        finally:
            await self._close()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # a late one must not kill what only has to exit

    async def _take_over(self) -> None:
        """
        Have what dead processes left behind in the ledger before anybody is let in (reliability, 5.3): counters of this
        process are loaded from there, and would grant a second time what had been spent. Not for ever: the database
        may be away.
        """
        if self._settings.storage.redis_url:
            return  # counters outlive their processes
        with suppress(TimeoutError):  # calls on budgets wait for the same database, or are refused
            async with asyncio.timeout(TAKE_OVER_S):
                await self._journal.taken_over()

    async def _prepare_storage(self) -> None:
        """Make sure of the tables. Without them keys of the file are served all the same."""
        try:
            await prepare(self._settings.storage.database_url, self._stores.database)
        except StoreUnavailable as exc:
            self._telemetry.log.error(events.STORAGE_UNPREPARED, reason=clean(str(exc)))

    def stop(self) -> None:
        """Begin to drain. Only the first call does anything: a platform may send several signals."""
        if not self._stop.is_set():
            self._exit_by_s = time.monotonic() + self._settings.server.exit_s
        self._stop.set()

    def reload(self) -> None:
        """Read the settings again, unless it is too late; wrong ones change nothing.

        What was fixed at the start keeps its old settings; the line names those that are new.
        """
        if self._stop.is_set():
            return
        log = self._telemetry.log
        try:
            fresh = self._reread()
            keys, site = build_keys(fresh), self._site(fresh)
        except SettingsError as exc:
            log.error(events.SETTINGS_REFUSED, problems=exc.problems)
            return
        except Exception as exc:  # a bug of ours in reading must not end what serves
            log.error(events.INTERNAL_ERROR, exc_info=exc)
            return
        old, self._settings = self._settings, fresh
        self._stores.keys.replace(keys, FileTerms.of(fresh))
        self._handler.site = site
        self._upstream.forget()
        self._server.limits = replace(self._server.limits, write_stall_s=fresh.stream.write_stall_s)
        routes = {route.id for model in site.catalog.models.values() for route in model.routes}
        self._board.keep(routes)
        self._loads.keep(routes)
        kept = kept_from_start(old, fresh)
        log.info(events.SETTINGS_RELOADED, models=len(site.catalog.models), restart_needed_for=kept)

    async def _drain(self, servers: list[asyncio.Server]) -> None:
        """
        Close the door, let streams go on, then cut what is left with the documented frame.

        For `accept_s` the door stays ajar: the router in front may not have noticed, so newcomers get a 503 that they
        may retry elsewhere instead of a refused connection.
        """
        loop, times = asyncio.get_running_loop(), self._settings.server
        end_s = loop.time() + times.drain_s
        self._handler.draining = True
        self._telemetry.log.info(events.SERVER_DRAINING, active=self._handler.active + len(self._drains))
        await asyncio.sleep(min(times.accept_s, times.drain_s))
        for server in servers:
            server.close()
        self._handler.refuse_uploads()
        self._server.pre_shutdown()
        is_idle = await self._idle(end_s - loop.time())
        await self._drains.close(end_s - loop.time())
        if not is_idle:
            for watch in tuple(self._running):
                watch.interrupt(SHUTDOWN)
            await self._idle(FAREWELL_S)

    async def _idle(self, timeout_s: float) -> bool:
        """Whether every request had ended within *timeout_s*."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._handler.idle()
        except TimeoutError:
            return False
        return True

    async def _close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()  # it would sleep on; what it deletes at the moment is deleted
        self._siblings.close()
        await self._server.shutdown(FORCE_S)
        await self._replays.close(FORCE_S)
        await self._stores.counters.close()
        # Those that may hang for longer come last.
        for close in (self._fetcher.close, self._upstream.close):
            with suppress(TimeoutError):  # a peer that does not answer to being closed: the process's end closes it
                async with asyncio.timeout(FORCE_S):
                    await close()
        await self._tasks.drain(FORCE_S)
        await self._journal.close(self._time_for_the_books())
        await self._stores.database.close()
        self._refusals.flush()
        self._metrics.pour()
        self._telemetry.log.info(events.SERVER_STOPPED)

    def _time_for_the_books(self) -> float:
        """Seconds for what the database does not have yet. What it does not take in them waits for another process."""
        if self._exit_by_s is None:
            return BOOKS_S
        return min(BOOKS_S, max(FORCE_S, self._exit_by_s - time.monotonic() - LOG_S))

    def _site(self, settings: Settings) -> Site:
        catalog = build_catalog(settings, PRESETS)
        services = self._services(settings, catalog)
        # Order: what a call may cost has to be known for its admission, so its model comes before, and what is wrong
        # with it is told behind: a flood of misspelt models, or of denied tools, is limited too. Pictures come last:
        # what is done with them depends on the model and its routes, and may be much.
        times = PictureTimes.within(settings.stream.commit_after_s, fetch_s=settings.vision.fetch_s)
        works = PictureWorks(self._fetcher, self._stills, picture_rules(settings), times)
        record, rules = Record(self._journal, services.tariff, _CLOCK), admission_rules(settings, catalog)
        admit = Admit(self._stores.counters, _CLOCK, rules, self._metrics.decided, record.begin)
        # Guards stand behind limits, which bound their work too, and in front of those who copy what they change.
        guard = self._guard.advised(moderation_of(settings, self._upstream))
        stages = (Choose(catalog), Measure(), admit, Refuse(), Abide(), guard, CheckPictures(works), record)
        return Site(
            catalog=catalog,
            pipeline=Pipeline(stages, services, self._running),
            services=services,
            small_body_bytes=settings.server.max_body_bytes,
            large_body_bytes=settings.server.max_image_body_bytes,
            body_s=settings.server.body_s,
            secrets=tuple(secrets(catalog, settings)),
        )

    def _services(self, settings: Settings, catalog: Catalog) -> Services:
        stream, region = settings.stream, settings.server.region
        constant = constant_headers(region)
        return Services(
            upstream=self._upstream,
            ledgers=(self._journal, LogRecorder(self._telemetry), self._metrics, self._repeater),
            board=self._board,
            retry=RetryRules(settings.upstream.retry_base_s, settings.upstream.retry_wait_max_s),
            deadlines=deadlines(settings),
            lanes=LaneRules(stream.max_event_bytes, stream.sniff_bytes, stream.metadata_frame, region),
            tariff=Tariff(catalog.modes, stream.bill_interrupted, region),
            clock=_CLOCK,
            report_failure=self._report_failure,
            headers=lambda exchange, receipt: success_headers(exchange, receipt, constant),
            observe_gap=self._metrics.observe_gap,
            loads=self._loads,
            drains=self._drains,
            answering=self._answering,
        )

    def _redact(self, text: str) -> str:
        """*text* as it may be kept."""
        return redact(text, self._handler.site.secrets)

    def _storage_changed(self, outage: StoreUnavailable | None) -> None:
        if outage is None:
            self._telemetry.log.info(events.STORAGE_FOUND)
        else:
            self._telemetry.log.error(events.STORAGE_LOST, reason=clean(str(outage)))

    def _sees_again(self, blind_s: float) -> None:
        self._metrics.limits_blind(blind_s)
        self._telemetry.log.info(events.LIMITS_SHARED, blind_s=round(blind_s, 3))

    def _key_unusable(self, key_id: str, reason: str) -> None:
        self._telemetry.log.error(events.KEY_UNUSABLE, key_id=key_id, reason=clean(reason))

    def _route_changed(self, route_id: str, state: State) -> None:
        if state == "open":
            self._telemetry.log.warning(events.ROUTE_OPENED, route=route_id)
        else:
            self._telemetry.log.info(events.ROUTE_CLOSED, route=route_id)

    async def _render_metrics(self) -> bytes:
        self._metrics.pour()
        return await asyncio.get_running_loop().run_in_executor(None, self._metrics.render)

    def _every_second(self) -> None:
        """Bring out what is only counted: values for other workers' renderings, and lines that a flood suppressed."""
        # First: what fails once, such as a file of metrics on a full disk, must not be the last that is done.
        asyncio.get_running_loop().call_later(TICK_S, self._every_second)
        self._cut_revoked()
        self._metrics.ledger_stands(self._journal.backlog, self._journal.lag_s)
        self._metrics.pour()
        self._refusals.flush()
        self._telemetry.flush_libraries()

    def _cut_revoked(self) -> None:
        """End what runs for keys that were revoked with `--now`; those of the others are read again meanwhile."""
        revoked = self._stores.keys.cut({watch.key_id for watch in self._running})
        if revoked:
            for watch in tuple(self._running):
                if watch.key_id in revoked:
                    watch.interrupt(KEY_CUT)

    def _replayed(self, request_id: str, key: Key) -> None:
        self._telemetry.log.info(events.REQUEST_REPLAYED, request_id=request_id, tenant=key.tenant, key_id=key.id)

    def _refused(self, reason: str, status: int, request_id: str, address: str | None = None) -> None:
        said = {} if address is None else {"address": address}
        self._refusals.write(reason, status=status, request_id=request_id, **said)

    def _crashed(self, request_id: str, exc: BaseException) -> None:
        self._telemetry.log.error(events.INTERNAL_ERROR, request_id=request_id, exc_info=exc)

    def _report_crash(self, task: str, exc: BaseException) -> None:
        self._telemetry.log.error(events.INTERNAL_ERROR, task=task, exc_info=exc)

    def _report_failure(self, exchange: Exchange, route: Route, failure: Failure) -> None:
        """The one place that sees what a provider said; credentials are taken out of it before it is cut to size."""
        provider = route.provider
        detail = redact(failure.detail, self._handler.site.secrets)[:DETAIL_CHARS]
        if exchange.key.rules != NO_RULES:  # providers quote what they were sent, and guards let nobody tell of that
            detail = ""
        self._telemetry.log.warning(
            events.PROVIDER_FAILED,
            request_id=exchange.request_id,
            provider=provider.name,
            provider_model=route.model,
            reason=failure.reason,
            failure_class=failure.failure_class,
            detail=detail,
        )
        if failure.reason == "credential":
            self._metrics.credential_refused(provider.name)
            self._telemetry.log.error(events.PROVIDER_CREDENTIAL_REFUSED, provider=provider.name)
