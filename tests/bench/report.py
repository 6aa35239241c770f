"""Records become Markdown: a row per figure, a column per candidate, the goal and whether it is met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from . import scenarios
from .candidates import BASE, DIRECT, OURS
from .runner import Record, percentile

FIRST_BYTE_GOAL_MS = 1.3
IDLE_STREAM_GOAL_KB = 45.0
CANCEL_GOAL_MS = (3.0, 20.0, 50.0)  # p50, p99, max, as the provider sees it; and none left open

BUSY_SHARE = 0.02  # an idle machine shows 0.001 to 0.005

_LATENCIES = (
    ("json_p50_ms", "added latency of a JSON request at 200/s, p50 (ms)", None),
    ("json_p99_ms", "the same, p99 (ms)", None),
    ("first_p50_ms", "added time to the first content frame, p50 (ms)", FIRST_BYTE_GOAL_MS),
    ("delay_p50_ms", "added delay of a frame at 200/s, p50 (ms)", None),
    ("delay_p99_ms", "the same, p99 (ms)", None),
)


class Report:
    """Looks at the records of one run."""

    def __init__(self, records: Sequence[Record], names: Sequence[str]) -> None:
        self._records = records
        self._names = [name for name in names if any(record["candidate"] == name for record in records)]

    def markdown(self) -> str:
        """All tables there are records for, then what went wrong."""
        rows = [*self._cpu_rows(), *self._latency_rows(), *self._memory_rows(), *self._cancel_rows()]
        header = ["figure", *self._names, f"{OURS} / {BASE}", "goal", "met"]
        parts = [_table(header, rows)]
        if any(record["kind"] == "cancel" and record["candidate"] == OURS for record in self._records):
            parts.append(self._cancel_detail())
        parts += [self._busy(), self._trouble()]
        return "\n\n".join(part for part in parts if part)

    def _of(self, kind: str, name: str, candidate: str) -> list[Record]:
        wanted = (kind, name, candidate)
        return [one for one in self._records if (one["kind"], one["name"], one["candidate"]) == wanted]

    def _values(self, kind: str, name: str, candidate: str, key: str) -> dict[int, float]:
        """A figure by round, unusable rounds left out."""
        found = {one["round"]: one[key] for one in self._of(kind, name, candidate)}
        return {round_: value for round_, value in found.items() if value is not None and value == value}

    def _row(self, title: str, cells: Sequence[str], ratio: str, goal: str, met: bool | None) -> list[str]:
        verdict = {True: "met", False: "**not met**", None: "-"}[met]
        return [title, *cells, ratio, goal, verdict]

    def _cpu_rows(self) -> Iterable[list[str]]:
        for work in scenarios.WORKS:
            by_name = {name: self._values("cpu", work.name, name, "cpu_us") for name in self._names}
            if not any(by_name.values()):
                continue
            cells = [f"{median(v.values()):.1f} / {min(v.values()):.1f}" if v else "-" for v in by_name.values()]
            base, ours = by_name.get(BASE, {}), by_name.get(OURS, {})
            pairs = [ours[round_] / base[round_] for round_ in ours if base.get(round_)]
            ratio, goal = median(pairs) if pairs else None, work.goal_ratio
            yield self._row(
                f"CPU µs per {work.title}: median / best",
                cells,
                f"x{ratio:.2f}" if ratio else "-",
                f"<= x{goal}" if goal else "-",
                ratio <= goal if ratio and goal else None,
            )

    def _latency_rows(self) -> Iterable[list[str]]:
        for key, title, goal in _LATENCIES:
            direct = self._values("latency", "added", DIRECT, key)
            if not direct:
                return
            cells, ours = [], None
            for name in self._names:
                values = self._values("latency", "added", name, key)
                added = [values[round_] - direct[round_] for round_ in values if round_ in direct]
                if name == DIRECT:
                    cells.append(f"{median(direct.values()):.2f} in all")
                    continue
                cells.append(f"+{median(added):.2f}" if added else "-")
                ours = median(added) if added and name == OURS else ours
            met = ours <= goal if ours is not None and goal else None
            yield self._row(title, cells, "-", f"<= {goal}" if goal else "-", met)

    def _memory_rows(self) -> Iterable[list[str]]:
        sizes = sorted({int(one["name"]) for one in self._records if one["kind"] == "memory"})
        for size in sizes:
            cells, ours = [], None
            for name in self._names:
                records = self._of("memory", str(size), name)
                kept = records[0] if records else None
                if kept is None or kept["kb_per_stream"] is None:
                    cells.append("-")
                    continue
                lost = f", {kept['failed']} lost" if kept["failed"] else ""
                cells.append(f"{kept['kb_per_stream']:.1f} (at rest {kept['rest_mb']:.0f} MB{lost})")
                if name == OURS:
                    ours = kept["kb_per_stream"] <= IDLE_STREAM_GOAL_KB and not kept["failed"]
            title = f"KB per silent stream, {size:,} open"
            yield self._row(title, cells, "-", f"<= {IDLE_STREAM_GOAL_KB:.0f}, none lost", ours)

    def _cancel_rows(self) -> Iterable[list[str]]:
        p50, p99, worst = CANCEL_GOAL_MS
        for column in scenarios.COLUMNS:
            cells, ours = [], None
            for name in self._names:
                records = self._of("cancel", column.name, name)
                if not records:
                    cells.append("-")
                    continue
                pooled = [us for one in records for values in one["us"].values() for us in values]
                left = sum(one["left_open"] for one in records)
                cells.append(_triple(pooled) + (f", **{left} left open**" if left else ""))
                if name == OURS:
                    ours = not left and _within(pooled)
            if cells.count("-") < len(cells):
                title = f"cancel, {column.title}: p50 / p99 / max (ms)"
                yield self._row(title, cells, "-", f"<= {p50:.0f} / {p99:.0f} / {worst:.0f}, none left open", ours)

    def _cancel_detail(self) -> str:
        kinds = ("openai fin", "openai rst", "anthropic fin", "anthropic rst")
        rows = []
        for column in scenarios.COLUMNS:
            records = self._of("cancel", column.name, OURS)
            pooled = {kind: [us for one in records for us in one["us"][kind]] for kind in kinds}
            rows.append([column.title, *(f"{_triple(pooled[kind])} (n={len(pooled[kind])})" for kind in kinds)])
        return f"Cancel of the {OURS} by endpoint and kind of close, ms:\n\n" + _table(["state", *kinds], rows)

    def _busy(self) -> str:
        """Closed loops wait for themselves where a program has threads; quiet loads should not wait at all."""
        shares = [one["waited"] for one in self._records if one["kind"] == "latency" and one["candidate"] != DIRECT]
        shares += [one["waited"] for one in self._records if one["name"].startswith("paced")]
        if not shares or median(shares) <= BUSY_SHARE:
            return ""
        return (
            f"**The machine was busy**: programs under test waited for their core {median(shares):.0%} of the time. "
            "Latencies and cancels are longer and CPU is higher than on an idle machine; ratios within the run hold."
        )

    def _trouble(self) -> str:
        lines = [
            f"- {one['candidate']}, {one['kind']} {one['name']}, round {one['round']}: {one[key]} {key}"
            for one in self._records
            for key in ("failed", "left_open", "not_sent")
            if one.get(key)
        ]
        return "\n".join(["What went wrong:", "", *lines]) if lines else ""


def _within(us: Sequence[int]) -> bool:
    limits = CANCEL_GOAL_MS
    seen = (percentile(us, 0.5), percentile(us, 0.99), max(us, default=0))
    return bool(us) and all(value / 1000 <= limit for value, limit in zip(seen, limits, strict=True))


def _triple(us: Sequence[int]) -> str:
    if not us:
        return "-"
    return " / ".join(map(_ms, (percentile(us, 0.5), percentile(us, 0.99), max(us))))


def _ms(us: float) -> str:
    """Milliseconds with two digits that mean something."""
    return f"{us / 1000:.2g}" if us < 10_000 else f"{us / 1000:.0f}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
