"""The stage that checks pictures, puts them right and has them fetched. The world outside is scripted."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import Raw, structs

from gateway.core.accounts import Key, Tier
from gateway.core.call import CallOptions
from gateway.core.catalog import ClientDialectName, DialectName, Model, Provider, Route
from gateway.core.errors import FetchFailed, FetchReason, GatewayError
from gateway.core.exchange import Exchange
from gateway.core.held import Part, mark_of
from gateway.dialects.continuation import continued
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.http.intake import set_aside
from gateway.pipeline.stages.pictures import FETCHES_AT_ONCE, STILL_S, STILLS_AT_ONCE, CheckPictures, PictureWorks
from gateway.policy.pictures import MAX_PICTURES, MAX_WORK, PictureRules
from gateway.providers.requests import build_request
from tests.support.pictures import MADE, b64, data_url, gif, image, image_url, jpeg, linked, png
from tests.unit.pipeline.scene import ONE, START_S, at, catalog, elapsed_s

CHAT: ClientDialectName = "openai_chat"
MESSAGES: ClientDialectName = "anthropic_messages"
URL = "https://x.test/a.png"
TEXT = {"type": "text", "text": "What is this?"}
STILL = png(1, 1)
REQUEST_ID = "req_" + "0" * 32
RULES = PictureRules(max_bytes=2000, max_pixels=1000, max_body_bytes=20_000)


@dataclass
class World:
    """
    Both ports.

    Attributes:
        pages: What is at which URL: a picture, or why it cannot be had, or after how many seconds a small picture
            comes. Any other URL never answers.
        stills: What comes of an animation, None where it is damaged, and "never" where it takes too long.
    """

    pages: Mapping[str, bytes | FetchReason | float | None] = field(default_factory=dict)
    stills: bytes | str | None = STILL
    asked: list[str] = field(default_factory=list)
    converted: list[bytes] = field(default_factory=list)
    running: int = 0
    most: int = 0
    converting: int = 0
    most_converting: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self, url: str, *, max_bytes: int, timeout_s: float) -> tuple[str, bytes]:
        self.asked.append(url)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            page = self.pages.get(url)
            if isinstance(page, float):
                await asyncio.sleep(page)
                page = png(1, 1)
            if page is None:
                try:
                    async with asyncio.timeout(timeout_s):
                        await self.release.wait()
                except TimeoutError as exc:
                    raise FetchFailed("timeout") from exc
            if isinstance(page, str):
                raise FetchFailed(page, "10.0.0.7 said so")
            if page is not None and len(page) > max_bytes:
                raise FetchFailed("too_large")
            return "text/html", page or b""
        finally:
            self.running -= 1

    async def still(self, animation: Part, *, max_pixels: int) -> bytes | None:
        self.converted.append(b64decode(animation))
        self.converting += 1
        self.most_converting = max(self.most_converting, self.converting)
        try:
            await (self.release.wait() if self.stills == "never" else asyncio.sleep(0))
        finally:
            self.converting -= 1
        return b64(self.stills).encode() if isinstance(self.stills, bytes) else None


def route(name: str, dialect: DialectName = CHAT, *, fetches: bool = False) -> Route:
    return Route(
        Provider(name, dialect, f"https://{name}.test", "cloud_direct", "US", ONE, fetches_images=fetches), "m"
    )


def model(*routes: Route, **more: Any) -> Model:
    return replace(catalog(*routes).models["m"], **{"input": ("text", "image"), **more})


async def exchange(dialect: ClientDialectName, content: list[Any], of: Model) -> Exchange:
    body = json.dumps({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": content}]}).encode()
    small, held = await set_aside(body, mark_of(REQUEST_ID))
    call = structs.replace(CLIENT_DIALECTS[dialect].read_call(small, CallOptions(), ()), held=held)
    key = Key("key_1", "acme", Tier("pro"))
    return Exchange(REQUEST_ID, "t", "e", call, key, START_S, model=of, candidates=of.routes)


async def admitted(
    content: list[Any], *routes: Route, dialect: ClientDialectName = CHAT, world: World | None = None, **more: Any
) -> Exchange:
    """The exchange of a call with *content*, past the stage."""
    routes = routes or (route("a"),)
    passing = await exchange(dialect, content, model(*routes, **more))
    world = world or World()
    assert await CheckPictures(PictureWorks(world, world, RULES)).admit(passing) is None
    return passing


async def refused(content: list[Any], *routes: Route, **more: Any) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await admitted(content, *routes, **more)
    return caught.value


def sent(passed: Exchange, position: int = 0) -> list[Any]:
    """The content that the provider of the candidate at *position* gets."""
    assert passed.model is not None
    request = build_request(passed.call, passed.candidates[position], passed.model)
    content: list[Any] = json.loads(request.body)["messages"][0]["content"]
    return content


async def test_a_call_without_pictures() -> None:
    """Nothing of it is touched, be its model blind."""
    passing = await exchange(
        CHAT, [{"type": "text", "text": "an image, image_url"}], model(route("a"), input=("text",))
    )
    call = passing.call

    await CheckPictures(PictureWorks(World(), World(), RULES)).admit(passing)

    assert passing.call is call


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
async def test_a_sound_picture_passes_as_it_is(kind: str) -> None:
    """A picture that is what it says is not touched: the very call goes on."""
    content = [TEXT, image_url(data_url(MADE[kind](), f"image/{kind}"), detail="high")]
    passing = await exchange(CHAT, content, model(route("a")))
    call = passing.call

    await CheckPictures(PictureWorks(World(), World(), RULES)).admit(passing)

    assert passing.call is call
    assert sent(passing) == content


@pytest.mark.parametrize(
    ("dialect", "part", "place"),
    [
        (CHAT, image_url(data_url(png())), "messages[0].content[1].image_url.url"),
        (CHAT, image_url(URL), "messages[0].content[1].image_url.url"),
        (MESSAGES, image(png()), "messages[0].content[1].source.data"),
        (MESSAGES, {"type": "image", "source": {"type": "file", "file_id": "f"}}, "messages[0].content[1].source"),
    ],
)
async def test_tr_15_a_blind_model(dialect: ClientDialectName, part: Any, place: str) -> None:
    """A picture of any form to a model without images is `vision_not_supported`, naming the first place."""
    error = await refused([TEXT, part, part], dialect=dialect, input=("text",))

    assert (error.kind.status, error.kind.code, error.param) == (400, "vision_not_supported", place)
    assert error.message == "The model m does not take images."


async def test_a_blind_model_and_a_tool() -> None:
    """A picture in the result of a tool is one, too."""
    result = {"type": "tool_result", "tool_use_id": "c", "content": [image(png())]}

    error = await refused([result], dialect=MESSAGES, input=("text",))

    assert (error.kind.code, error.param) == ("vision_not_supported", "messages[0].content[0].content[0].source.data")


@pytest.mark.parametrize("claim", ["image/png", "image/jpg", "application/octet-stream", "text/html", "IMAGE/GIF;a=b"])
async def test_tr_39_a_wrong_claim_is_corrected(claim: str) -> None:
    """JPEG bytes go on as JPEG whatever they are called, with every other member as it was."""
    part = image_url(data_url(jpeg(), claim), detail="low")

    passed = await admitted([TEXT, part, {**part, "x": 1}])

    right = image_url(data_url(jpeg(), "image/jpeg"), detail="low")
    assert sent(passed) == [TEXT, right, {**right, "x": 1}]


async def test_a_wrong_claim_in_a_tool_result() -> None:
    """Blocks inside of a result are corrected where they stand; markers, and members that nobody knows, are kept."""
    source: dict[str, Any] = {"x": [1], "type": "base64", "media_type": "image/png", "data": b64(jpeg())}
    block = {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [TEXT, block]}

    passed = await admitted([result], route("a", MESSAGES), dialect=MESSAGES)

    right = {**block, "source": {**source, "media_type": "image/jpeg"}}
    assert sent(passed) == [{**result, "content": [TEXT, right]}]


async def test_a_long_picture_is_corrected_beside_the_body() -> None:
    """A picture that was set aside is judged there, and its claim is corrected in the body."""
    rules = PictureRules()
    long = jpeg() + bytes(200_000)
    passing = await exchange(CHAT, [image_url(data_url(long, "image/png"))], model(route("a")))
    assert passing.call.held is not None

    await CheckPictures(PictureWorks(World(), World(), rules)).admit(passing)

    assert len(bytes(passing.call.fields["messages"])) < 1000
    assert sent(passing) == [image_url(data_url(long, "image/jpeg"))]


BAD: dict[str, tuple[Any, str]] = {
    "too large": (png() + bytes(2000), "larger than 2000 bytes"),
    "a bomb": (png(40_000, 40_000), "more than 1000 pixels"),
    "an animated bomb": (gif(60_000, 60_000, frames=2), "more than 1000 pixels"),
    "something else": (b"<svg onload=alert(1)>", "no image in PNG, JPEG, WebP or GIF"),
    "damaged": (png()[:20], "damaged"),
}


@pytest.mark.parametrize(("picture", "message"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("dialect", [CHAT, MESSAGES])
async def test_tr_39_pictures_that_may_not_pass(dialect: ClientDialectName, picture: bytes, message: str) -> None:
    """A picture that is too large in bytes or pixels, or none, is a 400 that names its place."""
    part = image_url(data_url(picture)) if dialect == CHAT else image(picture)

    error = await refused([TEXT, part], dialect=dialect)

    inside = "image_url.url" if dialect == CHAT else "source.data"
    assert (error.kind.code, error.param) == ("invalid_request", f"messages[0].content[1].{inside}")
    assert message in error.message


@pytest.mark.parametrize(
    "data", ["!!!!", "iVBORw0", "iVBO\nRw0K", "iVBORw0=AAAA", "aVZ-_Q==", "\u00e9\u00e9\u00e9\u00e9"]
)
@pytest.mark.parametrize("dialect", [CHAT, MESSAGES])
async def test_tr_39_bad_base64(dialect: ClientDialectName, data: str) -> None:
    """Base64 that is none is a 400 that names its place."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    part = image_url(f"data:image/png;base64,{data}") if dialect == CHAT else {"type": "image", "source": source}

    error = await refused([part], dialect=dialect)

    inside = "image_url.url" if dialect == CHAT else "source.data"
    assert (error.kind.code, error.param) == ("invalid_request", f"messages[0].content[0].{inside}")
    assert "not valid base64" in error.message


@pytest.mark.parametrize("frames", [1, 3])
async def test_a_gif_becomes_one_frame(frames: int) -> None:
    """Every GIF goes on as a PNG, whatever it is called, and in both dialects."""
    world = World()
    animation = gif(frames=frames)

    chat = await admitted([image_url(data_url(animation, "image/png"), detail="low")], world=world)
    blocks = await admitted([image(animation, "image/gif")], route("a", MESSAGES), dialect=MESSAGES, world=world)

    assert sent(chat) == [image_url(data_url(STILL), detail="low")]
    assert sent(blocks) == [image(STILL)]
    assert world.converted == [animation] * 2


async def test_a_gif_that_cannot_be_shown() -> None:
    """What the conversion gives up is a 400; a frame that is too long as a PNG is one, too."""
    part = image_url(data_url(gif()))

    damaged = await refused([part], world=World(stills=None))
    longer = await refused([part], world=World(stills=png() + bytes(2001)))

    assert (damaged.kind.code, damaged.param) == ("invalid_request", "messages[0].content[0].image_url.url")
    assert "damaged" in damaged.message
    assert "larger than 2000 bytes" in longer.message


async def test_a_conversion_that_takes_too_long() -> None:
    """Then we are to blame, and the client is told to come again."""
    error = await refused([image_url(data_url(gif()))], world=World(stills="never"))

    assert (error.kind.code, elapsed_s()) == ("overloaded", STILL_S)


async def test_conversions_of_a_call_take_turns() -> None:
    """Two of them at once, whether they came with the call or were fetched: others have their turn in between."""
    urls = many(lambda n: f"https://x.test/{n}.gif", 8)
    world = World(dict.fromkeys(urls, gif()))

    await admitted([*many(lambda n: image_url(data_url(gif())), 8), *map(image_url, urls)], world=world)

    assert (len(world.converted), world.most_converting, world.converting) == (16, STILLS_AT_ONCE, 0)


@pytest.mark.parametrize(
    ("dialect", "part"),
    [(CHAT, image_url(URL, detail="low")), (MESSAGES, {**linked(URL), "cache_control": {"type": "x"}})],
)
async def test_a_url_is_passed_on_where_it_is_fetched(dialect: ClientDialectName, part: Any) -> None:
    """A provider that fetches gets the URL, and we ask nobody."""
    world = World()

    passed = await admitted([TEXT, part], route("a", dialect, fetches=True), dialect=dialect, world=world)

    assert sent(passed) == [TEXT, part]
    assert (world.asked, passed.call.inlined) == ([], None)


async def test_a_url_is_fetched_where_the_provider_does_not() -> None:
    """It gets the picture, called what it is, in the dialect of the call."""
    world = World({URL: jpeg(), "https://x.test/b.gif": gif()})
    links = [image_url(URL, detail="low"), image_url("https://x.test/b.gif")]

    passed = await admitted([TEXT, *links], world=world)

    assert sent(passed) == [TEXT, image_url(data_url(jpeg(), "image/jpeg"), detail="low"), image_url(data_url(STILL))]
    assert world.asked == [URL, "https://x.test/b.gif"]


async def test_a_url_of_a_block_is_fetched() -> None:
    """Its source becomes one in base64; the block's other members stay."""
    marked = {**linked(URL), "cache_control": {"type": "ephemeral"}}

    passed = await admitted([marked], route("a", MESSAGES), dialect=MESSAGES, world=World({URL: png()}))

    assert sent(passed) == [{**marked, "source": image(png())["source"]}]


async def test_each_route_gets_what_it_takes() -> None:
    """Of two routes the one that fetches gets the URL, the other one the picture; what was wrong is right for both."""
    world = World({URL: png()})
    content = [image_url(URL), image_url(data_url(jpeg()))]

    passed = await admitted(content, route("a", fetches=True), route("b", MESSAGES), world=world)

    assert sent(passed, 0) == [image_url(URL), image_url(data_url(jpeg(), "image/jpeg"))]
    assert sent(passed, 1) == [image(png()), image(jpeg(), "image/jpeg")]


@pytest.mark.parametrize(("dialect", "link"), [(CHAT, image_url(URL)), (MESSAGES, linked(URL))])
async def test_a_dialect_without_urls(dialect: ClientDialectName, link: Any) -> None:
    """A provider whose dialect has base64 alone gets the picture, from either endpoint; long ones come whole."""
    long = jpeg() + bytes(100_000)
    inside = image_url(data_url(long)) if dialect == CHAT else image(long)
    passing = await exchange(dialect, [link, inside], model(route("a", "gemini_content")))
    world = World({URL: png()})

    await CheckPictures(PictureWorks(world, world, PictureRules())).admit(passing)

    assert passing.model is not None
    body = json.loads(build_request(passing.call, passing.candidates[0], passing.model).body)
    assert [part["inlineData"] for part in body["contents"][0]["parts"]] == [
        {"mimeType": "image/png", "data": b64(png())},
        {"mimeType": "image/jpeg", "data": b64(long)},
    ]


async def drawn(picture: Any, to: Route, world: World) -> bytes:
    """The body that *to* gets of a talk in which the assistant drew *picture*."""
    passing = await exchange(CHAT, [TEXT], model(to))
    said = {"role": "assistant", "content": "There.", "images": [picture]}
    messages = [{"role": "user", "content": "Draw."}, said, {"role": "user", "content": "Again."}]
    fields = {**passing.call.fields, "messages": Raw(json.dumps(messages).encode())}
    passing.call = structs.replace(passing.call, fields=fields)
    await CheckPictures(PictureWorks(world, world, RULES)).admit(passing)
    assert passing.model is not None
    return build_request(passing.call, to, passing.model).body


async def test_what_an_assistant_drew_is_checked() -> None:
    """Pictures of earlier answers are fetched and judged like any other, and no provider is given their URLs."""
    there = World({URL: jpeg()})
    gemini, bedrock = route("a", "gemini_content"), route("a", "bedrock_converse")

    shown = json.loads(await drawn(image_url(URL), gemini, there))
    unshown = await drawn(image_url(URL), bedrock, there)
    with pytest.raises(GatewayError) as blocked:
        await drawn(image_url(URL), gemini, World({URL: "blocked"}))
    with pytest.raises(GatewayError) as bomb:
        await drawn(image_url(data_url(png(40_000, 40_000))), gemini, there)

    inline = {"mimeType": "image/jpeg", "data": b64(jpeg())}
    assert [part["inlineData"] for part in shown["contents"][1]["parts"] if "inlineData" in part] == [inline]
    assert b"There." in unshown
    assert b"x.test" not in unshown
    place = "messages[1].images[0].image_url.url"
    assert (blocked.value.kind.code, blocked.value.param) == ("invalid_request", place)
    assert "more than 1000 pixels" in bomb.value.message


async def test_an_answer_goes_on_behind_the_pictures() -> None:
    """A route that goes on with a broken answer gets its beginning and the pictures, whether it fetches or not."""
    passed = await admitted([image_url(URL)], route("a", fetches=True), route("b"), world=World({URL: png()}))
    assert passed.model is not None

    for position, part in enumerate((image_url(URL), image_url(data_url(png())))):
        further = continued(passed.call, "A ca", 2, passed.candidates[position])
        messages = json.loads(build_request(further, passed.candidates[position], passed.model).body)["messages"]

        assert [message["content"] for message in messages] == [[part], "A ca"]


async def test_a_url_is_fetched_once() -> None:
    """However often a call names it: the picture stands in every place, and counts there for the length of the body."""
    urls = [URL, f"{URL}?2", URL, URL]
    world = World({url: png() for url in urls})
    long = World({URL: png() + bytes(1900)})

    passed = await admitted([image_url(url) for url in urls], world=world)
    error = await refused([image_url(URL)] * 10, world=long)

    assert sent(passed) == [image_url(data_url(png()))] * 4
    assert world.asked == urls[:2]
    assert (error.kind.code, len(long.asked)) == ("request_too_large", 1)


async def test_a_failed_fetch_leaves_the_routes_that_fetch() -> None:
    """Where we cannot get the picture, another route's provider may."""
    routes = route("a"), route("b", fetches=True)

    passed = await admitted([image_url(URL)], *routes, world=World({URL: "unreachable"}))

    assert passed.candidates == routes[1:]
    assert sent(passed) == [image_url(URL)]


SAID: dict[FetchReason, str] = {
    "url": "The image's URL is not valid.",
    "scheme": "The image's URL must be https.",
    "credentials": "The image's URL must not hold credentials.",
    "too_large": "The image is larger than 2000 bytes.",
    "blocked": "The image could not be fetched.",
    "unreachable": "The image could not be fetched.",
    "timeout": "The image could not be fetched.",
    "status": "The image could not be fetched.",
    "encoding": "The image could not be fetched.",
}


@pytest.mark.parametrize(("reason", "sentence"), SAID.items())
async def test_a_failed_fetch(reason: FetchReason, sentence: str) -> None:
    """It is a 400 that names the place and says nothing of the network; the log has the reason."""
    passing = await exchange(CHAT, [TEXT, image_url(URL)], model(route("a")))
    world = World({URL: reason})

    with pytest.raises(GatewayError) as caught:
        await CheckPictures(PictureWorks(world, world, RULES)).admit(passing)

    place = "messages[0].content[1].image_url.url"
    assert (caught.value.kind.code, caught.value.param) == ("invalid_request", place)
    assert caught.value.message == f"{place}: {sentence}"
    assert passing.note == f"fetch:{reason}"


@pytest.mark.parametrize(("picture", "message"), BAD.values(), ids=BAD)
async def test_what_was_fetched_is_judged(picture: bytes, message: str) -> None:
    """A fetched picture passes the same checks, whatever its server calls it."""
    error = await refused([image_url(URL)], world=World({URL: picture}))

    assert (error.kind.code, error.param) == ("invalid_request", "messages[0].content[0].image_url.url")
    assert message in error.message


async def test_all_fetches_have_one_deadline() -> None:
    """However many there are and in however many rounds: what is not here by then has failed."""
    urls = [f"https://x.test/{number}" for number in range(FETCHES_AT_ONCE + 1)]
    slow = World(dict.fromkeys(urls[:-1], 9.0))

    error = await refused([image_url(url) for url in urls], world=slow)

    assert (error.kind.code, elapsed_s()) == ("invalid_request", 10.0)


async def test_fetches_run_side_by_side() -> None:
    """So many at a time, and no more; the first that fails ends the others."""
    urls = [f"https://x.test/{number}" for number in range(MAX_WORK)]
    good, bad = World(dict.fromkeys(urls, png())), World({urls[3]: "status"})

    await admitted([image_url(url) for url in urls], world=good)
    await refused([image_url(url) for url in urls], world=bad)

    assert (good.most, good.running) == (FETCHES_AT_ONCE, 0)
    assert len(bad.asked) < MAX_WORK
    assert (bad.running, elapsed_s()) == (0, 0.0)


async def test_a_client_that_leaves_ends_the_fetches() -> None:
    """Nobody is asked any more once the exchange is cancelled."""
    world = World()
    passing = await exchange(CHAT, [image_url(URL), image_url(f"{URL}?2")], model(route("a")))
    stage = CheckPictures(PictureWorks(world, world, RULES))
    task = asyncio.ensure_future(stage.admit(passing))
    await at(1.0)

    task.cancel()
    await asyncio.wait([task])

    assert (task.cancelled(), len(world.asked), world.running, elapsed_s()) == (True, 2, 0, 1.0)


def many(part: Callable[[int], Any], count: int) -> list[Any]:
    return [part(number) for number in range(count)]


async def test_work_is_bounded() -> None:
    """A call may not make us fetch or convert any number of pictures; those that only pass are not counted."""
    links = many(lambda n: image_url(f"https://x.test/{n}"), MAX_WORK)
    passing = many(lambda n: image_url(data_url(png())), 30)
    world = World(dict.fromkeys((part["image_url"]["url"] for part in links), png(1, 1)))

    await admitted([*links, *passing], world=world)
    error = await refused([*links, image_url(data_url(gif()))], world=world)
    await admitted([*links, *links], route("a", fetches=True), world=World())

    assert (error.kind.code, error.param) == ("invalid_request", f"messages[0].content[{MAX_WORK - 1}].image_url.url")
    assert f"at most {MAX_WORK} images" in error.message


async def test_words_about_pictures_are_not_counted() -> None:
    """What a tool was called with may speak of thousands of images."""
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"all": [{"image": "x.png"}] * (MAX_PICTURES + 1)}}

    passed = await admitted([call], dialect=MESSAGES)

    assert passed.model is not None


@pytest.mark.parametrize("escaped", [False, True])
async def test_pictures_are_bounded(escaped: bool) -> None:
    """Thousands of small pictures would hold the loop for a second; the bound holds however their types are spelled."""
    one = image_url(data_url(png()))
    passed = await admitted([one] * MAX_PICTURES)
    crowded = await exchange(CHAT, [one] * (MAX_PICTURES + 1), model(route("a")))
    if escaped:
        spelled = bytes(crowded.call.fields["messages"]).replace(b'"image_url"', b'"\\u0069mage_url"')
        crowded.call = structs.replace(crowded.call, fields={**crowded.call.fields, "messages": Raw(spelled)})

    with pytest.raises(GatewayError) as caught:
        await CheckPictures(PictureWorks(World(), World(), RULES)).admit(crowded)

    assert len(sent(passed)) == MAX_PICTURES
    assert (caught.value.kind.code, caught.value.param) == ("invalid_request", "messages")


async def test_the_body_stays_within_its_bound() -> None:
    """Pictures by URL may not make a request longer than one that brings them."""
    urls = many(lambda n: f"https://x.test/{n}", 10)

    error = await refused([image_url(url) for url in urls], world=World(dict.fromkeys(urls, png() + bytes(1900))))

    assert (error.kind.status, error.kind.code) == (413, "request_too_large")
    assert "20000 bytes" in error.message
