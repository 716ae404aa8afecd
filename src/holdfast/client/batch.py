"""How many tasks one statement should carry."""

from collections.abc import Iterator, Sequence

from holdfast.model import NewTask, RawJson

MOST_TASKS = 10_000
MOST_CHARACTERS = 32 * 1024 * 1024


def batches(tasks: Sequence[NewTask]) -> Iterator[Sequence[NewTask]]:
    start = 0
    while start < len(tasks):
        end = start + fitting(tasks[start : start + MOST_TASKS])
        yield tasks[start:end]
        start = end


def fitting(tasks: Sequence[NewTask]) -> int:
    """How many of the first ones go together; one always does."""
    characters = 0
    for place, task in enumerate(tasks):
        characters += len(task.payload) if isinstance(task.payload, RawJson) else 0
        if place and characters > MOST_CHARACTERS:
            return place
    return len(tasks)
