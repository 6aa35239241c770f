"""The scalar sections: every setting of them can also come from the environment.

Lower bounds of times are small so that tests can run the real thing fast; the defaults are the documented promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.settings import checks
from gateway.settings.fields import setting

KIB = 1024
MIB = 1024 * KIB
# Longest time a setting may name. An hour is beyond every proxy between a client and us; more is a typing error.
_HOUR_S = 3600
_TIME = (0.01, _HOUR_S)
# From the end of the drain to the exit, at most: farewell 2 s, connections 0.75, tasks 0.75, log 1.
TAIL_S = 4.5
_BYTES = (KIB, 1024 * MIB)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The listening side."""

    host: str = setting(
        "Address to listen on; 0.0.0.0 by default where Heroku's PORT is set.", "127.0.0.1", check=checks.host
    )
    port: int = setting("Port to listen on; 0 lets the system choose one.", 8080, bounds=(0, 65535))
    region: str = setting("Region of this gateway, shown as x-anoman-region.", "id", check=checks.region)
    trusted_proxies: str = setting(
        "Networks of proxies whose X-Forwarded-For is believed, separated by commas; "
        "the client's address is the last one in it that none of them has. Heroku's router: `10.0.0.0/8`.",
        "",
        check=checks.networks,
    )
    workers: int = setting(
        "Processes that serve; more than one run under gunicorn, each with its part of the keys' limits "
        "unless `storage.redis_url` is set.",
        1,
        bounds=(1, 256),
    )
    max_connections: int = setting(
        "Most client connections that one process keeps open; further ones are refused.",
        10_000,
        bounds=(1, 1_000_000),
    )
    max_body_bytes: int = setting(
        "Longest request body without images, at most `max_image_body_bytes`.", 4 * MIB, bounds=_BYTES
    )
    max_image_body_bytes: int = setting(
        "Longest request body with images, at least `max_body_bytes`.", 24 * MIB, bounds=_BYTES
    )
    first_byte_s: float = setting("Longest silence of a new connection.", 5.0, bounds=_TIME)
    header_s: float = setting("Longest time for a request line and its headers to arrive.", 10.0, bounds=_TIME)
    body_s: float = setting("Longest time for a request body to arrive.", 30.0, bounds=_TIME)
    keepalive_s: float = setting("Longest idle time of a connection between requests.", 75.0, bounds=_TIME)
    accept_s: float = setting(
        "How long after SIGTERM newcomers still get a 503 instead of a refused connection, for the router in front.",
        3.0,
        bounds=(0, _HOUR_S),
    )
    drain_s: float = setting(
        "How long after SIGTERM streams may go on before they end with the shutdown frame; "
        f"at least {TAIL_S} s less than `exit_s`, for the last frames and for closing.",
        22.0,
        bounds=(0, _HOUR_S),
    )
    exit_s: float = setting(
        f"Longest time from SIGTERM to exit, at least {TAIL_S} s more than `drain_s`; "
        "Heroku kills what is left after 30 s.",
        27.0,
        bounds=_TIME,
    )


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Where things are kept."""

    database_url: str = setting(
        "Database of accounts, ledger and traces: a SQLite file, which gets its tables by itself, or Postgres, which "
        "`gateway migrate` gives them.",
        "sqlite:///gateway.db",
        check=checks.database_url,
        render=checks.without_password,
        secret=True,
    )
    redis_url: str = setting(
        "Redis for counters that processes share, also those of several machines; empty: each process counts its part.",
        "",
        check=checks.redis_url,
        render=checks.without_password,
        secret=True,
    )


@dataclass(frozen=True, slots=True)
class IdempotencySettings:
    """Calls that are done once, however often they are sent: those with an `Idempotency-Key`."""

    # 24 h: contract and issue; the bound is a week, for what is kept is what was answered.
    keep_s: float = setting(
        "How long an answer is kept and repeated, verbatim, in the database.", 86_400.0, bounds=(60, 7 * 86_400)
    )
    max_answer_bytes: int = setting(
        "Longest answer that is kept, at most `max_held_bytes`; a longer one is not repeated, nor made again.",
        4 * MIB,
        bounds=(KIB, 64 * MIB),
    )
    max_held_bytes: int = setting(
        "Most that one process holds of such answers until they are in the database, at least `max_answer_bytes`.",
        64 * MIB,
        bounds=(KIB, 1024 * MIB),
    )


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """What calls cost, from their admission to the database."""

    durability: Literal["spool", "redis-stream"] = setting(
        "Where what a call may cost is kept before a provider is asked: `spool`, in files on a disk, or "
        "`redis-stream`, in `storage.redis_url`, for hosts whose disk goes with them.",
        "spool",
    )
    directory: str = setting(
        "Where the files of `spool` are; by default beside the file of a SQLite database, as in `gateway.db-spool`, "
        "else `gateway-spool`. Not to be shared with other hosts.",
        "",
        check=checks.directory,
    )
    fsync: bool = setting(
        "Whether calls wait until the disk has their admission; without, one may be forgotten when the power fails, "
        "but none when the process dies.",
        default=True,
    )


@dataclass(frozen=True, slots=True)
class TracesSettings:
    """What is kept of calls besides the ledger, and for how long. The ledger is never deleted."""

    retention_days: int = setting(
        "Days after which traces, and sessions that have not been used since, are deleted; 0 keeps them.",
        90,
        bounds=(0, 3650),
    )
    body_retention_days: int = setting(
        "Days after which requests and answers are deleted; they are kept, redacted, for keys with `log_bodies` alone.",
        7,
        bounds=(1, 365),
    )
    max_body_bytes: int = setting(
        "Most that is kept of a request, and of its answer; what is longer is cut.", 64 * KIB, bounds=(KIB, MIB)
    )


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The life of one answer."""

    first_token_s: float = setting("Longest wait for the first token of a stream.", 60.0, bounds=_TIME)
    idle_s: float = setting("Longest pause between two tokens; comments and pings do not count.", 90.0, bounds=_TIME)
    # Heroku's router and many proxies cut a connection after 55 to 60 s of silence; below 25 s two may be lost.
    heartbeat_s: float = setting("Silence after which a ping is sent to the client.", 15.0, bounds=(0.01, 24))
    commit_after_s: float = setting(
        "When the 200 is sent although no token has come; Heroku's router wants a byte within 30 s.", 20.0, bounds=_TIME
    )
    write_stall_s: float = setting("How long a client may not read before it is dropped.", 30.0, bounds=_TIME)
    non_stream_s: float = setting(
        "Longest time for an answer without streaming, all attempts together.", 100.0, bounds=_TIME
    )
    usage_grace_s: float = setting(
        "How long the end is held back for a usage chunk that follows the finish chunk.", 2.0, bounds=(0, 60)
    )
    max_event_bytes: int = setting(
        "Longest single event of a provider's stream; where one may hold a picture, never less than 24 MiB.",
        MIB,
        bounds=(KIB, 64 * MIB),
    )
    sniff_bytes: int = setting(
        "How much may be held back before the first good frame.", 64 * KIB, bounds=(KIB, 16 * MIB)
    )
    metadata_frame: Literal["chunk", "bare"] = setting(
        "Form of the _anoman frame: one that every SDK can read, or the bare object.", "chunk"
    )
    bill_interrupted: bool = setting(
        "Whether tokens that came before a provider broke off are billed; a break before the first is never billed.",
        default=True,
    )


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """Connections to providers, and what is done when they fail."""

    connect_s: float = setting("Longest time to connect, TLS included.", 3.0, bounds=_TIME)
    dns_s: float = setting("Longest time for a name to resolve.", 2.0, bounds=_TIME)
    max_connections: int = setting(
        "Connections that one process opens to one provider; 0 sets no limit.", 0, bounds=(0, 1_000_000)
    )
    pool_idle_s: float = setting(
        "How long an idle connection is kept; keep it under the shortest of the providers.", 15.0, bounds=_TIME
    )
    retry_wait_max_s: float = setting(
        "Longest Retry-After of a provider that is waited for; a longer one is handed to the client.",
        5.0,
        bounds=(0, 60),
    )
    # Half of the 0.5 s that the OpenAI and Anthropic SDKs start with: they wait for us as well.
    retry_base_s: float = setting(
        "Wait before a route is asked a second and last time: this long to twice as long, by chance.",
        0.25,
        bounds=(0, 60),
    )
    breaker_failures: int = setting(
        "Failures within the window that take a route out of service.", 10, bounds=(1, 100_000)
    )
    breaker_window_s: float = setting("The window in which failures are counted.", 10.0, bounds=_TIME)
    breaker_open_s: float = setting(
        "How long a route rests at first; it doubles up to `breaker_open_max_s` while probes fail.", 5.0, bounds=_TIME
    )
    breaker_open_max_s: float = setting("Longest rest of a route, at least `breaker_open_s`.", 30.0, bounds=_TIME)
    retry_budget_percent: int = setting(
        "Further attempts allowed, as a share of all requests of late.", 10, bounds=(0, 100)
    )


@dataclass(frozen=True, slots=True)
class VisionSettings:
    """Images in prompts."""

    # The documented 5 MB, read as Anthropic's reference of images has it: 5,242,880 bytes.
    max_image_bytes: int = setting("Longest image, decoded from base64.", 5 * MIB, bounds=(KIB, 20 * MIB))
    # 8,000 by 8,000: the largest that Anthropic's reference of images takes. The bound is what a conversion has memory
    # for (`imaging.first_frame`).
    max_image_pixels: int = setting(
        "Largest image, its width times its height, by its header.", 64_000_000, bounds=(1, 100_000_000)
    )
    # Reliability E8. With conversions before and behind it, 4 s each, it ends before `stream.commit_after_s`: where
    # that is shorter than by default, so are these (`PictureTimes.within`).
    fetch_s: float = setting(
        "Longest time to fetch the images of a request by their URLs, where its provider does not.",
        10.0,
        bounds=(0.01, 10),
    )


@dataclass(frozen=True, slots=True)
class ModerationSettings:
    """A provider's moderation, for policies with the guard `moderation`; see [guardrails.md](guardrails.md)."""

    provider: str = setting(
        "The provider, by its name in `[providers]`, that judges texts; it has to have OpenAI's `POST /moderations`. "
        "Empty: none does.",
        "",
    )
    model: str = setting("Its own name for the model that does.", "omni-moderation-latest", check=checks.slug)


@dataclass(frozen=True, slots=True)
class LimitsSettings:
    """How limits are kept; see [limits.md](limits.md)."""

    # Hazard H24 and reliability D2: 50 to 100 ms; a script takes 0.2 ms, and a busy process of ours some more.
    redis_timeout_ms: int = setting(
        "How long a call waits for the shared counters; three silences in a row and they are not waited for any more.",
        100,
        bounds=(10, 10_000),
    )
    blind_s: float = setting(
        "While the shared counters do not answer: how long each process goes by its part of the limits; after that by "
        "`when_blind` of the key.",
        60.0,
        bounds=(0, _HOUR_S),
    )
    # Goal G6: places of a process that was killed are free again within 30 s, also where nobody takes its journal over.
    # Two renewals may fail.
    lease_s: float = setting(
        "How long a place among the requests at once is held without renewal, at least `renew_s`.",
        25.0,
        bounds=(0.1, _HOUR_S),
    )
    renew_s: float = setting(
        "How often a process renews the places of its requests, at most `lease_s`.", 10.0, bounds=(0.02, 600)
    )
    hold_s: float = setting(
        "How long what a request may spend is held without renewal; then it is taken to be spent.",
        900.0,
        bounds=(1, 24 * _HOUR_S),
    )
    rejoin_s: float = setting(
        "After the shared counters were lost: how long calls that draw on budgets wait for the other processes to tell "
        "what they hold.",
        5.0,
        bounds=(0, 60),
    )
    stop_margin_tokens: int = setting(
        "How many tokens before the end of a budget a stream is stopped that might pass it.", 16, bounds=(0, 100_000)
    )
    assumed_output_tokens: int = setting(
        "The longest answer that `tpm` reserves where a call does not bound its own.", 4096, bounds=(1, 1_000_000)
    )


@dataclass(frozen=True, slots=True)
class CatalogueSettings:
    """Models that need not be written down."""

    shipped: bool = setting(
        "Whether the models that ship with the gateway are served, each at those of its providers that are configured.",
        default=False,
    )


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """The log on standard output."""

    format: Literal["json", "console"] = setting("One JSON object per line, or lines for people.", "json")
    level: Literal["debug", "info", "warning", "error"] = setting("The least serious level that is written.", "info")


SCALAR_SECTIONS = {
    "server": ServerSettings,
    "storage": StorageSettings,
    "idempotency": IdempotencySettings,
    "ledger": LedgerSettings,
    "traces": TracesSettings,
    "stream": StreamSettings,
    "upstream": UpstreamSettings,
    "vision": VisionSettings,
    "moderation": ModerationSettings,
    "limits": LimitsSettings,
    "catalogue": CatalogueSettings,
    "logging": LoggingSettings,
}
