"""Builds the parts of a worker, each complete, in the order in which they need each other."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.connections.listener import WakeupListener
from holdfast.connections.session import CLIENT_ROLE
from holdfast.connections.worker_connection import WorkerConnection
from holdfast.executors.executor import Executor
from holdfast.logs import Log, is_for_people
from holdfast.settings import Settings
from holdfast.worker.attempts import Attempts
from holdfast.worker.claiming import Claimer, ClaimLoop
from holdfast.worker.duties import UnservedQueues, build_duties
from holdfast.worker.executors import database_executors, isolated_executors
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.held_jobs import HeldJobs
from holdfast.worker.job import DatabaseClock, Job
from holdfast.worker.job_transaction import JobTransaction
from holdfast.worker.leader import MARGIN, Candidate, Leader
from holdfast.worker.metrics import Metrics
from holdfast.worker.registration import Registration
from holdfast.worker.reporting import Reporter
from holdfast.worker.running import Runner
from holdfast.worker.settling import KilledRuns, Releaser, Settler
from holdfast.worker.subscription import WorkerApp, concerns, queues_of
from holdfast.worker.wakeups import WakeupThrottle
from holdfast.worker.watchdog import TICK_SECONDS, EmergencyExit, Watchdog, WatchedHandler, call_in_loop

MAX_UNSETTLED = 10_000


@dataclass(frozen=True, slots=True)
class WorkerDeps:
    """What most parts of a worker need."""

    app: WorkerApp
    url: str
    worker_id: str
    settings: Settings
    stopping: asyncio.Event
    loop: asyncio.AbstractEventLoop
    log: Log
    metrics: Metrics
    clock: DatabaseClock
    reporter: Reporter

    def connection(self, name: str) -> WorkerConnection:
        return WorkerConnection(self.url, self.log, name, self.metrics.reconnected, self.stopping)

    def client_connection(self) -> WorkerConnection:
        return WorkerConnection(
            self.url, self.log, "declare", self.metrics.reconnected, self.stopping, role=CLIENT_ROLE
        )


@dataclass(frozen=True, slots=True)
class WorkerParts:
    connections: tuple[WorkerConnection, ...]
    claimer: Claimer
    registration: Registration
    jobs: HeldJobs
    runner: Runner
    claim_loop: ClaimLoop
    settler: Settler
    releaser: Releaser
    killed: KilledRuns
    listener: WakeupListener
    throttle: WakeupThrottle
    heartbeat: Heartbeat
    leader: Leader
    unserved: UnservedQueues
    watchdog: Watchdog
    emergency_exit: EmergencyExit


def build_parts(
    deps: WorkerDeps,
    *,
    stuck: Callable[[WatchedHandler], None],
    when_blocked: Callable[[], None],
    every_tick: Callable[[], None],
) -> WorkerParts:
    """The watchdog's thread calls the three functions; `stuck` for a handler that cannot be interrupted."""
    settings, worker_id, log, metrics = deps.settings, deps.worker_id, deps.log, deps.metrics
    claiming, settling, listening, throttling = (
        deps.connection(name) for name in ("claim", "settle", "listen", "wakeups")
    )
    registration = Registration(
        deps.app, settings, worker_id, connection=claiming, open_as_client=deps.client_connection, log=log
    )
    claimer = Claimer(
        claiming, worker_id, settings, register=registration.statement, clock=deps.clock, metrics=metrics
    )
    throttle = WakeupThrottle(throttling, worker_id, queues_of(settings), log)
    listener = WakeupListener(listening, log, concerns=concerns(settings), on_wakeup=throttle.count_wakeup)
    releaser = Releaser(settling, worker_id, log, metrics)
    killed = KilledRuns(settling, worker_id, log)
    jobs = HeldJobs(
        concurrency=settings.worker_concurrency,
        lease=settings.lease,
        release=releaser.release_soon,
        wake=listener.woken.set,
        log_tasks=logs_tasks(settings),
        log=log,
        metrics=metrics,
    )
    settler = Settler(settling, worker_id, log, metrics, jobs.settled)
    unserved = UnservedQueues(log)
    leader = Leader(url=deps.url, duties=build_duties(log, unserved), log=log)
    heartbeat = _build_heartbeat(
        deps, jobs=jobs, registration=registration, claimer=claimer, listener=listener, leader=leader
    )
    watchdog = Watchdog(
        deps.loop,
        tick=_tick_of(settings),
        stuck=stuck,
        job_of=jobs.job_of,
        when_blocked=when_blocked,
        chores=(heartbeat.check_deadline, leader.check_deadline, every_tick),
        log=log,
    )
    runner = _build_runner(
        deps, jobs=jobs, settler=settler, killed=killed, heartbeat=heartbeat, watchdog=watchdog
    )
    claim_loop = ClaimLoop(
        claimer,
        jobs=jobs,
        take=runner.take,
        listener=listener,
        poll_seconds=settings.poll_interval.total_seconds(),
        stopping=deps.stopping,
        # A task that could not be reported or renewed should not be started.
        must_hold=lambda: settler.failing or heartbeat.failing or settler.unsettled > MAX_UNSETTLED,
        log=log,
    )
    emergency_exit = EmergencyExit(
        url=deps.url,
        worker_id=worker_id,
        handlers=deps.app.handlers,
        held=lambda: list(jobs.held),
        reporter=deps.reporter,
        log=log,
    )
    return WorkerParts(
        connections=(claiming, settling, listening, throttling),
        claimer=claimer,
        registration=registration,
        jobs=jobs,
        runner=runner,
        claim_loop=claim_loop,
        settler=settler,
        releaser=releaser,
        killed=killed,
        listener=listener,
        throttle=throttle,
        heartbeat=heartbeat,
        leader=leader,
        unserved=unserved,
        watchdog=watchdog,
        emergency_exit=emergency_exit,
    )


def logs_tasks(settings: Settings) -> bool:
    """Whether each finished task is logged: by default only for people, because machines have metrics."""
    if settings.worker_log_tasks == "auto":
        return is_for_people(settings.log_format)
    return settings.worker_log_tasks == "always"


def _build_heartbeat(
    deps: WorkerDeps,
    *,
    jobs: HeldJobs,
    registration: Registration,
    claimer: Claimer,
    listener: WakeupListener,
    leader: Leader,
) -> Heartbeat:
    def look_again() -> None:
        claimer.forget_idle()
        listener.woken.set()

    settings = deps.settings
    # The next leader recovers what a dead leader held: a term must not outlast the timeout of a worker.
    term = min(settings.term, settings.worker_timeout)
    return Heartbeat(
        url=deps.url,
        worker_id=deps.worker_id,
        interval=settings.heartbeat,
        lease=settings.lease,
        jobs=jobs,
        stop=functools.partial(call_in_loop, deps.loop, jobs.stop),
        register=registration.statement,
        registered_again=functools.partial(call_in_loop, deps.loop, look_again),
        candidate=Candidate(deps.worker_id, term, leader, deps.log),
        clock=deps.clock,
        log=deps.log,
        metrics=deps.metrics,
    )


def _tick_of(settings: Settings) -> float:
    """Often enough to act between half a lease and its end, and within the margin of a term."""
    lease, term = settings.lease.total_seconds(), settings.term.total_seconds()
    return min(TICK_SECONDS, lease / 8, term * MARGIN / 2)


def _build_runner(
    deps: WorkerDeps,
    *,
    jobs: HeldJobs,
    settler: Settler,
    killed: KilledRuns,
    heartbeat: Heartbeat,
    watchdog: Watchdog,
) -> Runner:
    settled = functools.partial(call_in_loop, deps.loop, jobs.settled)
    attempts = Attempts(
        worker_id=deps.worker_id,
        middlewares=deps.app.middlewares,
        reporter=deps.reporter,
        watch=watchdog,
        open_transaction=functools.partial(JobTransaction, deps.url),
        settled=settled,
        send_progress=lambda _job: heartbeat.send_progress_soon(),
        log=deps.log,
    )
    return Runner(
        jobs,
        worker_id=deps.worker_id,
        handlers=deps.app.handlers,
        executors=_executors(deps, killed, heartbeat, settled),
        attempts=attempts,
        reporter=deps.reporter,
        add_report=settler.add,
        renew=heartbeat.renew_in_time,
        log=deps.log,
    )


def _executors(
    deps: WorkerDeps, killed: KilledRuns, heartbeat: Heartbeat, settled: Callable[[Job, str], object]
) -> Mapping[str, Executor[Job]]:
    in_database = database_executors(
        url=deps.url,
        worker_id=deps.worker_id,
        settings=deps.settings,
        reporter=deps.reporter,
        settled=settled,
        log=deps.log,
    )
    in_child_processes = isolated_executors(
        app=deps.app,
        worker_id=deps.worker_id,
        settings=deps.settings,
        send_progress=heartbeat.send_progress_soon,
        record_killed=killed.record,
        log=deps.log,
    )
    return {**in_database, **in_child_processes}
