"""The commands that look at what is kept, as a user types them, on both kinds of database."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.reading import trace_line
from gateway.storage.database import Database
from tests.support.booked import DAY_MS, NOON_MS, Row, book, charge, cost, request_id, trace
from tests.support.gateway import free_port

ROOT = Path(__file__).resolve().parents[2]


def environ(url: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "GATEWAY_STORAGE_DATABASE_URL": url}


async def run(url: str, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Exit code, output and complaints of a command."""
    command = (sys.executable, "-W", "error", "-m", "gateway", *arguments)
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=environ(url), **pipes)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def fill(database: Database, **rows: list[Row]) -> None:
    async with database.engine.begin() as connection:
        await book(connection, **rows)


async def test_usage(tabled: Database, url: str, tmp_path: Path) -> None:
    """Sums in columns, as a table for spreadsheets and as JSON; filters and time as in the admin API."""
    rows = [
        charge(tenant="acme", model="=gpt", admitted_ms=NOON_MS),
        charge(tenant="acme", model="b", admitted_ms=NOON_MS - DAY_MS, cost_nano_usd=1),
        charge(tenant="umbrella", admitted_ms=NOON_MS - 400 * DAY_MS),
    ]
    await fill(tabled, ledger_rows=[*rows, cost(rows[0])])
    since = ("--since", "2020-01-01")

    plain = await run(url, "usage", "--by", "tenant,model", *since, cwd=tmp_path)
    table = await run(url, "usage", "--by", "model", *since, "--tenant", "acme", "--csv", cwd=tmp_path)
    lines = await run(url, "usage", *since, "--until", "2026-03-01", "--json", cwd=tmp_path)

    assert [line.split()[:3] for line in plain[1].splitlines()] == [
        ["tenant", "model", "requests"], ["acme", "=gpt", "1"], ["acme", "b", "1"], ["umbrella", "gpt-4o", "1"],
        ["total", "3", "33"],
    ]  # fmt: skip
    assert [row["model"] for row in csv.DictReader(io.StringIO(table[1]))] == ["'=gpt", "b"]
    told = [json.loads(line) for line in lines[1].splitlines()]
    assert [group.get("day") for group in told] == ["2025-01-25", "2026-02-28", None]
    assert told[-1]["total"]["cost_usd"] == "0.000097501"
    assert {done[0] for done in (plain, table, lines)} == {0}
    assert {done[2] for done in (plain, table, lines)} == {""}


async def test_usage_of_nobody(tabled: Database, url: str, tmp_path: Path) -> None:
    """A tenant or key that the database has never heard of is told of; of one that used nothing sums are 0."""
    await fill(tabled, ledger_rows=[charge(tenant="acme", key_id="key_1", admitted_ms=NOON_MS)])

    nobody = [
        await run(url, "usage", option, "nope", cwd=tmp_path) for option in ("--tenant", "--key")
    ]  # fmt: skip
    nothing = await run(url, "usage", "--tenant", "acme", "--key", "key_1", "--until", "2020-01-01", cwd=tmp_path)

    assert nobody == [
        (1, "", f"There is no {kind} nope in the database, and no call of one.\n") for kind in ("tenant", "key")
    ]  # fmt: skip
    assert (nothing[0], nothing[1].splitlines()[-1].split()[:2], nothing[2]) == (0, ["total", "0"], "")


async def test_the_newest_traces(tabled: Database, url: str, tmp_path: Path) -> None:
    """`traces tail` prints the newest, the newest last, whatever callers have put into them, on one line each."""
    rows = [charge(request_id=request_id(n), admitted_ms=NOON_MS + n) for n in range(5)]
    wild = {"session_id": "a\x1b[31m\nb", "user": "\u202eo'bri\u2066en"}
    await fill(tabled, trace_rows=[trace(row, **(wild if row is rows[4] else {})) for row in rows])

    code, out, _ = await run(url, "traces", "tail", "-n", "2", "--tenant", "acme", "--status", "200", cwd=tmp_path)
    _, told, _ = await run(url, "traces", "tail", "-n", "1", "--json", cwd=tmp_path)
    none = await run(url, "traces", "tail", "--outcome", "failed", cwd=tmp_path)

    lines = out.splitlines()
    assert (code, len(lines)) == (0, 2)
    assert lines[0].startswith(
        "2026-03-01T12:00:00.003Z 200 completed streaming gpt-4o openai/gpt-4o-2024 11+7 0.0000975 "
    )
    assert lines[1].endswith(f"{request_id(4)} session_id=a[31mb user=o'brien")
    assert json.loads(told)["request_id"] == request_id(4)
    assert none == (0, "", "")


@asynccontextmanager
async def following(url: str, cwd: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "gateway", "traces", "tail", "-f", "--json", *arguments)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=environ(url), stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return json.loads(await process.stdout.readline())


def test_an_unknown_span() -> None:
    """The line of a call whose process was killed has a dash where the span would be."""
    told = trace_line({**trace(), "total_us": None})

    assert told.split(" ")[8] == "-"


def come(number: int, **changes: Any) -> Row:
    """A trace that is recorded now."""
    return trace(charge(request_id=request_id(number)), recorded_ms=time.time_ns() // 1_000_000, **changes)


async def test_following(tabled: Database, url: str, tmp_path: Path) -> None:
    """`-f` goes on with what comes, each once, also what began before others that were shown, and ends on Ctrl-C."""
    await fill(tabled, trace_rows=[come(1)])

    async with following(url, tmp_path, "--tenant", "acme") as process:
        shown = [await line_of(process)]
        for number, changes in ((2, {}), (3, {"started_ms": 1}), (4, {"tenant": "umbrella"}), (5, {})):
            await fill(tabled, trace_rows=[come(number, **changes)])
            if number != 4:
                shown.append(await line_of(process))
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            rest, complaints = await process.communicate()

    assert [row["request_id"] for row in shown] == [request_id(number) for number in (1, 2, 3, 5)]
    assert (rest, complaints, process.returncode) == (b"", b"", 130)


async def test_following_what_has_just_come(tabled: Database, url: str, tmp_path: Path) -> None:
    """Of calls that came moments before, `-f -n 1` shows the newest alone, and goes on with what follows."""
    for number in range(1, 4):
        await fill(tabled, trace_rows=[come(number, started_ms=NOON_MS + number)])

    async with following(url, tmp_path, "-n", "1") as process:
        shown = [await line_of(process)]
        await fill(tabled, trace_rows=[come(4)])
        shown.append(await line_of(process))

    assert [row["request_id"] for row in shown] == [request_id(3), request_id(4)]


EXPORT = """id,prompt_tokens,completion_tokens,cost_usd
chatcmpl-1,11,7,0.0000975
chatcmpl-2,11,8,0.0000975
chatcmpl-9,1,1,0.1
"""


async def test_reconcile_by_id(tabled: Database, url: str, tmp_path: Path) -> None:
    """Answer by answer: what differs, what only one side has between the first and the last, and exit code 1."""
    rows = [charge(request_id=request_id(n), admitted_ms=NOON_MS + n) for n in range(1, 6)]
    failed = cost(rows[1], 1, provider="azure", completion_tokens=0, cost_nano_usd=5)
    free = cost(rows[0], 2, prompt_tokens=0, completion_tokens=0, cost_nano_usd=0, basis="none")
    # The second is asked for by our own id, the third stands between them, the fourth is later than all.
    (tmp_path / "export.csv").write_text(EXPORT.replace("chatcmpl-2", request_id(3)))
    (tmp_path / "fine.csv").write_text("id,cost_usd\nchatcmpl-1,0.0000975\nchatcmpl-2,0.0000975\n")
    (tmp_path / "one.csv").write_text("id,completion_tokens\nchatcmpl-1,8\n")
    await fill(
        tabled,
        ledger_rows=[*rows, *(cost(row) for row in rows), failed, free],
        trace_rows=[trace(row, response_id=f"chatcmpl-{n}") for n, row in enumerate(rows, 1)],
    )

    code, out, _ = await run(url, "ledger", "reconcile", "export.csv", cwd=tmp_path)
    fine = await run(url, "ledger", "reconcile", "fine.csv", "--provider", "openai", "--json", cwd=tmp_path)
    nobody = await run(url, "ledger", "reconcile", "fine.csv", "--provider", "nope", cwd=tmp_path)
    one = await run(url, "ledger", "reconcile", "one.csv", cwd=tmp_path)

    assert code == 1
    assert out.splitlines() == [
        "chatcmpl-9: only theirs, prompt_tokens 1, completion_tokens 1, cost_usd 0.100000",
        f"{request_id(2)}: only ours, prompt_tokens 22, completion_tokens 7, cost_usd 0.000097505",
        f"{request_id(3)}: completion_tokens ours 7, theirs 8",
        "ours: requests 4, prompt_tokens 44, completion_tokens 21, cached_tokens 0, cache_write_tokens 0, "
        "cost_usd 0.000292505",
        "theirs: prompt_tokens 23, completion_tokens 16, cost_usd 0.100195",
        "4 places. They differ in 7 amounts.",
    ]
    assert (fine[0], json.loads(fine[1])["differences"]) == (0, 0)
    assert (nobody[0], nobody[1]) == (2, "")
    assert nobody[2].endswith("the ledger has no costs of a provider nope; it has: azure, openai\n")
    assert (one[0], one[1].splitlines()[-1]) == (1, "1 place. They differ in 1 amount.")


async def test_reconcile_by_day(tabled: Database, url: str, tmp_path: Path) -> None:
    """Day by day and model by model, against a vendor's pages; what is not of their days does not count."""
    rows = [charge(admitted_ms=NOON_MS - DAY_MS * n, provider_model="gpt-4o") for n in range(3)]
    estimated = cost(rows[1], 1, basis="estimated", prompt_tokens=2, completion_tokens=0, cost_nano_usd=3)
    await fill(tabled, ledger_rows=[*rows, *(cost(row) for row in rows), estimated])
    buckets = [
        {
            "object": "bucket", "start_time": NOON_MS // 1000 - 43_200 - 86_400 * n, "end_time": 0,
            "results": [
                {"input_tokens": 11, "output_tokens": 7, "num_model_requests": 1, "model": "gpt-4o-2024-08-06"},
                *([{"input_tokens": 1, "output_tokens": 1, "num_model_requests": 1, "model": "o3"}] if n else []),
            ],
        }
        for n in range(2)
    ]  # fmt: skip
    (tmp_path / "usage.json").write_text(json.dumps({"object": "page", "data": buckets}))

    code, out, _ = await run(url, "ledger", "reconcile", "usage.json", "--alias", "o3=o-three", cwd=tmp_path)

    assert code == 1
    assert out.splitlines()[:3] == [
        "2026-02-28 gpt-4o: requests ours 2, theirs 1 (1 request not by their count)",
        "2026-02-28 gpt-4o: prompt_tokens ours 13, theirs 11 (1 request not by their count)",
        "2026-02-28 o-three: only theirs, requests 1, prompt_tokens 1, completion_tokens 1, cached_tokens 0",
    ]
    assert out.splitlines()[-1] == "3 places. They differ in 6 amounts."


async def test_what_cannot_be_read(tmp_path: Path) -> None:
    """A database that is not there, an export that is none and options that make no sense are told in a line."""
    nowhere = f"postgres://gateway:secret-zq7@127.0.0.1:{free_port()}/gateway"
    (tmp_path / "bad.csv").write_text("id,colour\na,red\n")

    out = await run(nowhere, "usage", cwd=tmp_path)
    missing = await run("sqlite:///none.db", "usage", cwd=tmp_path)
    bad = await run(nowhere, "ledger", "reconcile", "bad.csv", cwd=tmp_path)
    odd = [
        await run(nowhere, *arguments, cwd=tmp_path)
        for arguments in (
            ("usage", "--by", "colour"), ("usage", "--since", "soon"), ("traces", "erase", "acme"),
            ("usage", "--since", "2026-03-01", "--until", "2026-03-01"),
            ("ledger", "reconcile", "bad.csv", "--alias", "x"),
        )
    ]  # fmt: skip

    assert (out[0], out[1], len(out[2].splitlines())) == (1, "", 1)
    assert out[2].startswith("The database cannot be read: ConnectionRefusedError")
    assert "secret-zq7" not in out[2]
    assert (missing[0], missing[2][:28]) == (1, "There is no database yet: no")
    assert not (tmp_path / "none.db").exists()
    assert bad[2] == (
        "bad.csv cannot be read. Row 1: the column 'colour' is none of cache_write_tokens, cached_tokens, "
        "completion_tokens, cost_usd, day, id, model, prompt_tokens, requests.\n"
    )
    assert [done[0] for done in (bad, *odd)] == [2] * 6
    assert "say --yes" in odd[2][2]
    assert "is not before --until" in odd[3][2]


async def test_no_tables(url: str, tmp_path: Path) -> None:
    """A database without tables is told of in a line as well."""
    if url.startswith("sqlite"):
        (tmp_path / "gateway.db").touch()

    code, out, complaints = await run(url, "traces", "tail", cwd=tmp_path)

    assert (code, out, len(complaints.splitlines())) == (1, "", 1)
    assert complaints.startswith("The database cannot be read: ")
    assert "traces" in complaints


@pytest.mark.parametrize("name", ["usage", "traces", "ledger"])
async def test_help(name: str, tmp_path: Path) -> None:
    """Each command says what it is for."""
    code, out, _ = await run("sqlite:///none.db", name, "--help", cwd=tmp_path)

    assert code == 0
    assert f"gateway {name}" in out
