"""What a run remembers while its last steps are on their way to the database."""

from typing import Any

from holdfast.workflows.memory import Memory


def _memory(*signals: int) -> Memory:
    rows: list[Any] = [("signal", "decision", None, None, None, n, str(n), None) for n in signals]
    return Memory(rows, 0.0)


def test_a_signal_that_was_taken_is_not_taken_again_after_a_look_that_does_not_see_that() -> None:
    memory = _memory(1, 2)
    first = memory.take_signal("decision")

    memory.look_again(_memory(1, 2, 3))

    later = [memory.take_signal("decision") for _ in range(3)]
    assert [one.signal_id if one else None for one in [first, *later]] == [1, 2, 3, None]
