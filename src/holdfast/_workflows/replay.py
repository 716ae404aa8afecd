"""Replay: a driver that answers from memory, up to the first step that is not remembered."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from holdfast._serialization.codec import ResultCodec
from holdfast._workflows.calls import AwaitedCall, CallSite
from holdfast._workflows.drivers import Driver
from holdfast._workflows.facts import StepFact
from holdfast._workflows.memory import Joined, Memory, RunState
from holdfast._workflows.operations import Plain, Work
from holdfast.errors import ResultError, StepResultMismatch

T = TypeVar("T")


class Unremembered(BaseException):
    """Raised by the first step without a memory, which ends the replay."""


class ReplayedMemory(Memory):
    """A memory without room for another step. It notes what does not fit the code."""

    def __init__(self, clock: float) -> None:
        super().__init__((), clock)
        self.first_new: str | None = None
        self.misfits: list[str] = []

    def check_room(self, name: str, number: int) -> None:
        del number
        if not name.startswith("since "):
            self.stop_at(name)

    def value_of(self, fact: StepFact, codec: ResultCodec, adapt: Callable[[Any], Any] | None = None) -> Any:
        try:
            return super().value_of(fact, codec, adapt)
        except StepResultMismatch:
            self.misfits.append(fact.name)
            raise

    def join_value(self, join: Joined, fact: StepFact) -> Any:
        children = self.children.get(fact.name)
        if children is not None and children.is_partial:  # only a worker reads large results
            self.stop_at(fact.name)
        try:
            return super().join_value(join, fact)
        except (ResultError, StepResultMismatch) as error:
            self.misfits.append(fact.name)
            raise StepResultMismatch(f"the tasks of {fact.name} do not fit") from error

    def stop_at(self, name: str) -> NoReturn:
        self.first_new = self.first_new or name
        raise Unremembered(name)


class Replaying(Driver):
    """Does nothing: whatever would have to happen ends the replay. What the run keeps is dropped."""

    def __init__(self, state: RunState, *, is_async: bool) -> None:
        super().__init__(state)
        self.is_async = is_async
        self._root = asyncio.current_task() if is_async else None

    def call(self, method: str, about: Any, work: Work[Any]) -> Any:
        if not self.is_async:
            return self.run(work)
        return AwaitedCall(self.calls, CallSite(method, about), self.arun, work)

    def run(self, work: Work[T]) -> T:
        try:
            operation = next(work)
            while operation in (Plain.FLUSH, Plain.ONLY_WAITS):
                operation = work.send(None)
            work.throw(Unremembered(operation))
            raise Unremembered(operation)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def arun(self, work: Work[T]) -> T:
        return self.run(work)

    def user(self) -> tuple[Any, Any]:
        return (asyncio.current_task(), self._root) if self.is_async else (None, None)
