"""Which pictures may pass, and as what. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.core.catalog import Model
from gateway.core.errors import VISION_NOT_SUPPORTED, FetchFailed, GatewayError
from gateway.core.held import Held, Part
from gateway.dialects.pictures import Picture
from gateway.dialects.validate import refuse
from gateway.wire.payloads import is_base64
from gateway.wire.pictures import BadPicture, Look, Source, look

# Pictures of one call. To find and look at as many takes 20 ms, to put all of them right 60 ms more, in one turn of the
# loop (measured); most vendors take no more than some hundred.
MAX_PICTURES = 1_000
# Pictures of one call that we fetch or convert. A call of a few hundred bytes must not become any number of requests
# or processes of ours; those that are only passed on are bounded by the body.
MAX_WORK = 20
# What a caller may be told of a fetch. All else would help in mapping a network: what answers, what is blocked, and
# what is not there sound alike.
_FETCH_MESSAGES = {
    "url": "The image's URL is not valid.",
    "scheme": "The image's URL must be https.",
    "credentials": "The image's URL must not hold credentials.",
}


@dataclass(frozen=True, slots=True)
class PictureRules:
    """
    Attributes:
        max_bytes: Of a picture, decoded from base64.
        max_pixels: Of a picture, by its header: what somebody who decodes it has to have memory for.
        max_body_bytes: Of a body with all its pictures in it.
    """

    max_bytes: int = 5 * 1024 * 1024
    max_pixels: int = 64_000_000
    max_body_bytes: int = 24 * 1024 * 1024


def require_few(pictures: int) -> None:
    """Raises GatewayError (400) for more than `MAX_PICTURES`."""
    if pictures > MAX_PICTURES:
        raise refuse("messages", f"A request may have at most {MAX_PICTURES} images.")


def sees(model: Model) -> bool:
    """Whether *model* takes pictures."""
    return "image" in model.input


def blindness(model: Model) -> str:
    """What a client is told of a *model* that does not."""
    return f"The model {model.slug} does not take images."


def require_vision(model: Model, pictures: Sequence[Picture]) -> None:
    """Raises GatewayError when *model* cannot take *pictures*."""
    if not sees(model):
        raise GatewayError(VISION_NOT_SUPPORTED, blindness(model), param=pictures[0].place)


def data_of(picture: Picture, held: Held | None) -> Part:
    """The base64 of *picture*, wherever it is kept. Raises GatewayError when it is none."""
    assert picture.data is not None
    kept = held.find(picture.data) if held is not None else None
    if kept is not None:
        return kept
    try:
        data = picture.data.encode("ascii")
    except UnicodeEncodeError:
        data = b""
    if not is_base64(data):
        raise refuse(picture.place, f"{picture.place}: The data is not valid base64.")
    return data


def judge(source: Source, place: str, rules: PictureRules) -> Look:
    """What the picture at *place* is. Raises GatewayError when it may not pass."""
    if source.size > rules.max_bytes:
        raise too_large(place, rules)
    try:
        seen = look(source)
    except BadPicture as exc:
        raise refuse(place, f"{place}: {exc.message}") from None
    if seen.width * seen.height > rules.max_pixels:
        raise refuse(place, f"{place}: The image has more than {rules.max_pixels} pixels.")
    return seen


def too_large(place: str, rules: PictureRules) -> GatewayError:
    """The refusal of a picture that is longer than it may be."""
    return refuse(place, f"{place}: The image is larger than {rules.max_bytes} bytes.")


def not_fetched(failed: FetchFailed, place: str, rules: PictureRules) -> GatewayError:
    """The refusal of a picture that could not be fetched, without what that says of the network."""
    if failed.reason == "too_large":
        return too_large(place, rules)
    return refuse(place, f"{place}: {_FETCH_MESSAGES.get(failed.reason, 'The image could not be fetched.')}")
