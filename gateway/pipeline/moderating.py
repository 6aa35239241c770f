"""A provider's moderation as a guard: asked by the gateway's own client, with the provider's credential."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.core.catalog import Provider, Route, is_at_home, is_within
from gateway.core.errors import STALE, UpstreamFailed
from gateway.core.exchange import Exchange
from gateway.core.guarding import Finding
from gateway.core.ports import Upstream
from gateway.guards.moderation import MAX_ANSWER_BYTES, THRESHOLD, Part, batches, findings, question, scores
from gateway.pipeline.body import Body
from gateway.pipeline.scanning import ScanFailed
from gateway.providers.requests import moderation_request


class Moderation:
    """
    One provider's moderation, by one of its models.

    Attributes:
        known_as: By what its findings are remembered: another model finds other things.
    """

    threshold = THRESHOLD

    def __init__(self, provider: Provider, model: str, upstream: Upstream) -> None:
        self.known_as = f"moderation:{provider.base_url}:{model}"
        self._route = Route(provider, model)
        self._upstream = upstream

    def may_read(self, exchange: Exchange) -> bool:
        """Whether what *exchange* says may be computed where this provider is, by its key, its policy and its model."""
        key, model = exchange.key, exchange.model
        homes = (key.residency,) if model is None else (key.residency, model.residency)
        return is_at_home(self._route, *homes) and is_within(self._route, key.rules.calls)

    async def find(self, texts: Sequence[str]) -> list[tuple[Finding, ...]]:
        """
        What is in each of *texts*. One request at a time: the deadline, and what waits for it, are the caller's.

        Raises:
            ScanFailed: There is no judgement of all of them.
        """
        found: dict[int, list[Mapping[str, float]]] = {}
        for batch in batches(texts):
            for part, judged in zip(batch, await self._judge(batch), strict=True):
                found.setdefault(part.number, []).append(judged)
        return [findings(text, found.get(number, ())) for number, text in enumerate(texts)]

    async def _judge(self, batch: Sequence[Part]) -> list[Mapping[str, float]]:
        body = question(self._route.model, batch)
        try:
            try:
                answer = await self._ask(body, fresh=False)
            except UpstreamFailed as exc:
                if exc.failure.reason != STALE:
                    raise
                answer = await self._ask(body, fresh=True)
            return scores(answer, batch)
        except UpstreamFailed as exc:
            raise ScanFailed(exc.failure.reason) from exc
        except ValueError as exc:
            raise ScanFailed("malformed") from exc

    async def _ask(self, body: bytes, *, fresh: bool) -> bytes:
        request = moderation_request(self._route.provider, body, fresh=fresh)
        asking = self._upstream.ask(request, _nothing)
        is_over = False
        try:
            answer = await asking.answer()
            if answer.status != 200:
                raise ScanFailed(f"status_{answer.status}")
            read = await Body(answer, MAX_ANSWER_BYTES).read()
            answer.release()
            is_over = True
            return read
        finally:
            if not is_over:
                asking.close()


def _nothing() -> None:
    """Nobody has to know when the request has left: it costs nothing."""
