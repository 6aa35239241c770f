"""The choice of the next attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core.catalog import Provider, Route
from gateway.core.errors import INVALID_REQUEST, SHUTDOWN, STALE, Failure
from gateway.core.exchange import Attempt
from gateway.core.money import Weight
from gateway.policy.retry import RetryRules, Try, next_try

RULES = RetryRules(base_s=0.25, wait_max_s=5.0)
BUSY = Failure("upstream_error", "status_500")
RESET = Failure("upstream_error", "reset")
CONNECT = Failure("upstream_error", "connect")
REFUSED_CREDENTIAL = Failure("upstream_error", "status_401", retryable=False)
CALLERS_FAULT = Failure("upstream_error", "status_400", INVALID_REQUEST, retryable=False)
LIMITED = Failure("upstream_error", "status_429", retry_after_s=2.0)
LIMITED_LONG = Failure("upstream_error", "status_429", retry_after_s=5.1)


def route(name: str) -> Route:
    return Route(Provider(name, "openai_chat", "https://x.test", "cloud_direct", "SG", Weight(1, 1)), "m")


A, B, C = route("a"), route("b"), route("c")


def tried(where: Route, failure: Failure, ended_s: float = 100.0) -> Attempt:
    return Attempt(where, "failed", failure=failure, ended_s=ended_s)


def decide(
    candidates: Sequence[Route],
    attempts: Sequence[Attempt],
    *,
    now_s: float = 100.0,
    deadline_s: float = 120.0,
    allow: Callable[[Route], bool] = lambda route: True,
    may_retry: Callable[[Route], bool] = lambda route: True,
    spread: float = 0.0,
) -> Try | None:
    return next_try(
        candidates,
        attempts,
        now_s=now_s,
        deadline_s=deadline_s,
        allow=allow,
        may_retry=may_retry,
        rules=RULES,
        spread=spread,
    )


def test_a_dead_connection_costs_no_retry() -> None:
    """An attempt that did not even reach its provider is made up for at once, without the route's retry budget."""
    stale = Failure("upstream_error", STALE, counts=False)

    assert decide([A, B], [tried(A, stale)], may_retry=lambda route: False) == Try(A, 0.0)
    assert decide([A, B], [tried(A, stale), tried(A, stale)]) == Try(B, 0.0)
    assert decide([A, B], [tried(A, stale)], allow=lambda route: route is B) == Try(B, 0.0)
    assert decide([A], [tried(A, BUSY)], may_retry=lambda route: False) is None


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        pytest.param([], Try(A, 0.0), id="the first candidate first"),
        pytest.param([tried(A, BUSY)], Try(B, 0.0), id="then the next, at once"),
        pytest.param([tried(A, REFUSED_CREDENTIAL)], Try(B, 0.0), id="also after one that is the provider's alone"),
        pytest.param([tried(A, CALLERS_FAULT)], None, id="not after one that is the caller's"),
        pytest.param([tried(A, SHUTDOWN)], None, id="not when we are leaving"),
        pytest.param([tried(A, BUSY), tried(B, BUSY)], Try(A, 0.25), id="second round with backoff"),
        pytest.param([tried(A, BUSY, 99.9), tried(B, BUSY)], Try(A, 0.15), id="backoff runs from the failure"),
        pytest.param([tried(A, BUSY, 90.0), tried(B, BUSY)], Try(A, 0.0), id="and may be over"),
        pytest.param([tried(A, BUSY), tried(B, RESET)], Try(B, 0.0), id="a reset is retried at once"),
        pytest.param([tried(A, BUSY), tried(B, CONNECT)], Try(B, 0.0), id="and so is a refused connection"),
        pytest.param([tried(A, REFUSED_CREDENTIAL), tried(B, BUSY)], Try(B, 0.25), id="only retryable failures"),
        pytest.param([tried(A, LIMITED), tried(B, REFUSED_CREDENTIAL)], Try(A, 2.0), id="retry-after is honoured"),
        pytest.param([tried(A, LIMITED), tried(B, BUSY)], Try(B, 0.25), id="the shortest wait first"),
        pytest.param([tried(A, LIMITED_LONG), tried(B, REFUSED_CREDENTIAL)], None, id="too long a retry-after"),
        pytest.param([tried(A, REFUSED_CREDENTIAL), tried(B, REFUSED_CREDENTIAL)], None, id="nothing to retry"),
        pytest.param([tried(A, BUSY), tried(B, BUSY), tried(A, BUSY)], Try(B, 0.25), id="once more per route"),
        pytest.param([tried(A, BUSY), tried(B, BUSY), tried(A, BUSY), tried(B, BUSY)], None, id="and no more"),
        pytest.param([tried(A, BUSY), tried(B, BUSY), tried(A, CALLERS_FAULT)], None, id="caller's fault in round two"),
    ],
)
def test_order(attempts: list[Attempt], expected: Try | None) -> None:
    """Every route once in order, then each once more where that may help."""
    found = decide([A, B], attempts)

    if found is not None:
        found = replace(found, wait_s=round(found.wait_s, 9))  # 0.25 - 0.1 is not 0.15 in binary
    assert expected == found


def test_open_breakers_are_skipped() -> None:
    """A route whose breaker says no is passed over, in both rounds."""
    first = decide([A, B, C], [], allow=lambda where: where is not A)
    second = decide([A, B], [tried(A, BUSY), tried(B, BUSY)], allow=lambda where: where is B)

    assert (Try(B, 0.0), Try(B, 0.25)) == (first, second)


def test_skipped_route_is_asked_later_when_its_breaker_allows() -> None:
    """A route that was skipped is still a first attempt when the others have failed."""
    assert Try(A, 0.0) == decide([A, B], [tried(B, BUSY)])


def test_breaker_is_asked_only_of_the_route_that_is_returned() -> None:
    """A yes of a breaker may take its probe slot, so no other breaker is made to say it."""
    asked: list[str] = []

    def allow(where: Route) -> bool:
        asked.append(where.id)
        return True

    decide([A, B], [], allow=allow)
    decide([A], [tried(A, BUSY)], may_retry=lambda where: False, allow=allow)
    decide([A], [], now_s=120.0, allow=allow)
    decide([A], [tried(A, LIMITED)], deadline_s=101.0, allow=allow)

    assert asked == ["a/m"]


def test_retry_budget_guards_second_attempts_only() -> None:
    """An empty budget does not stop the first pass over the routes."""
    first = decide([A, B], [tried(A, BUSY)], may_retry=lambda where: False)
    second = decide([A, B], [tried(A, BUSY), tried(B, BUSY)], may_retry=lambda where: where is B)

    assert (Try(B, 0.0), Try(B, 0.25)) == (first, second)


def test_backoff_is_spread() -> None:
    """The random number stretches the wait up to twice its base."""
    assert Try(A, 0.375) == decide([A], [tried(A, BUSY)], spread=0.5)


def test_nothing_starts_at_or_after_the_deadline() -> None:
    """Neither a first attempt nor one whose wait would end too late."""
    assert [decide([A], [], now_s=120.0), decide([A], [tried(A, LIMITED)], deadline_s=102.0)] == [None, None]


FAILURES = st.sampled_from([BUSY, RESET, CONNECT, REFUSED_CREDENTIAL, CALLERS_FAULT, LIMITED, LIMITED_LONG])


@given(
    st.lists(st.sampled_from([A, B, C]), max_size=4),
    st.lists(st.tuples(FAILURES, st.floats(0, 3), st.booleans()), min_size=10, max_size=10),
    st.floats(0, 20),
    st.floats(0, 1, exclude_max=True),
)
def test_terminates_within_bounds(
    candidates: list[Route], script: list[tuple[Failure, float, bool]], budget_s: float, spread: float
) -> None:
    """Whatever fails however: at most two attempts per route, none after the deadline, and an end."""
    now_s, attempts, starts = 0.0, list[Attempt](), list[float]()
    for failure, takes_s, allowed in script:

        def allow(where: Route, allowed: bool = allowed) -> bool:
            return allowed

        choice = decide(candidates, attempts, now_s=now_s, deadline_s=budget_s, allow=allow, spread=spread)
        if choice is None:
            break
        starts.append(now_s + choice.wait_s)
        now_s = starts[-1] + takes_s
        attempts.append(tried(choice.route, failure, now_s))
    else:
        pytest.fail("ten attempts over three routes")

    counts = [sum(attempt.route.id == each.id for attempt in attempts) for each in (A, B, C)]
    assert max(counts) <= 2
    assert all(start < budget_s for start in starts)
