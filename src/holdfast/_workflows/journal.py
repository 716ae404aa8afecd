"""How a run reaches the database and its worker, wherever its handler runs."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from holdfast._engine.steps import StartingStep
from holdfast._workflows.memory import FailedStep, StepMemo

Read = Callable[[Sequence[Sequence[Any]] | None, float], None]
"""Is given the facts of the run and the time of the database; None if the task was taken from this worker."""

Recorded = Callable[[str, BaseException | None], None]
"""Is given a verdict of `record_steps`, or `refused` and the error."""

Started = Callable[[str, Sequence[str], BaseException | None], None]
"""Is given a verdict of `start_children` and the ids of the children, or `refused` and the error."""


class Journal(Protocol):
    """The memory of one run. Answers come in the event loop of a coroutine, or in any thread."""

    def read(self, done: Read, signals: Sequence[str] = ()) -> None:
        """Read what the run remembers, with the payloads of these signals, too."""

    def record(
        self, kept: Sequence[StepMemo], tries: Sequence[FailedStep], done: Recorded, *, lazy: bool
    ) -> None: ...

    def record_one(self, memo: StepMemo, done: Recorded) -> None:
        """The same for one plain step that is not lazy."""
        self.record([memo], (), done, lazy=False)

    def later(self, call: Callable[[], None]) -> None:
        """Call it before long, in any thread: it records what is kept. Else the next step or the end does."""
        del call

    def pump(self) -> bool:
        """Wait for an answer, and give it on. False if answers come by themselves."""
        return False

    def step_failed(self, failed: FailedStep) -> None:
        """A try failed: for the log and the metrics of a worker."""
        del failed

    def start(self, step: StartingStep, tasks: str, payloads: list[str] | None, done: Started) -> None:
        """Start children. `tasks` is JSON; `payloads` are JSON documents, as `enqueue_many` takes them."""


class Host(Protocol):
    """What runs the handler."""

    def cancel(self) -> None:
        """End the coroutine of the handler, because its run is suspended."""

    def skips(self, until: float) -> bool:
        """Whether this time of the database has come, because a test lets it pass at once."""
        del until
        return False

    def in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        """Call a plain function without blocking the event loop."""

    def limited(self, seconds: float, call: Callable[[], Any]) -> Any:
        """Call a plain function in this thread, and raise TimeoutError in it when the time is over."""

    def open_transaction(self) -> Any:
        """A transaction of the application, whose commit also records a step."""
