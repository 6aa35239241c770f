"""Values put in the place of others, in JSON that is otherwise not touched."""

from __future__ import annotations

from msgspec import Raw

from gateway.wire.splice import splice


def test_the_rest_stays_as_it_was() -> None:
    """Order, blanks inside of other values, numbers and escapes stay the bytes that came."""
    payload = Raw(b'[{"z": 1e5, "a":{"k" : [1.0,"\\u0041"],"v":"old"}},{"n":  9007199254740993 }]')

    out = splice(payload, {(0, "a", "v"): "new"})

    assert bytes(out) == b'[{"z":1e5,"a":{"k":[1.0,"\\u0041"],"v":"new"}},{"n":  9007199254740993 }]'


def test_several_places() -> None:
    """Changes in one array, in several and in the same object are all made, whatever their order."""
    payload = Raw(b'[[0,1,2,3,4,5,6,7,8,9,10,11],{"a":{"x":1,"y":2}}]')

    out = splice(payload, {(0, 11): "l", (1, "a", "y"): {"b": None}, (0, 2): "s", (1, "a", "x"): [], (0, 1): True})

    assert bytes(out) == b'[[0,true,"s",3,4,5,6,7,8,9,10,"l"],{"a":{"x":[],"y":{"b":null}}}]'
