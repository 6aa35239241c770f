"""Pictures: what a provider is to see is checked here, put right, and fetched where the provider does not do that."""

from __future__ import annotations

import asyncio
from binascii import b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from msgspec import Raw, structs

from gateway.aio import together
from gateway.core.call import Call
from gateway.core.catalog import Route
from gateway.core.errors import OVERLOADED, REQUEST_TOO_LARGE, FetchFailed, GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.held import Held, Part, mark_of
from gateway.core.ports import Fetcher, Stills
from gateway.core.receipt import Receipt
from gateway.dialects.pictures import Picture, may_show, plainly_shown
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.dialects.validate import refuse
from gateway.policy.pictures import (
    MAX_WORK,
    PictureRules,
    data_of,
    judge,
    not_fetched,
    require_few,
    require_vision,
    too_large,
)
from gateway.wire.pictures import MEDIA_TYPES, Encoded, Plain
from gateway.wire.splice import Path, splice
from gateway.wire.values import decode_values

STILLS_AT_ONCE = 2  # of one call, as there are processes: those of other calls wait for two of these, not for twenty
FETCHES_AT_ONCE = 8  # of one call; the client has a bound for all of them
STILL_S = 4.0  # the largest picture that may be takes 1.1 s alone (measured); the rest is for those before it
# Of the time after which a stream has to be committed: a conversion before and one behind the fetches leave a tenth.
# With the defaults that is what the limits are anyway.
STILL_SHARE = 0.2
FETCH_SHARE = 0.5
ENCODED_BYTES = 192 * 1024  # of a picture in one go: 0.5 ms (measured). A multiple of three, so that pieces join


@dataclass(frozen=True, slots=True)
class PictureTimes:
    """Seconds for all fetches of a call together, and for a conversion, its wait for others included."""

    fetch_s: float = 10.0
    still_s: float = STILL_S

    @classmethod
    def within(cls, commit_after_s: float, *, fetch_s: float) -> PictureTimes:
        """Those by which the stage ends before a stream is committed: while a 400 is possible it must not be."""
        return cls(min(fetch_s, FETCH_SHARE * commit_after_s), min(STILL_S, STILL_SHARE * commit_after_s))


@dataclass(frozen=True, slots=True)
class PictureWorks:
    """What the stage works with."""

    fetcher: Fetcher
    stills: Stills
    rules: PictureRules
    times: PictureTimes = PictureTimes()


class CheckPictures:
    """Replaces `exchange.call` where a picture in it has to change. Stands behind the choice of the model."""

    def __init__(self, works: PictureWorks) -> None:
        self._works = works

    async def admit(self, exchange: Exchange) -> Answer | None:
        """Let *exchange* pass. Raises GatewayError when a picture of its call may not."""
        messages = exchange.call.fields["messages"]
        if not may_show(messages):
            return None
        require_few(plainly_shown(messages))
        pictures = CLIENT_DIALECTS[exchange.call.dialect].pictures.find(decode_values(messages))
        if pictures:
            require_few(len(pictures))
            assert exchange.model is not None
            require_vision(exchange.model, pictures)
            await _Work(exchange, self._works).run(pictures)
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back."""


class _Work:
    """The pictures of one call on their way."""

    def __init__(self, exchange: Exchange, works: PictureWorks) -> None:
        self._exchange = exchange
        self._works = works
        self._rules = works.rules
        call = exchange.call
        self._stills = asyncio.Semaphore(STILLS_AT_ONCE)
        self._held = call.held or Held(mark_of(exchange.request_id))
        self._words = CLIENT_DIALECTS[call.dialect].pictures
        self._body_bytes = len(bytes(call.fields["messages"])) + sum(map(len, self._held.parts))

    async def run(self, pictures: list[Picture]) -> None:
        """Put right what came with the call, then fetch what is only named. Raises GatewayError."""
        exchange = self._exchange
        changes, animations = await self._look(pictures)
        links = [picture for picture in pictures if picture.url is not None]
        inlined: Mapping[Path, object] = {}
        if exchange.call.task == "count":
            exchange.candidates = tuple(route for route in exchange.candidates if _takes(route, animations, links))
        else:
            inlined = await self._work(changes, animations, links)
        if changes or inlined:
            exchange.call = self._changed(exchange.call, changes, inlined)

    async def _work(
        self, changes: dict[Path, object], animations: list[tuple[Picture, Part]], links: list[Picture]
    ) -> Mapping[Path, object]:
        """Convert *animations* into *changes*; what is to stand in the places of *links*, where a route needs that."""
        if all(route.provider.fetches_images for route in self._exchange.candidates):
            links = []
        _bound([*(picture for picture, _ in animations), *links])
        if animations:
            stills = await together([partial(self._still, *item) for item in animations], at_once=MAX_WORK)
            for (picture, _), still in zip(animations, stills, strict=True):
                changes[picture.path] = self._keep("image/png", still)
        return {**changes, **await self._fetch_all(links)} if links else {}

    async def _look(self, pictures: list[Picture]) -> tuple[dict[Path, object], list[tuple[Picture, Part]]]:
        """What has to be said otherwise of the pictures that are here, and those that have to be converted."""
        changes: dict[Path, object] = {}
        animations: list[tuple[Picture, Part]] = []
        for picture in pictures:
            if picture.data is None:
                continue
            data = data_of(picture, self._held)
            kind = judge(Encoded(data), picture.place, self._rules).kind
            if kind == "gif":
                animations.append((picture, data))
            elif MEDIA_TYPES[kind] != picture.media_type:
                place, claim = self._words.claim(picture, MEDIA_TYPES[kind])
                changes[place] = claim
            await asyncio.sleep(0)  # there may be hundreds
        return changes, animations

    async def _still(self, picture: Picture, animation: Part) -> bytes:
        """The base64 of *animation* as PNG."""
        try:
            async with asyncio.timeout(self._works.times.still_s), self._stills:
                still = await self._works.stills.still(animation, max_pixels=self._rules.max_pixels)
        except TimeoutError as exc:
            raise GatewayError(OVERLOADED) from exc
        if still is None:
            raise refuse(picture.place, f"{picture.place}: The image is damaged.")
        if Encoded(still).size > self._rules.max_bytes:
            raise too_large(picture.place, self._rules)
        return still

    async def _fetch_all(self, links: list[Picture]) -> dict[Path, object]:
        """The pictures at *links*; none where that fails and there are routes that do not need them, which are left."""
        end_s = asyncio.get_running_loop().time() + self._works.times.fetch_s
        places: dict[str, list[Picture]] = {}  # by URL: one that is named twenty times is fetched once
        for link in links:
            places.setdefault(link.url or "", []).append(link)
        fetches = [partial(self._fetch, url, same, end_s) for url, same in places.items()]
        try:
            fetched = await together(fetches, at_once=FETCHES_AT_ONCE)
        except GatewayError:
            able = tuple(route for route in self._exchange.candidates if route.provider.fetches_images)
            if not able:
                raise
            self._exchange.candidates = able
            return {}
        inlined: dict[Path, object] = {}
        for same, found in zip(places.values(), fetched, strict=True):
            spelled = self._keep(*found)
            inlined.update((link.path, spelled) for link in same)
        return inlined

    async def _fetch(self, url: str, same: list[Picture], end_s: float) -> tuple[str, bytes]:
        """Media type and base64 of what is at *url*, and is to stand in the places of *same*."""
        link = same[0]
        left_s = max(0.0, end_s - asyncio.get_running_loop().time())
        try:
            _, picture = await self._works.fetcher.fetch(url, max_bytes=self._rules.max_bytes, timeout_s=left_s)
        except FetchFailed as exc:
            self._exchange.note = f"fetch:{exc.reason}"
            raise not_fetched(exc, link.place, self._rules) from exc
        kind = judge(Plain(picture), link.place, self._rules).kind
        data = await _encode(picture)
        if kind == "gif":
            kind, data = "png", await self._still(link, data)
        self._body_bytes += len(data) * len(same)
        if self._body_bytes > self._rules.max_body_bytes:
            message = f"With its images fetched the request is larger than {self._rules.max_body_bytes} bytes."
            raise GatewayError(REQUEST_TOO_LARGE, message, param=link.place)
        return MEDIA_TYPES[kind], data

    def _keep(self, media_type: str, data: bytes) -> object:
        self._held, token = self._held.keep(data)
        return self._words.spell(media_type, token)

    def _changed(self, call: Call, changes: Mapping[Path, object], inlined: Mapping[Path, object]) -> Call:
        """*call* with *changes* for every route, and with *inlined* for those whose providers do not fetch."""
        messages: Raw = call.fields["messages"]
        return structs.replace(
            call,
            fields={**call.fields, "messages": splice(messages, changes)} if changes else call.fields,
            inlined=splice(messages, inlined) if inlined else None,
            held=self._held,
        )


def _takes(route: Route, animations: list[tuple[Picture, Part]], links: list[Picture]) -> bool:
    """
    Whether *route* can be asked for a count of the pictures as they came. Nothing is fetched or converted for one: it
    is outside of the key's limits, and an estimate knows of a picture without seeing it.
    """
    return not animations and (route.provider.fetches_images or not links)


def _bound(work: list[Picture]) -> None:
    if len(work) > MAX_WORK:
        place = work[MAX_WORK].place
        raise refuse(place, f"A request may have at most {MAX_WORK} images that the gateway has to fetch or convert.")


async def _encode(picture: bytes) -> bytes:
    """*picture* in base64; others have their turn all the while."""
    pieces = []
    for start in range(0, len(picture), ENCODED_BYTES):
        pieces.append(b2a_base64(picture[start : start + ENCODED_BYTES], newline=False))
        await asyncio.sleep(0)
    return b"".join(pieces)
