"""What a run remembers while its last steps are on their way to the database."""

from types import SimpleNamespace
from typing import Any

from holdfast._workflows.memory import FailedStep, Memory, RunState, StepMemo


def _memory(*signals: int) -> Memory:
    rows: list[Any] = [("signal", "decision", None, None, None, n, str(n), None) for n in signals]
    return Memory(rows, 0.0)


def test_a_signal_that_was_taken_is_not_taken_again_after_a_look_that_does_not_see_that() -> None:
    memory = _memory(1, 2)
    first = memory.take_signal("decision")

    memory.look_again(_memory(1, 2, 3))

    later = [memory.take_signal("decision") for _ in range(3)]
    assert [one.signal_id if one else None for one in [first, *later]] == [1, 2, 3, None]


def test_what_a_thread_keeps_is_kept_under_the_lock_of_the_thread_that_sends_it() -> None:
    state = RunState(SimpleNamespace(type="work", calls=None, stop=None))
    locked: list[bool] = []

    class Watched(list[Any]):
        def append(self, one: Any) -> None:
            locked.append(state.lock._is_owned())  # type: ignore[attr-defined]
            super().append(one)

    state.steps, state.tries, state.failures = Watched(), Watched(), Watched()
    memo = StepMemo("charge", 1, "step")
    state.keep(memo)
    state.keep_try(FailedStep("charge", "charge", 1, 2, {"message": "declined"}, None))
    state.keep_failure(memo, None)
    assert locked == [True] * 3
