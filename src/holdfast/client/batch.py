"""How many tasks one statement should carry."""

from collections.abc import Iterable, Iterator, Sequence

from holdfast.engine.documents import RawJson
from holdfast.engine.enqueue import NewTask

MAX_TASKS = 10_000
FEW_TASKS = 500
"""For statements that are sent ahead: few enough that one is built while another runs."""
MAX_CHARACTERS = 32 * 1024 * 1024


def batches(tasks: Iterable[NewTask], most: int = MAX_TASKS) -> Iterator[list[NewTask]]:
    batch: list[NewTask] = []
    characters = 0
    for task in tasks:
        length = len(task.payload) if isinstance(task.payload, RawJson) else 0
        if len(batch) == most or (batch and characters + length > MAX_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(task)
        characters += length
    if batch:
        yield batch


def fitting(tasks: Sequence[NewTask]) -> int:
    """How many of the first ones go together; one always does."""
    return len(next(batches(tasks), ()))
