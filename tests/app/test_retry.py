from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ByException, Exponential, Linear, NoRetry
from holdfast.retry import RetryPolicy

ERROR = RuntimeError("it broke")


@given(attempt=st.integers(1, 10_000))
def test_exponential_doubles_up_to_its_cap_and_adds_at_most_its_share_of_chance(attempt: int) -> None:
    raw = min(300, 2**attempt)
    assert raw <= Exponential().delay(attempt, ERROR) <= 1.5 * raw


def test_without_jitter_the_delays_are_exact() -> None:
    assert [Exponential(base=2, cap=30, jitter=0).delay(n, ERROR) for n in range(1, 6)] == [4, 8, 16, 30, 30]
    assert [Linear(step=5, cap=12, jitter=0).delay(n, ERROR) for n in range(1, 5)] == [5, 10, 12, 12]


def test_never_means_no_further_attempt() -> None:
    assert NoRetry().delay(1, ERROR) is None


def test_the_first_class_that_fits_the_error_decides() -> None:
    policy = ByException(
        {KeyError: Linear(step=1, jitter=0), LookupError: NoRetry()}, otherwise=Linear(step=7, jitter=0)
    )
    assert policy.delay(1, KeyError("k")) == 1
    assert policy.delay(1, IndexError()) is None
    assert policy.delay(1, ERROR) == 7


def test_a_policy_of_ones_own_needs_nothing_but_a_delay() -> None:
    class Often:
        def delay(self, attempt: int, error: BaseException) -> float | None:
            return attempt if isinstance(error, OSError) else None

    assert isinstance(Often(), RetryPolicy)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Exponential(base=-1),
        lambda: Exponential(jitter=float("nan")),
        lambda: Linear(cap=float("inf")),
        lambda: ByException({ValueError: 3}),  # type: ignore[dict-item]
        lambda: ByException({"ValueError": NoRetry()}),  # type: ignore[dict-item]
    ],
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_made(build: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        build()
