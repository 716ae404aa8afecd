"""What a run remembers while its last steps are on their way to the database."""

from types import SimpleNamespace
from typing import Any

from holdfast.workflows.blocking_run import BlockingRun
from holdfast.workflows.memory import FailedStep, Memory, StepMemo


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
    run = BlockingRun(SimpleNamespace(calls=None), None, None)  # type: ignore[arg-type] # nothing is asked of them
    locked: list[bool] = []

    class Watched(list[Any]):
        def append(self, one: Any) -> None:
            locked.append(run._answered._is_owned())  # type: ignore[attr-defined]
            super().append(one)

    run._steps, run._tries, run._failures = Watched(), Watched(), Watched()
    memo = StepMemo("charge", 1, "step")
    run._keep(memo)
    run._keep_try(FailedStep("charge", "charge", 1, 2, {"message": "declined"}, None))
    run._keep_failure(memo)
    assert locked == [True] * 3
