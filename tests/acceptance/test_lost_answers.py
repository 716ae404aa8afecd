"""The connection breaks between a commit and its response: the caller repeats the call."""

from collections import Counter
from time import sleep

import psycopg
import pytest

from acceptance.checker import lost_by_the_living
from acceptance.ground import Ground
from acceptance.trial import chance, counted, sized, tell, trial
from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from support import races
from support.database import Database
from support.engine import value
from support.interleaving import Call, History, Side, Theatre
from support.start_states import Stage
from support.wire import Moment, Wire

ROUNDS = sized(1, 2, 10)
WORKERS = {"HOLDFAST_LEASE": 2.0, "HOLDFAST_HEARTBEAT": 0.5, "WORKER_CONCURRENCY": 10}


def ask(wire: Wire, statement: str) -> None:
    with psycopg.connect(wire.dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def ask_and_never_hear(wire: Wire, statement: str, moment: Moment) -> None:
    with psycopg.connect(wire.dsn, autocommit=True) as connection:
        wire.cut_at(moment)
        with pytest.raises(psycopg.OperationalError):
            connection.execute(statement.encode())


def repeated(theatre: Theatre, wire: Wire, state: str, side: Side, moment: Moment) -> History:
    """What comes of a call that was cut at this moment, and was made again."""
    theatre.stage.load(state)
    ask_and_never_hear(wire, theatre.statement(state, side), moment)
    told = theatre.session(side.name).run(theatre.statement(state, side))
    return theatre.history(state, {side.name: told})


def states_of(call: Call) -> list[str]:
    if call in races.ON_TASKS:
        return races.TASK_STATES
    return races.QUEUE_STATES if call in races.ON_QUEUES else races.WORKER_STATES


@trial("P7", quick=True)
@pytest.mark.timeout(900)
@pytest.mark.full
def test_a_call_whose_answer_was_lost_can_be_repeated_whatever_it_was(db: Database) -> None:
    """Whether it was done or not, after the second call all is as after one."""
    stage = Stage(db.connect())
    races.build(stage)
    theatre = Theatre(db, stage)
    cases = [
        (state, side)
        for side in (Side("a", call) for call in races.EVERY)
        for state in states_of(side.call)
        if theatre.acts(state, side)
    ]
    answers: Counter[str] = Counter()
    with Wire(db.dsn, chance("wire")).running() as wire:
        for _ in range(ROUNDS):
            for state, side in cases:
                once = theatre.one_by_one(state, (side,))
                undone = repeated(theatre, wire, state, side, "before")
                assert undone == once, f"{side.call} from {state}, not done at first"
                done = repeated(theatre, wire, state, side, "after")
                assert done.picture == once.picture, f"{side.call} from {state}, done at first"
                answers["the same" if done.answers == once.answers else "that it is done already"] += 1
    calls = len({side.call for _, side in cases})
    tell(
        f"{calls} calls in {len(cases)} states, each cut {ROUNDS} times before it was done and as often "
        f"after that, {wire.cuts} cuts, none done twice; second answers: {counted(answers)}"
    )
    assert wire.cuts == 2 * ROUNDS * len(cases)


@trial("P2", "P7", quick=True)
def test_a_commit_whose_answer_was_lost_can_be_repeated_under_the_same_key(db: Database) -> None:
    """The caller's own transaction, with what it wrote itself."""
    admin, rounds = db.connect(), sized(3, 10, 100)
    admin.execute("create table booking (number integer primary key)")

    def book(connection: psycopg.Connection[tuple[object, ...]], number: int, *, commit: bool = True) -> None:
        with connection.transaction(force_rollback=not commit):
            connection.execute("insert into booking values (%s) on conflict do nothing", [number])
            Engine(connection).run(
                enqueue.enqueue(NewTask("default.work", {"n": number}, idempotency_key=f"k{number}"))
            )

    with Wire(db.dsn, chance("wire")).running() as wire:
        for number in range(rounds):
            moment: Moment = "after" if number % 2 else "before"
            with psycopg.connect(wire.dsn, autocommit=True) as connection:
                wire.cut_at(moment, only=b"COMMIT")
                with pytest.raises(psycopg.OperationalError):
                    book(connection, number)
            kept = value(admin, "select count(*) from booking") - number
            assert kept == (moment == "after")
            assert value(admin, "select count(*) from queues.task") == number + kept
            with psycopg.connect(wire.dsn, autocommit=True) as connection:
                book(connection, number)
                book(connection, -1, commit=False)
    tell(
        f"{rounds} transactions cut at their commit, half of them after it: {rounds} bookings, one task each"
    )
    assert value(admin, "select count(*) from booking") == rounds
    assert value(admin, "select count(*) from queues.task") == rounds


@trial("P1", "P2", "P3", "P7", quick=True)
@pytest.mark.timeout(300)
def test_nothing_is_lost_or_done_twice_when_answers_are_lost_all_the_time(ground: Ground) -> None:
    """Clients and workers alike: every fiftieth statement is done, and its answer never comes."""
    with Wire(ground.database.dsn, chance("wire")).running() as wire:
        producer = ground.producer(per_second=60, seconds=(0.0, 0.02, 0.1), through=wire.port)
        ground.fleet.start(2, WORKERS | {"DATABASE_URL": ground.through(wire.port, "holdfast_worker")})
        with producer.producing():
            wire.cut_some(0.02)
            sleep(sized(2, 8, 60))
            wire.cut_some(0)
        ground.quiesce()
        verdict = ground.check(producer)
    tell(
        f"{len(producer.acknowledged)} tasks, {wire.cuts} answers lost, {producer.repeated} calls of clients "
        f"repeated, {lost_by_the_living(ground.conn, ground.fleet)} leases ended, {verdict.reruns} handlers "
        f"ran again, at most {verdict.most_attempts} attempts"
    )
    assert wire.cuts > 0
    assert ground.fleet.all == ground.fleet.running
