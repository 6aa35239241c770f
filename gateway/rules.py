"""What settings become: the rules and limits that each part is made with."""

from __future__ import annotations

from dataclasses import asdict

from gateway.core.catalog import Catalog
from gateway.http.recording import Room
from gateway.http.server import ServerLimits
from gateway.pipeline.services import Deadlines
from gateway.pipeline.stages.admit import AdmissionRules
from gateway.policy.breaker import BreakerRules, BudgetRules
from gateway.policy.pictures import PictureRules
from gateway.settings import Settings, build_keys
from gateway.storage.idempotency import IdempotencyRules
from gateway.storage.redis_upkeep import SharingRules
from gateway.upstream.client import UpstreamLimits

_OF_A_CALL = ("stop_margin_tokens", "assumed_output_tokens")  # of [limits]; a reload makes `admission_rules` anew


def secrets(catalog: Catalog, settings: Settings) -> set[str]:
    """Every credential there is, of providers and of static keys, for keeping them out of the log."""
    providers = {route.provider for model in catalog.models.values() for route in model.routes}
    theirs = {secret for provider in providers for secret in provider.secrets}
    return theirs | set(build_keys(settings))


def fixed_at_start(settings: Settings) -> dict[str, object]:
    """The settings that a reload cannot change, by name: those of the objects that are made once."""
    server = settings.server
    return {
        "server.host": server.host,
        "server.port": server.port,
        "server.workers": server.workers,
        "server.trusted_proxies": server.trusted_proxies,
        **{
            f"server.{name}": value
            for name, value in asdict(server_limits(settings)).items()
            if name != "write_stall_s"  # of another section, and taken over
        },
        **{f"upstream.{name}": value for name, value in asdict(upstream_limits(settings)).items()},
        **{f"upstream.breaker_{name}": value for name, value in asdict(breaker_rules(settings)).items()},
        **{f"upstream.retry_budget_{name}": value for name, value in asdict(budget_rules(settings)).items()},
        **{f"storage.{name}": value for name, value in asdict(settings.storage).items()},
        **{f"limits.{name}": value for name, value in asdict(settings.limits).items() if name not in _OF_A_CALL},
        **{f"idempotency.{name}": value for name, value in asdict(settings.idempotency).items()},
        **{f"ledger.{name}": value for name, value in asdict(settings.ledger).items()},
        **{f"traces.{name}": value for name, value in asdict(settings.traces).items()},
        **{f"logging.{name}": value for name, value in asdict(settings.logging).items()},
    }


def kept_from_start(old: Settings, fresh: Settings) -> list[str]:
    """The settings that a reload cannot change and that are others in *fresh*."""
    before = fixed_at_start(old)
    return [name for name, value in fixed_at_start(fresh).items() if before[name] != value]


def breaker_rules(settings: Settings) -> BreakerRules:
    upstream = settings.upstream
    return BreakerRules(
        failures=upstream.breaker_failures,
        window_s=upstream.breaker_window_s,
        open_s=upstream.breaker_open_s,
        open_max_s=upstream.breaker_open_max_s,
    )


def budget_rules(settings: Settings) -> BudgetRules:
    return BudgetRules(percent=settings.upstream.retry_budget_percent)


def upstream_limits(settings: Settings) -> UpstreamLimits:
    upstream = settings.upstream
    return UpstreamLimits(
        connect_s=upstream.connect_s,
        dns_s=upstream.dns_s,
        max_connections=upstream.max_connections,
        pool_idle_s=upstream.pool_idle_s,
    )


def server_limits(settings: Settings) -> ServerLimits:
    server = settings.server
    return ServerLimits(
        first_byte_s=server.first_byte_s,
        header_s=server.header_s,
        keepalive_s=server.keepalive_s,
        write_stall_s=settings.stream.write_stall_s,
        max_connections=server.max_connections,
    )


def admission_rules(settings: Settings, catalog: Catalog) -> AdmissionRules:
    limits = settings.limits
    return AdmissionRules(catalog.modes, limits.stop_margin_tokens, limits.assumed_output_tokens)


def sharing_rules(settings: Settings, owner: str) -> SharingRules:
    limits = settings.limits
    return SharingRules(
        timeout_s=limits.redis_timeout_ms / 1000,
        lease_ms=int(limits.lease_s * 1000),
        renew_s=limits.renew_s,
        hold_ms=int(limits.hold_s * 1000),
        rejoin_ms=int(limits.rejoin_s * 1000),
        blind_s=limits.blind_s,
        owner=owner,
    )


def picture_rules(settings: Settings) -> PictureRules:
    return PictureRules(
        max_bytes=settings.vision.max_image_bytes,
        max_pixels=settings.vision.max_image_pixels,
        max_body_bytes=settings.server.max_image_body_bytes,
    )


def deadlines(settings: Settings) -> Deadlines:
    stream = settings.stream
    return Deadlines(
        first_token_s=stream.first_token_s,
        idle_s=stream.idle_s,
        heartbeat_s=stream.heartbeat_s,
        commit_after_s=stream.commit_after_s,
        write_stall_s=stream.write_stall_s,
        non_stream_s=stream.non_stream_s,
        usage_grace_s=stream.usage_grace_s,
    )


def idempotency_rules(settings: Settings) -> IdempotencyRules:
    return IdempotencyRules(keep_s=settings.idempotency.keep_s, queue_bytes=settings.idempotency.max_held_bytes)


def room(settings: Settings) -> Room:
    return Room(settings.idempotency.max_answer_bytes, settings.idempotency.max_held_bytes)
