"""A batch: tasks that were enqueued together, and the task that comes after them."""

from collections.abc import Iterable
from typing import Any, TypeVar
from uuid import UUID

from holdfast._engine import Statement, tasks
from holdfast._engine.tasks import ENDED
from holdfast._workflows.calls import missed_in_handlers
from holdfast.handle import Handle, Home

R = TypeVar("R")


class Batch(list[Handle[R]]):
    """The handles of the tasks, in their order. `then` is the handle of the task after them, or None.

    With `then`, counts, progress and cancel include the tasks that `ctx.batch.add` has added since.
    """

    def __init__(self, handles: Iterable[Handle[R]], home: Home, then: Handle[Any] | None = None) -> None:
        super().__init__(handles)
        self.then = then
        self._home = home

    def counts(self) -> dict[str, int]:
        """How many tasks have each status.

        Those that were deleted before they ended are `deleted`, and those that retention has removed are
        `removed`. Both count as ended.
        """
        members = self._members()
        return _counted(members, self._home.connect().run(tasks.count_by_status(members), "counts"))

    async def acounts(self) -> dict[str, int]:
        members = await self._amembers()
        return _counted(members, await self._home.connect().arun(tasks.count_by_status(members)))

    def progress(self) -> tuple[int, int]:
        """How many tasks have ended, and how many there are."""
        return _progress(self.counts())

    async def aprogress(self) -> tuple[int, int]:
        return _progress(await self.acounts())

    def cancel(self, reason: str | None = None) -> int:
        """Cancel all tasks that have not ended, and the one after them. Returns how many ended by this."""
        return self._home.connect().run(self._cancel(self._members(), reason), "cancel")

    @missed_in_handlers("batch.acancel")
    async def acancel(self, reason: str | None = None) -> int:
        return await self._home.connect().arun(self._cancel(await self._amembers(), reason))

    def _members(self) -> list[UUID]:
        if self.then is None:
            return self._listed()
        return self._home.connect().run(tasks.batch_members(self.then.task_id), "counts") or self._listed()

    async def _amembers(self) -> list[UUID]:
        if self.then is None:
            return self._listed()
        return await self._home.connect().arun(tasks.batch_members(self.then.task_id)) or self._listed()

    def _listed(self) -> list[UUID]:
        return [handle.task_id for handle in self]

    def _cancel(self, members: list[UUID], reason: str | None) -> Statement[int]:
        everything = [*members, *([] if self.then is None else [self.then.task_id])]
        return tasks.cancel_many(sorted(set(everything)), reason)


def _counted(members: list[UUID], found: dict[str, int]) -> dict[str, int]:
    removed = len(set(members)) - sum(found.values())
    return {**found, "removed": removed} if removed else found


def _progress(counts: dict[str, int]) -> tuple[int, int]:
    ended = sum(count for name, count in counts.items() if name in ENDED or name in ("deleted", "removed"))
    return ended, sum(counts.values())
