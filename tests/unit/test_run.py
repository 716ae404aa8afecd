"""The calls of a run, performed by hand: which operations they ask for, in which order, without any I/O."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._workflows.drivers import Driver
from holdfast._workflows.memory import RunState, StepMemo
from holdfast._workflows.operations import Call, Delay, Pause, Plain, Start, Work
from holdfast._workflows.run import Run
from holdfast._workflows.step import check_not_inside
from holdfast.errors import RunTooLong, StepFailed
from holdfast.retry import Linear

LIMITS = {"max_steps": 3, "max_memo_bytes": 1000, "max_result_bytes": 1000}
OPTIONS: dict[str, Any] = {"key": None, "retry": None, "timeout": None, "lazy": False, "adapt": None}


class ByHand(Driver):
    """Hands out the work of each call."""

    is_async = True

    def call(self, method: str, about: Any, work: Work[Any]) -> Any:
        del method, about
        return work


def charge(n: int) -> int:
    return n + 1


def opened(*rows: tuple[Any, ...], clock: float = 100.0) -> tuple[Run, RunState]:
    state = RunState(SimpleNamespace(type="work", calls=None, stop=None))
    run = ("run", None, None, None, 1.0, None, json.dumps(LIMITS), None)
    state.remember([run, *rows], clock)
    return Run(state, ByHand(state), lambda: SimpleNamespace(record_step_arguments=False)), state


def result_of(work: Work[Any], value: Any) -> Any:
    with pytest.raises(StopIteration) as end:
        work.send(value)
    return end.value.value


def test_a_step_is_called_and_its_result_is_kept() -> None:
    run, state = opened()
    work = run.steps.step(charge, (1,), retries=0, **OPTIONS)
    assert next(work) == Call(charge, (1,), is_async=False)
    assert result_of(work, 2) == 2
    assert [(memo.name, memo.result) for memo in state.steps] == [("charge", "2")]


def test_a_step_reads_the_memory_first_and_waits_for_the_step_before_it() -> None:
    state = RunState(SimpleNamespace(type="work", calls=None, stop=None))
    run = Run(state, ByHand(state), lambda: None)
    work = run.steps.step(charge, (1,), retries=0, **OPTIONS)
    assert next(work) is Plain.READ
    state.remember([("run", None, None, None, 1.0, None, json.dumps(LIMITS), None)], 100.0)
    state.keep(StepMemo("before", 1, "step", result="1"))
    assert work.send(None) is Plain.FLUSH
    assert isinstance(work.send(None), Call)


def test_a_remembered_step_asks_for_nothing() -> None:
    run, _ = opened(("step", "charge", 1, "step", None, None, "7", None))
    assert result_of(run.steps.step(charge, (1,), retries=0, **OPTIONS), None) == 7


def test_a_failed_try_is_kept_before_the_delay_and_the_last_one_is_raised() -> None:
    run, state = opened()
    work = run.steps.step(charge, (1,), retries=1, **OPTIONS | {"retry": Linear(step=1, jitter=0)})
    assert isinstance(next(work), Call)
    assert isinstance(work.throw(ValueError("declined")), Delay)
    assert [one.number for one in state.tries] == [1]
    assert work.send(None) is Plain.FLUSH
    assert isinstance(work.send(None), Call)
    with pytest.raises(StepFailed, match="declined"):
        work.throw(ValueError("declined"))
    assert [memo.tries for _, memo in state.failures] == [2]


def test_a_step_is_refused_before_it_runs_if_it_could_not_be_recorded() -> None:
    run, _ = opened()
    for n in range(3):
        work = run.steps.step(charge, (n,), retries=0, **OPTIONS)
        assert isinstance(next(work), Call)
        work.close()
    with pytest.raises(RunTooLong):
        next(run.steps.step(charge, (4,), retries=0, **OPTIONS))


def test_a_step_that_is_left_in_its_middle_is_not_inside_any_more() -> None:
    run, _ = opened()
    work = run.steps.step(charge, (1,), retries=0, **OPTIONS)
    next(work)
    work.close()
    check_not_inside("the next one")


def test_a_sleep_is_kept_once_and_pauses_until_it_is_over() -> None:
    run, state = opened()
    work = run.waits.sleep(60, None)
    assert next(work) is Plain.ONLY_WAITS
    pause = work.send(None)
    assert isinstance(pause, Pause)
    assert state.steps[0].until == pause.wait.until == pytest.approx(160, abs=1)
    assert work.send(None) == pause
    state.skip_to(pause.wait.until)
    assert result_of(work, None) is None


def test_a_wait_looks_again_after_each_pause_and_takes_a_signal_once() -> None:
    run, state = opened()
    work = run.waits.wait("decision", str, None)
    assert next(work) is Plain.ONLY_WAITS
    pause = work.send(None)
    assert isinstance(pause, Pause)
    assert pause.looks
    assert work.send(None) is Plain.READ
    assert state.signals == ["decision"]
    state.remember([("signal", "decision", None, None, None, 5, '"yes"', None)], 101.0)
    assert result_of(work, None) == "yes"
    assert [memo.signal_id for memo in state.steps] == [5]
    assert state.signals == []


def test_a_child_is_started_after_what_came_before_is_on_disk() -> None:
    run, _ = opened()
    task = SimpleNamespace(
        handler=SimpleNamespace(function=charge, type="charge"),
        build=lambda n: SimpleNamespace(type="charge", payload=str(n), options={}, idempotency_key=None),
        handle=str,
    )
    work = run.children.start(task, (1,), {})
    assert next(work) is Plain.FLUSH
    started = work.send(None)
    assert isinstance(started, Start)
    assert (started.step.name, started.step.awaited) == ("charge", False)
    assert result_of(work, ("started", ["an id"], None)) == "an id"
