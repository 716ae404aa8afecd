"""A batch: tasks that were enqueued together, and the task that comes after them."""

from collections.abc import Iterable
from typing import Any, TypeVar

from holdfast.engine import Statement, tasks
from holdfast.engine.tasks import ENDED
from holdfast.handle import Handle, Home

T = TypeVar("T")


class Batch(list[Handle[Any]]):
    """The handles of the tasks, in their order. `then` is the handle of the task after them, or None."""

    def __init__(self, handles: Iterable[Handle[Any]], home: Home, then: Handle[Any] | None = None) -> None:
        super().__init__(handles)
        self.then = then
        self._home = home

    @property
    def handles(self) -> list[Handle[Any]]:
        return list(self)

    def status(self) -> dict[str, int]:
        """How many tasks have each status; those that retention has removed are `removed`."""
        return self._counted(self._home.connect().run(self._count(), "status"))

    async def astatus(self) -> dict[str, int]:
        return self._counted(await self._home.connect().arun(self._count()))

    def progress(self) -> tuple[int, int]:
        """How many tasks have ended, and how many there are."""
        return self._ended(self.status()), len(self)

    async def aprogress(self) -> tuple[int, int]:
        return self._ended(await self.astatus()), len(self)

    def cancel(self, reason: str | None = None) -> int:
        """Cancel all tasks that have not ended, and the one after them. Returns how many ended by this."""
        return self._home.connect().run(self._cancel(reason), "cancel")

    async def acancel(self, reason: str | None = None) -> int:
        return await self._home.connect().arun(self._cancel(reason))

    def _count(self) -> Statement[dict[str, int]]:
        return tasks.count_by_status([handle.task_id for handle in self])

    def _cancel(self, reason: str | None) -> Statement[int]:
        everything = [*self, *([] if self.then is None else [self.then])]
        return tasks.cancel_many(sorted({handle.task_id for handle in everything}), reason)

    def _counted(self, found: dict[str, int]) -> dict[str, int]:
        removed = len({handle.task_id for handle in self}) - sum(found.values())
        return {**found, "removed": removed} if removed else found

    def _ended(self, status: dict[str, int]) -> int:
        return sum(count for name, count in status.items() if name in ENDED or name == "removed")
