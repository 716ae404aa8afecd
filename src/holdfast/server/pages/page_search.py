"""The search of a page: if no task is found within a moment, its live part goes on from where it stopped."""

import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from holdfast._engine import AsyncEngine, tasks
from holdfast._engine.tasks import FoundTasks, TaskFilter, enqueued_at
from holdfast.server.searches import MAX_SEARCH_SECONDS


@dataclass(slots=True)
class SearchPosition:
    """How far the search of one open page has come: only older tasks are still to be searched."""

    before: UUID | None = None
    is_going_on: bool = False

    async def search(
        self, engine: AsyncEngine, matching: TaskFilter, before: UUID | None, max_tasks: int
    ) -> FoundTasks:
        """The newest tasks that match; of those that were searched before, only the newest again."""
        end = time.monotonic() + MAX_SEARCH_SECONDS
        found = await engine.run(tasks.find_tasks(matching, before, max_tasks))
        if not found.task_ids and found.next is not None and self.before is not None:
            found = await engine.run(tasks.find_tasks(matching, self.before, max_tasks))
        while not found.task_ids and found.next is not None:
            self.before = found.next
            if time.monotonic() >= end:
                break
            found = await engine.run(tasks.find_tasks(matching, self.before, max_tasks))
        self.is_going_on = not found.task_ids and found.next is not None
        return found

    @property
    def searched_since(self) -> datetime | None:
        """Nothing was found among tasks that were enqueued since then, and the search goes on."""
        return enqueued_at(self.before) if self.is_going_on and self.before is not None else None


def position_of(given: str | None) -> SearchPosition:
    """From what the browser sends when it connects again: the id of the last event."""
    try:
        return SearchPosition(UUID(given)) if given else SearchPosition()
    except ValueError:
        return SearchPosition()
