"""The children of a run: `ctx.start`, `ctx.map`, `ctx.first`, `ctx.batch.add` and `ctx.after`."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast._engine.enqueue import NewTask
from holdfast._engine.steps import StartingStep
from holdfast._workflows.children import NO_CHILDREN, Children
from holdfast._workflows.ends import Stopped
from holdfast._workflows.facts import StepFact
from holdfast._workflows.joins import (
    ChildTask,
    Join,
    added_handles,
    check_added,
    name_of_child,
    results_before,
    started_id,
    tasks_json,
)
from holdfast._workflows.memory import Memory
from holdfast._workflows.operations import Pause, Plain, Start, Work
from holdfast._workflows.step import RunLog, timeout_of


class ChildCalls:
    def __init__(self, log: RunLog) -> None:
        self._log = log

    def start(self, task: ChildTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name, number = self._log.begin(name_of_child(task))
        built = task.build(*args, **kwargs)
        return self._log.driver.call("ctx.start", name, self._start(task, built, name, number))

    def map(self, task: ChildTask, join: Join, timeout: float | timedelta | None) -> Any:
        seconds = timeout_of(timeout)
        name, number = self._log.begin(name_of_child(task))
        return self._log.driver.call("ctx.map", name, self._join(join, seconds, name, number))

    def first(self, join: Join, timeout: float | timedelta | None, name: str | None) -> Any:
        seconds = timeout_of(timeout)
        return self._log.driver.call(
            "ctx.first", name, self._join(join, seconds, *self._log.begin(name or "first"))
        )

    def add_to_batch(self, tasks: Sequence[Any], name: str) -> Any:
        check_added(tasks)
        return self._log.driver.call("ctx.batch.add", None, self._add_to_batch(tasks, *self._log.begin(name)))

    def after(self, kinds: Sequence[Any]) -> Any:
        return self._log.driver.call("ctx.after", None, self._after(kinds))

    def _start(self, task: ChildTask, built: NewTask, name: str, number: int) -> Work[Any]:
        memory = yield from self._log.load()
        fact = memory.steps.get(name)
        if fact is not None:
            return task.handle(started_id(fact))
        [task_id] = yield from self._send_children(memory, StartingStep(name, number), [built])
        return task.handle(task_id)

    def _add_to_batch(self, tasks: Sequence[Any], name: str, number: int) -> Work[list[Any]]:
        memory = yield from self._log.load()
        fact = memory.steps.get(name)
        if fact is not None:
            return added_handles(name, tasks, fact)
        if not tasks:
            return []
        task_ids = yield from self._send_children(memory, StartingStep(name, number, batch=True), tasks)
        return [task.handle(task_id) for task, task_id in zip(tasks, task_ids, strict=True)]

    def _after(self, kinds: Sequence[Any]) -> Work[list[Any]]:
        """Of the tasks that `after=` named, which are the children of no step."""
        yield Plain.ONLY_WAITS
        memory = yield from self._log.load()
        return results_before(memory.children.get("", NO_CHILDREN), kinds)

    def _join(self, join: Join, seconds: float, name: str, number: int) -> Work[Any]:
        memory = yield from self._log.load()
        fact = memory.steps.get(name)
        if fact is not None:
            return memory.join_value(join, fact)
        if name not in memory.children and join.count:
            started = yield from self._send_children(memory, join.step(name, number), join.build())
            memory.children[name] = Children.started(started, join.keys)
        yield Plain.ONLY_WAITS
        until = memory.join_until(name, self._log.state.now() + seconds)
        while not join.is_over(children := memory.children.get(name, NO_CHILDREN)):
            if self._log.state.now() >= until:
                raise self._log.timed_out(name, number, join.kind, until - seconds)
            yield Pause(join.wait(name, until, children), looks=True)
            yield Plain.READ
        fact = StepFact(name, join.kind, None, join.memo(children), None)
        self._log.keep(name, number, join.kind, fact.result, took=self._log.took(until - seconds))
        self._log.driver.send_soon()
        return memory.join_value(join, fact)

    def _send_children(
        self, memory: Memory, step: StartingStep, built: Sequence[NewTask]
    ) -> Work[Sequence[str]]:
        yield Plain.FLUSH
        self._log.check_room(memory, step.name, step.number)
        verdict, task_ids, error = yield Start(step, *tasks_json(built, self._log.state.now()))
        if verdict not in ("started", "already"):
            raise error or Stopped(self._log.state.task.stop or verdict)
        return task_ids  # type: ignore[no-any-return] # the driver sends it
