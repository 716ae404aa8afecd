"""Several real sessions in every order: no deadlocks, and every result has a serial equivalent.

A transaction that only began has read nothing under READ COMMITTED. So of the twenty orders of twice (begin,
call, end) those differ that order (call, end) differently: two are serial and tell what is allowed, four are
not. `HOLDFAST_EVERY_SCHEDULE=1` plays all twenty.
"""

import os
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from typing import Any

import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer
from support import races
from support.database import cloned_database
from support.interleaving import Call, Side, Steps, Theatre, ends, opened
from support.start_states import Stage

EVERY_SCHEDULE = bool(os.environ.get("HOLDFAST_EVERY_SCHEDULE"))
FIRST_LOOK = {"claim", "claim within limits", "finish succeeded", "sweep"}
"""Paired with every other call also by `make test`; every call is by `make test-full`."""
GATED = {"ready", "lease", "outcome", "deletion", "task_key"}


@pytest.fixture(scope="module")
def theatre(server: EmbeddedServer, template: str) -> Iterator[Theatre]:
    with cloned_database(server, template) as database:
        stage = Stage(database.connect())
        races.build(stage)
        yield Theatre(database, stage)


@pytest.fixture(autouse=True)
def _count(theatre: Theatre, record_property: Callable[[str, object], None]) -> Iterator[None]:
    before = theatre.played
    yield
    record_property("schedules", theatre.played - before)


def states_of(theatre: Theatre, one: Call, other: Call) -> list[str]:
    """Where they can meet: in states in which at least one of them changes something."""
    kinds = [races.ON_TASKS, races.ON_QUEUES, races.ON_WORKERS]
    first, second = sorted(next(n for n, kind in enumerate(kinds) if call in kind) for call in (one, other))
    states = {
        (0, 0): races.KEY_STATES if {one, other} & {*races.ON_KEYS} else races.TASK_STATES,
        (0, 1): races.QUEUE_STATES,
        (1, 1): races.QUEUE_STATES,
        (0, 2): ["leased"],
        (1, 2): ["due"],
        (2, 2): races.WORKER_STATES,
    }[first, second]
    sides = Side("a", one), Side("b", other)
    return [state for state in states if any(theatre.acts(state, side) for side in sides)]


def cases(calls: list[Call]) -> list[Any]:
    return [
        pytest.param(call, id=str(call), marks=() if call.name in FIRST_LOOK else pytest.mark.full)
        for call in calls
    ]


def lock(table: str, task: str) -> Side:
    statement = f"select from queues.{table} where task_id = '{{{task}_id}}' for update"
    return Side("gate", Call(f"lock {table} of {task}", statement))


def every_order(a: Side, b: Side) -> Iterator[Steps]:
    """All twenty ways to merge begin, call and commit of two sessions."""
    for places in combinations(range(6), 3):
        steps = {True: iter([*opened(a), (a, "commit")]), False: iter([*opened(b), (b, "commit")])}
        yield [next(steps[place in places]) for place in range(6)]


@pytest.mark.parametrize("one", cases(races.EVERY))
def test_two_calls_in_open_transactions(theatre: Theatre, one: Call) -> None:
    for other in races.EVERY[races.EVERY.index(one) :]:
        a, b = Side("a", one), Side("b", other)
        for state in states_of(theatre, one, other):
            if EVERY_SCHEDULE:
                for steps in every_order(a, b):
                    theatre.play(state, steps)
            for first, second in [(a, b), (b, a)] if one is not other else [(a, b)]:
                waited = set[str]()
                for possible, end in ends(first, second):
                    if possible or not waited:
                        waited |= theatre.play(state, [*opened(first), *opened(second), *end])
                assert not (waited and second.call.waits_for_nobody), f"{second.call} waits for {first.call}"


@pytest.mark.parametrize("one", cases(races.WITH_LIMITS))
def test_two_calls_where_a_limit_binds(theatre: Theatre, one: Call) -> None:
    """Never two of a key at once, never more than the rate, and no task in a lane that is gone."""
    for other in races.WITH_LIMITS[races.WITH_LIMITS.index(one) :]:
        a, b = Side("a", one), Side("b", other)
        for state in races.LIMITED_STATES:
            if any(theatre.acts(state, side) for side in (a, b)):
                for first, second in [(a, b), (b, a)] if one is not other else [(a, b)]:
                    for how in ("commit", "rollback"):
                        end = [(first, how), (second, "commit")]
                        theatre.play(state, [*opened(first), *opened(second), *end])


@pytest.mark.parametrize("ask", ["enqueue", "enqueue_many"])
@pytest.mark.parametrize("state", ["key idle", "key idle and found so"])
def test_a_lane_never_goes_while_somebody_may_put_a_task_there(
    theatre: Theatre, ask: str, state: str
) -> None:
    """Two transactions tidy, each in its own time, while a third one enqueues for the key."""
    tidy = next(call for call in races.WITH_LIMITS if call.name == "tidy_lanes")
    asked = next(call for call in races.WITH_LIMITS if call.name == f"{ask} with a concurrency key")
    sides = [Side("a", tidy), Side("b", asked), Side("c", tidy)]
    steps = [[(side, "begin"), (side, "call"), (side, "commit")] for side in sides]
    orders = set(permutations([side for side in range(3) for _ in range(2)]))
    for order in sorted(orders):
        ways = [iter(way[1:]) for way in steps]
        theatre.play(state, [*(way[0] for way in steps), *(next(ways[side]) for side in order)])


@pytest.mark.full
@pytest.mark.parametrize("stopped", cases(races.ON_TASKS))
def test_a_call_that_another_overtakes_half_way(theatre: Theatre, stopped: Call) -> None:
    """A third session holds a table: the call stops where it first needs it, and goes on afterwards."""
    behind = Side("b", stopped)
    for state in races.TASK_STATES:
        for table in theatre.tables(state, behind) & GATED:
            gate = Side("gate", Call(f"lock {table}", f"lock table queues.{table} in access exclusive mode"))
            for ahead in [Side("a", call) for call in races.ON_TASKS]:
                if state in states_of(theatre, ahead.call, stopped) and theatre.acts(state, ahead):
                    end = [(ahead, "commit"), (gate, "rollback"), (behind, "commit")]
                    theatre.play(state, [*opened(ahead), *opened(gate), *opened(behind), *end])


@pytest.mark.parametrize("one", cases(races.ON_TASKS))
def test_two_calls_that_queue_for_the_same_row(theatre: Theatre, one: Call) -> None:
    for other in races.ON_TASKS[races.ON_TASKS.index(one) :]:
        a, b = Side("a", one), Side("b", other)
        for state in states_of(theatre, one, other):
            for table in theatre.tables(state, a) & theatre.tables(state, b) & theatre.rows(state):
                gate = lock(table, "t")
                for first, second in [(a, b), (b, a)]:
                    end = [(gate, "rollback"), (first, "commit"), (second, "commit")]
                    theatre.play(state, [*opened(gate), *opened(first), *opened(second), *end])


@pytest.mark.parametrize("one", cases(races.IN_BATCHES))
def test_two_batches_over_the_same_tasks(theatre: Theatre, one: Call) -> None:
    """In opposite orders of their elements, and stopped in the middle by who holds one of the rows."""
    nothing = Side("gate", Call("nothing", "select"))
    for other in races.IN_BATCHES[races.IN_BATCHES.index(one) :]:
        a, b = Side("a", one), Side("b", other)
        for state in races.BATCH_STATES[: 1 if {one, other} & {*races.KEY_BATCHES} else None]:
            locks = [lock(table, task) for table in sorted(theatre.rows(state)) for task in "tu"]
            for gate in [nothing, *locks]:
                for first, second in [(a, b), (b, a)]:
                    end = [(gate, "rollback"), (first, "commit"), (second, "commit")]
                    steps = [*opened(gate), *opened(first), *opened(second), *end]
                    theatre.play(state, steps, loosely=one.waits_for_nobody or other.waits_for_nobody)


@pytest.mark.parametrize(
    ("names", "state"),
    [
        ("cancel, finish succeeded, sweep", "expired"),
        ("heartbeat, recover_workers, sweep", "expired"),
        ("finish retry, recover_workers, restore_task", "deleted while expired"),
        ("cancel, finish retry, sweep", "last attempt expired"),
        ("heartbeat, finish retry, sweep", "expired"),
        ("delete_task, finish retry, restore_task", "leased"),
        ("delete_task, finish retry, restore_task", "deleted while leased"),
        ("release, sweep, restore_task", "deleted while expired"),
        ("release, delete_task, claim", "leased"),
        ("delete_task, retry, claim", "failed"),
        ("delete_task, retry, prune failed", "failed"),
        ("restore_task, enqueue, prune deleted", "deleted when failed"),
        ("restore_task, cancel, prune deleted", "parked"),
        ("delete_task, retry, restore_task", "deleted when failed"),
        ("cancel, delete_task, restore_task", "parked"),
        ("cancel, reschedule, claim", "due"),
        ("delete_task, restore_task, enqueue", "due"),
        ("delete_task, restore_task, enqueue_many", "parked"),
    ],
)
def test_three_calls_at_once(theatre: Theatre, names: str, state: str) -> None:
    sides = [Side(side, races.NAMED[name]) for side, name in zip("abc", names.split(", "), strict=True)]
    for calls in permutations(sides):
        for commits in permutations(sides):
            steps = [step for side in calls for step in opened(side)]
            theatre.play(state, [*steps, *((side, "commit") for side in commits)])


@pytest.mark.full
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
@pytest.mark.parametrize("one", cases(races.ON_TASKS))
def test_two_calls_that_may_fail_to_serialize(theatre: Theatre, one: Call, isolation: str) -> None:
    """With snapshots from the beginning: at worst, one session gets a serialization failure."""
    for other in races.ON_TASKS[races.ON_TASKS.index(one) :]:
        sides = Side("a", one), Side("b", other)
        for state in {"due", "expired", "failed", "parked"} & {*states_of(theatre, one, other)}:
            for first, second in permutations(sides):
                begins = [(first, "begin"), (second, "begin"), (first, "call")]
                early = [(first, "commit"), (second, "call"), (second, "commit")]
                late = [(second, "call"), (first, "commit"), (second, "commit")]
                theatre.play(state, [*begins, *early], isolation)
                theatre.play(state, [*begins, *late], isolation)
