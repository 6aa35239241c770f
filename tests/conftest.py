"""What is the same for all tests."""

from __future__ import annotations


def pytest_make_parametrize_id(config: object, val: object, argname: str) -> str | None:
    """
    No name for bytes but printable ones: what a compressor wrote holds the second at which it did.

    Tests run in several processes, which have to agree on their names. None leaves the name to pytest, and the name of
    the argument gets a number where it is not the only one.
    """
    if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()):
        return argname
    return None
