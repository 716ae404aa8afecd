"""What a worker is made of, and how the parts know each other."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.connections.listener import Listener
from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import Statement
from holdfast.engine.schedules import NewSchedule
from holdfast.executors.origin import find_origin
from holdfast.handler import Handler
from holdfast.logs import Log
from holdfast.middleware import Middleware
from holdfast.settings import Settings
from holdfast.worker.attempt import Attempts, ThreadPool
from holdfast.worker.business import business_executors
from holdfast.worker.claiming import Claimer, ClaimLoop, Demand
from holdfast.worker.duties import Unserved, build_duties
from holdfast.worker.executors import build_executors
from holdfast.worker.heartbeat import Beater, Hands
from holdfast.worker.job import DatabaseClock, Job, Stop
from holdfast.worker.job_transaction import JobTransaction
from holdfast.worker.leader import MARGIN, Candidate, Leader
from holdfast.worker.metrics import Metrics
from holdfast.worker.reporting import Reporter, RunEnds
from holdfast.worker.running import Runner
from holdfast.worker.settling import KilledRuns, Releaser, Settler
from holdfast.worker.subscription import concerns, queues_of
from holdfast.worker.wakeups import Door
from holdfast.worker.watchdog import TICK_SECONDS, LastResort, Watchdog, Watched

MAX_UNSETTLED = 10_000


class Registered(Protocol):
    """What a worker needs of an application."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...
    @property
    def name(self) -> str: ...
    @property
    def schedules(self) -> Mapping[str, NewSchedule]: ...
    @property
    def origin(self) -> str | None:
        """MODULE:NAME, if it was named so."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What every part stands on."""

    app: Registered
    url: str
    worker_id: str
    settings: Settings
    stopping: asyncio.Event
    log: Log
    metrics: Metrics
    stuck: Callable[[Watched], None]
    chores: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Parts:
    links: tuple[WorkerConnection, ...]
    claiming: WorkerConnection
    runner: Runner
    claim_loop: ClaimLoop
    settler: Settler
    listener: Listener
    door: Door
    releaser: Releaser
    killed: KilledRuns
    beater: Beater
    leader: Leader
    unserved: Unserved
    watchdog: Watchdog
    last_resort: LastResort


def assemble(ground: Ground, register: Callable[[], Statement[None]]) -> Parts:
    settings, log, metrics = ground.settings, ground.log, ground.metrics
    clock = DatabaseClock()
    reporter = Reporter(clock)
    demand = Demand(settings.worker_concurrency, settings.lease)
    claiming, settling, listening, ringing = (
        _link(ground, name) for name in ("claim", "settle", "listen", "door")
    )
    watchdog = _watchdog(ground)
    ends = RunEnds(reporter, log)
    runner, attempts = _runner(ground, reporter, ends, demand, watchdog)
    settler = Settler(settling, ground.worker_id, log, metrics, runner.settled)
    releaser = Releaser(settling, ground.worker_id, log, metrics)
    unserved = Unserved(log)
    leader = Leader(url=ground.url, duties=build_duties(log, unserved), log=log)
    beater = _beater(ground, register, runner, leader, clock)
    killed = KilledRuns(settling, ground.worker_id, log)
    door = Door(ringing, ground.worker_id, queues_of(settings), log)
    listener = Listener(listening, log, concerns=concerns(settings), knock=door.knock)
    claim_loop = ClaimLoop(
        Claimer(claiming, ground.worker_id, settings, clock, metrics),
        demand=demand,
        runner=runner,
        listener=listener,
        settings=settings,
        stopping=ground.stopping,
        # What could not be reported, or not be kept, is better not begun.
        must_hold=lambda: settler.failing or beater.failing or settler.unsettled > MAX_UNSETTLED,
        register=register,
        log=log,
    )
    runner.settler, runner.give_back, runner.expect = settler, releaser.release_soon, beater.expect
    runner.look_again = listener.woken.set
    attempts.tell_progress = beater.tell_progress
    ends.record_killed = killed.record
    beater.registered_again = functools.partial(_in_loop, asyncio.get_running_loop(), claim_loop.say_again)
    watchdog.job_of = runner.job_of
    watchdog.chores = (beater.look_after, leader.look_after, ground.chores)
    metrics.in_flight = lambda: len(runner.held)
    return Parts(
        links=(claiming, settling, listening, ringing),
        claiming=claiming,
        runner=runner,
        claim_loop=claim_loop,
        settler=settler,
        listener=listener,
        door=door,
        releaser=releaser,
        killed=killed,
        beater=beater,
        leader=leader,
        unserved=unserved,
        watchdog=watchdog,
        last_resort=LastResort(
            url=ground.url,
            worker_id=ground.worker_id,
            handlers=ground.app.handlers,
            held=lambda: list(runner.held),
            reporter=reporter,
            log=log,
        ),
    )


def _link(ground: Ground, name: str) -> WorkerConnection:
    return WorkerConnection(ground.url, ground.log, name, ground.metrics.reconnected, ground.stopping)


def _watchdog(ground: Ground) -> Watchdog:
    # Often enough to act between half a lease and its end, and in what a leader leaves of its term.
    lease, term = ground.settings.lease.total_seconds(), ground.settings.term.total_seconds()
    tick = min(TICK_SECONDS, lease / 8, term * MARGIN / 2)
    return Watchdog(asyncio.get_running_loop(), tick=tick, stuck=ground.stuck, log=ground.log)


def _runner(
    ground: Ground, reporter: Reporter, ends: RunEnds, demand: Demand, watchdog: Watchdog
) -> tuple[Runner, Attempts]:
    def settled(job: Job, verdict: str) -> None:
        _in_loop(loop, runner.settled, job, verdict)

    threads = ThreadPool()
    attempts = Attempts(
        worker_id=ground.worker_id,
        middlewares=ground.app.middlewares,
        reporter=reporter,
        threads=threads,
        watch=watchdog,
        open_transaction=functools.partial(JobTransaction, ground.url),
        settled=settled,
        log=ground.log,
    )
    loop = asyncio.get_running_loop()
    business = business_executors(
        url=ground.url,
        worker_id=ground.worker_id,
        settings=ground.settings,
        reporter=reporter,
        settled=settled,
        log=ground.log,
    )
    isolated = build_executors(
        worker_id=ground.worker_id,
        handlers=ground.app.handlers,
        find_origin=lambda: find_origin(ground.app, ground.app.origin),
        settings=ground.settings,
        reporter=reporter,
        ends=ends,
        tell_progress=lambda: attempts.tell_progress(),  # noqa: PLW0108 - it is set later
        log=ground.log,
    )
    runner = Runner(
        worker_id=ground.worker_id,
        handlers=ground.app.handlers,
        executors={**isolated, **business},
        attempts=attempts,
        threads=threads,
        concurrency=ground.settings.worker_concurrency,
        demand=demand,
        reporter=reporter,
        log=ground.log,
        metrics=ground.metrics,
    )
    return runner, attempts


def _beater(
    ground: Ground,
    register: Callable[[], Statement[None]],
    runner: Runner,
    leader: Leader,
    clock: DatabaseClock,
) -> Beater:
    loop = asyncio.get_running_loop()

    def stop(job: Job, why: Stop) -> None:
        _in_loop(loop, runner.stop, job, why)

    return Beater(
        url=ground.url,
        worker_id=ground.worker_id,
        interval=ground.settings.heartbeat,
        lease=ground.settings.lease,
        hands=Hands(held=lambda: list(runner.held), stop=stop, take_stale=runner.take_stale),
        register=register,
        candidate=_candidate(ground, leader),
        clock=clock,
        log=ground.log,
        metrics=ground.metrics,
    )


def _candidate(ground: Ground, leader: Leader) -> Candidate:
    # What a leader held that died is recovered by the next one: its term must not outlast its timeout.
    term = min(ground.settings.term, ground.settings.worker_timeout)
    return Candidate(ground.worker_id, term, leader, ground.log)


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *given: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed: the worker has ended
        loop.call_soon_threadsafe(call, *given)
