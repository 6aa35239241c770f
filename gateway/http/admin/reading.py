"""Usage, traces, sessions and receipts: questions to the books, and their answers as JSON or CSV."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from gateway.core.entries import CHARGED
from gateway.core.errors import INVALID_REQUEST, NOT_FOUND, GatewayError
from gateway.core.reading import Books, Row, SessionsAsked, TracesAsked, UsageAsked, UsageReport
from gateway.core.views import entry_view, group_view, receipt_view, session_view, trace_view, usage_sheet
from gateway.http.admin.asking import (
    SESSIONS_TAKE,
    TRACES_TAKE,
    USAGE_TAKES,
    dimensions_of,
    min_cost_of,
    span_of,
    trace_filters,
    usage_filters,
    usage_span,
)
from gateway.http.admin.pages import DEFAULT_ROWS, Mark
from gateway.http.admin.routes import ABSENT, AdminRequest, AdminRoute, Reply, json_reply
from gateway.wire.moments import MAX_MS, moment_text
from gateway.wire.sheets import sheet

MAX_GROUPS = 10_000  # of a sheet, which has no pages: some 2 MB, made in 50 ms
_SHEET = (("Content-Disposition", 'attachment; filename="usage.csv"'),)


class ReadingDesk:
    """The handlers, over what is kept of calls."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def routes(self) -> tuple[AdminRoute, ...]:
        """The rows of the admin API's table."""
        sheet_takes = USAGE_TAKES - {"format"}
        return (
            AdminRoute("GET", "usage", "read", self.usage, USAGE_TAKES, paged=True),
            AdminRoute("GET", "usage.csv", "read", self.usage_csv, sheet_takes),
            AdminRoute("GET", "traces", "read", self.traces, TRACES_TAKE, paged=True),
            AdminRoute("GET", "traces/{id:request}", "read", self.trace),
            AdminRoute("GET", "sessions", "read", self.sessions, SESSIONS_TAKE, paged=True),
            AdminRoute("GET", "sessions/{id:text}", "read", self.session, TRACES_TAKE - {"session"}, paged=True),
            AdminRoute("GET", "receipts/{id:request}", "read", self.receipt, open_to_inference=True),
        )

    async def usage(self, asked: AdminRequest) -> Reply:
        """Groups with their sums, a page of them, and the sums of all."""
        if is_sheet(asked):
            return await self.usage_csv(asked)
        by = dimensions_of(asked.query)
        mark = asked.page.mark_of(int, int, *(str for _ in by))
        question = _usage_asked(asked, mark)
        if mark is not None and "day" in by:
            _check_day(mark[2 + by.index("day")])
        report = await self._books.usage(question)
        span = (question.since_ms, question.until_ms)
        entry = {
            "by": by,
            "since": moment_text(span[0]),
            "until": None if span[1] == MAX_MS else moment_text(span[1]),
            "total": report.total.told(),
        }
        last: Mark = (*span, *(value or "" for value in report.groups[-1].values)) if report.has_more else ()
        groups = [group_view(by, group) for group in report.groups]
        return Reply(asked.page.render(groups, entry, next_mark=last or None))

    async def usage_csv(self, asked: AdminRequest) -> Reply:
        """All groups as a table."""
        question = _usage_asked(asked, None, limit=MAX_GROUPS)
        report = await self._books.usage(question)
        if report.has_more:
            words = f"by: these are more than {MAX_GROUPS} groups; ask for a shorter time, or take JSON page by page."
            raise GatewayError(INVALID_REQUEST, words, param="by")
        return Reply(_table(question, report), content_type="text/csv; charset=utf-8", headers=_SHEET)

    async def traces(self, asked: AdminRequest) -> Reply:
        """Traces, newest first."""
        return _traces_page(asked, await self._books.traces(_traces_asked(asked)), {})

    async def trace(self, asked: AdminRequest) -> Reply:
        """A trace, what the ledger has on it, and the bodies where they are kept."""
        found = await self._books.trace(asked.tenant, asked.params["id"])
        if found is None:
            raise GatewayError(NOT_FOUND, ABSENT["traces"])
        kept = found.bodies
        bodies = None if kept is None else {"request": kept["request"], "response": kept["response"]}
        entries = [entry_view(row) for row in _shown(asked, found.ledger)]
        return json_reply({**trace_view(found.trace), "ledger": entries, "bodies": bodies})

    async def sessions(self, asked: AdminRequest) -> Reply:
        """Sessions, the one used last first."""
        page = asked.page
        since_ms, until_ms = span_of(asked.query, asked.now_ms)
        mark = page.mark_of(int, str, str)
        after = None if mark is None else (int(mark[0]), str(mark[1]), str(mark[2]))
        agent = asked.query.get("agent")
        question = SessionsAsked(asked.tenant, since_ms, until_ms, agent, after=after, limit=page.limit)
        rows = await self._books.sessions(question)
        shown = rows[: page.limit]
        last = shown[-1] if len(rows) > page.limit else None
        next_mark = (last["last_ms"], last["tenant"], last["session_id"]) if last is not None else None
        return Reply(page.render([session_view(row) for row in shown], next_mark=next_mark))

    async def session(self, asked: AdminRequest) -> Reply:
        """A session with its totals, and its traces, newest first."""
        if asked.tenant is None:
            words = "tenant: say whose it is; clients name their sessions, and two tenants may have the same name."
            raise GatewayError(INVALID_REQUEST, words, param="tenant")
        found = await self._books.session(asked.params["id"], _traces_asked(asked))
        if found is None:
            raise GatewayError(NOT_FOUND, ABSENT["sessions"])
        return _traces_page(asked, found.traces, {"session": session_view(found.session)})

    async def receipt(self, asked: AdminRequest) -> Reply:
        """What a request costs its caller; to an inference key only what it called itself."""
        key, request_id = asked.key, asked.params["id"]
        own = key.id if "inference" in key.rights else None
        rows = _shown(asked, await self._books.receipt(asked.tenant, request_id, own))
        if not rows:
            raise GatewayError(NOT_FOUND, ABSENT["receipts"])
        return json_reply(receipt_view(request_id, rows))


def is_sheet(asked: AdminRequest) -> bool:
    """Whether a table is asked for, all of it at once. Raises GatewayError."""
    wanted, page = asked.query.get("format", "json"), asked.page
    if wanted not in ("json", "csv"):
        raise GatewayError(INVALID_REQUEST, "format: this is neither json nor csv.", param="format")
    if wanted == "csv" and (page.after is not None or page.limit != DEFAULT_ROWS):
        words = "format: a table has all groups; leave limit and cursor out."
        raise GatewayError(INVALID_REQUEST, words, param="format")
    return wanted == "csv"


def _usage_asked(asked: AdminRequest, mark: Mark | None, limit: int | None = None) -> UsageAsked:
    """The question; further pages have the time of the first, which may have ended now."""
    by = dimensions_of(asked.query)
    since_ms, until_ms = usage_span(asked.query, asked.now_ms) if mark is None else (int(mark[0]), int(mark[1]))
    after = None if mark is None else tuple(map(str, mark[2:]))
    filters = usage_filters(asked.query)
    return UsageAsked(asked.tenant, by, since_ms, until_ms, filters, after=after, limit=limit or asked.page.limit)


def _check_day(text: int | str) -> None:
    try:
        date.fromisoformat(str(text))
    except ValueError:
        raise GatewayError(INVALID_REQUEST, "cursor is not one that this listing gave.", param="cursor") from None


def _table(asked: UsageAsked, report: UsageReport) -> bytes:
    return sheet(*usage_sheet(asked.by, report.groups)).encode()


def _traces_asked(asked: AdminRequest) -> TracesAsked:
    since_ms, until_ms = span_of(asked.query, asked.now_ms)
    mark = asked.page.mark_of(int, str)
    return TracesAsked(
        asked.tenant,
        since_ms,
        until_ms,
        trace_filters(asked.query),
        min_cost_of(asked.query),
        after=None if mark is None else (int(mark[0]), str(mark[1])),
        limit=asked.page.limit,
    )


def _traces_page(asked: AdminRequest, rows: Sequence[Row], entry: dict[str, object]) -> Reply:
    shown = rows[: asked.page.limit]
    last = shown[-1] if len(rows) > asked.page.limit else None
    next_mark = (last["started_ms"], last["request_id"]) if last is not None else None
    return Reply(asked.page.render([trace_view(row) for row in shown], entry, next_mark=next_mark))


def _shown(asked: AdminRequest, rows: Sequence[Row]) -> list[Row]:
    """What providers take from the house is for its operators."""
    return [row for row in rows if asked.is_operator or row["kind"] in CHARGED]
