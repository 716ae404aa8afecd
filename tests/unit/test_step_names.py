"""Names of steps: every call of an attempt has its own, and the same one in the next attempt."""

import pytest

from holdfast._workflows.step import StepNames


@pytest.mark.parametrize(
    ("bases", "names"),
    [
        (["a", "a", "a"], ["a", "a#2", "a#3"]),
        (["a", "a", "a#2"], ["a", "a#2", "a#2#2"]),
        (["a#2", "a", "a", "a"], ["a#2", "a", "a#3", "a#4"]),
        (["a", "a#2", "a#3", "a"], ["a", "a#2", "a#3", "a#4"]),
    ],
)
def test_a_name_that_looks_like_a_repeated_one_is_never_given_twice(
    bases: list[str], names: list[str]
) -> None:
    given = StepNames()
    assert [given.give(base) for base in bases] == names
