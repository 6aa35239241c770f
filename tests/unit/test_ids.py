"""Ids of requests."""

from __future__ import annotations

import re

from gateway.ids import RequestIds


def test_request_ids_differ_and_are_in_order_of_time() -> None:
    """Across refills of chance too: no id twice, the time in front."""
    ids = RequestIds()

    made = [ids.new() for _ in range(1000)]

    assert len(set(made)) == 1000
    assert all(re.fullmatch(r"req_[0-9a-f]{32}", one) for one in made)
    assert [one[4:16] for one in made] == sorted(one[4:16] for one in made)
    assert len({one[16:] for one in made}) == 1000
