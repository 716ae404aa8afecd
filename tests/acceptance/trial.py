"""What a trial is: which promises it holds us to, how large it is, by which seed, and what it found."""

import os
from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

import pytest

T = TypeVar("T")

LEVEL = os.environ.get("HOLDFAST_ACCEPTANCE", "")
"""Empty in the everyday suite; `quick` or `full` under `make torture`."""
FULL = LEVEL == "full"
SEED = int(os.environ.get("HOLDFAST_SEED", "4711"))
"""Decides victims, pauses and delays. What the operating system decides is not in it."""

TIMES = int(os.environ.get("HOLDFAST_TIMES", "1"))
"""Factor for the number of messages and events in long runs."""

FIGURES, CASE = "figures", "case"

_recorder: Callable[[str, object], None] | None = None


def trial(*promises: str, quick: bool = False, everyday: bool = True) -> pytest.MarkDecorator:
    """Of these promises on the page; also part of the quick run, and of the everyday suite, or not."""
    return pytest.mark.trial(*promises, quick=quick, everyday=everyday)


def belongs(mark: pytest.Mark, level: str = LEVEL) -> bool:
    """Whether a trial is run at this level."""
    return {"": bool(mark.kwargs["everyday"]), "quick": bool(mark.kwargs["quick"])}.get(level, True)


def sized(everyday: T, quick: T, full: T) -> T:
    return {"": everyday, "quick": quick}.get(LEVEL, full)


def chance(what: str) -> Random:
    """Chance of its own for each who needs some, the same in every run with this seed."""
    return Random(f"{SEED} {what}")  # noqa: S311 - no secret


def counted(found: Mapping[str, int]) -> str:
    """What was counted, in words: 3 failed, 5 succeeded."""
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items()))


def record_with(recorder: Callable[[str, object], None]) -> None:
    global _recorder  # noqa: PLW0603 - one trial at a time runs in a process
    _recorder = recorder


def tell(figures: str) -> None:
    """Record what the trial has measured, for the output of the run and the page."""
    print(f"\n{figures}")  # noqa: T201 - shown by pytest -s
    if _recorder is not None:
        _recorder(FIGURES, figures)
