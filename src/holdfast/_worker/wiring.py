"""Builds the parts of a worker, each complete, in the order in which they need each other."""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass

from holdfast._connections.listener import WakeupListener
from holdfast._connections.session import CLIENT_ROLE, WORKER_ROLE
from holdfast._connections.worker_connection import Outage, WorkerConnection
from holdfast._telemetry.logs import Log, is_for_people
from holdfast._worker.activity import ActivityReporter
from holdfast._worker.attempts import Attempts, RunOpener
from holdfast._worker.chores import LateSweep
from holdfast._worker.claiming import Claimer, ClaimLoop
from holdfast._worker.duties import UnservedQueues, build_duties
from holdfast._worker.essential_thread import Failed
from holdfast._worker.executor import ExecutorWorker
from holdfast._worker.executors import Executors
from holdfast._worker.heartbeat import Heartbeat
from holdfast._worker.jobs import HeldJobs, Job, Looks, Slots
from holdfast._worker.leader import MARGIN, Candidate, Leader
from holdfast._worker.metrics import Metrics
from holdfast._worker.recording import LoopJournal, StepRecorder
from holdfast._worker.registration import Registration, StillRegistered
from holdfast._worker.releasing import KilledRuns, Releaser, StaleJobs
from holdfast._worker.report import DatabaseClock, Reporter
from holdfast._worker.running import Runner
from holdfast._worker.settling import JoinLooker, Settler
from holdfast._worker.subscription import WorkerApp, queues_of, queues_to_hear
from holdfast._worker.transactions import JobTransaction
from holdfast._worker.unhandled import UnhandledTasks
from holdfast._worker.wakeups import WakeupThrottle
from holdfast._worker.watchdog import TICK_SECONDS, EmergencyExit, Watchdog, WatchedHandler, call_in_loop
from holdfast.settings import Settings


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
    outage: Outage
    metrics: Metrics

    def connection(
        self, name: str, role: str = WORKER_ROLE, *, lazy_commit: bool = False
    ) -> WorkerConnection:
        return WorkerConnection(
            self.url,
            self.outage,
            name,
            self.metrics.reconnected,
            self.stopping,
            role=role,
            lazy_commit=lazy_commit,
        )


class WorkerParts:
    """Everything that a worker starts and stops."""

    def __init__(
        self,
        deps: WorkerDeps,
        *,
        stuck: Callable[[WatchedHandler], None],
        when_blocked: Callable[[], None],
        every_tick: Callable[[], None],
        thread_failed: Failed,
    ) -> None:
        """The watchdog's thread calls the functions; `stuck` for a handler that cannot be interrupted. Only
        `thread_failed` is called by the heartbeat's and the leader's.
        """
        settings, worker_id, log, metrics = deps.settings, deps.worker_id, deps.log, deps.metrics
        self._deps = deps
        self._thread_failed = thread_failed
        self._clock = DatabaseClock()
        self._reporter = Reporter(self._clock)
        claiming, settling, listening, throttling, recording = self.connections = tuple(
            deps.connection(name, lazy_commit=lazy)
            for name, lazy in (
                ("claim", True),  # the engine waits for the disk where a second run would break a promise
                ("settle", False),
                ("listen", False),
                ("wakeups", True),
                ("steps", True),  # the engine waits for the disk unless all steps of a report are lazy
            )
        )
        self._settling = settling
        self.registration = Registration(
            deps.app,
            settings,
            worker_id,
            connection=settling,
            open_as_client=functools.partial(deps.connection, "declare", CLIENT_ROLE),
            log=log,
        )
        self.claimer = Claimer(
            claiming,
            worker_id,
            settings,
            register=self.registration.statement,
            clock=self._clock,
            metrics=metrics,
        )
        self.listener = WakeupListener(listening, log, queues=queues_to_hear(settings))
        self.throttle = WakeupThrottle(throttling, worker_id, queues_of(settings), self.listener.crowded, log)
        self.releaser = Releaser(settling, worker_id, log, metrics)
        self.killed = KilledRuns(settling, worker_id, log)
        self.join_looker = JoinLooker(settling, recording, log)
        self.jobs = HeldJobs(
            Slots(settings.worker_concurrency, settings.lease, log, metrics),
            Looks(self.listener.woken.set),
            release=self.releaser.release_soon,
            suspended=self._suspended,
            ended=self.join_looker.ended,
            log_tasks=logs_tasks(settings),
            log=log,
            metrics=metrics,
        )
        self.recorder = StepRecorder(recording, worker_id, log, metrics, self.jobs.stop)
        self.settler = Settler(
            settling, worker_id, log, metrics, self.jobs.settled, looks_again=self.jobs.looks.after_ends
        )
        self.activity = ActivityReporter(settling, metrics, log)
        self.unserved = UnservedQueues(log)
        self.leader = Leader(
            url=deps.url,
            duties=build_duties(log, self.unserved),
            log=log,
            outage=deps.outage,
            failed=thread_failed,
        )
        # The next leader recovers what a dead leader held: a term must not outlast the timeout of a worker.
        term = min(settings.term, settings.worker_timeout)
        self.candidate = Candidate(worker_id, term, self.leader, log)
        self.heartbeat = self._build_heartbeat()
        self.watchdog = Watchdog(
            deps.loop,
            tick=_tick_of(settings),
            stuck=stuck,
            job_of=self.jobs.slots.job_of,
            when_blocked=when_blocked,
            chores=(self.heartbeat.check_deadline, self.leader.check_deadline, every_tick),
            log=log,
        )
        self.runner = self._build_runner()
        self.claim_loop = ClaimLoop(
            self.claimer,
            jobs=self.jobs,
            take=self.runner.take,
            listener=self.listener,
            poll_seconds=settings.poll_interval.total_seconds(),
            stopping=deps.stopping,
            settler=self.settler,
            heartbeat=self.heartbeat,
            log=log,
        )
        self.emergency_exit = EmergencyExit(
            url=deps.url,
            worker_id=worker_id,
            handlers=deps.app.handlers,
            held=lambda: list(self.jobs.held),
            reporter=self._reporter,
            log=log,
        )

    def _build_heartbeat(self) -> Heartbeat:
        deps, settings = self._deps, self._deps.settings
        return Heartbeat(
            url=deps.url,
            worker_id=deps.worker_id,
            interval=settings.heartbeat,
            lease=settings.lease,
            jobs=self.jobs,
            stop=functools.partial(call_in_loop, deps.loop, self.jobs.stop),
            told=functools.partial(call_in_loop, deps.loop, self.jobs.told),
            errands=(
                StillRegistered(
                    self.registration.statement,
                    functools.partial(call_in_loop, deps.loop, self._claim_again),
                    deps.log,
                ),
                StaleJobs(self.jobs, deps.worker_id, deps.log, deps.metrics),
                LateSweep(deps.worker_id, deps.log),
                self.candidate,
            ),
            clock=self._clock,
            log=deps.log,
            outage=deps.outage,
            metrics=deps.metrics,
            failed=self._thread_failed,
        )

    def hand_over(self) -> None:
        """Give up leadership in the thread of the heartbeat, so that no request to lead can follow."""
        self.candidate.withdraw()
        self.heartbeat.wake()

    def _suspended(self, job: Job) -> None:
        if job.waits_for_tasks:
            self.join_looker.expect_joins()
        self.recorder.look(job)

    def _claim_again(self) -> None:
        self.claimer.forget_idle()
        self.listener.woken.set()

    def _build_runner(self) -> Runner:
        deps, heartbeat = self._deps, self.heartbeat
        settled = functools.partial(call_in_loop, deps.loop, self.jobs.settled)
        attempts = Attempts(
            worker_id=deps.worker_id,
            middlewares=deps.app.middlewares,
            reporter=self._reporter,
            watch=self.watchdog,
            open_transaction=functools.partial(JobTransaction, deps.url),
            open_run=RunOpener(
                deps.url,
                deps.worker_id,
                self.recorder,
                deps.loop,
                functools.cache(functools.partial(_settings_of, deps)),
            ),
            settled=settled,
            send_progress=lambda _job: heartbeat.send_progress_soon(),
            log=deps.log,
        )
        return Runner(
            self.jobs,
            worker_id=deps.worker_id,
            handlers=deps.app.handlers,
            executors=self._build_executors(settled),
            attempts=attempts,
            reporter=self._reporter,
            add_report=self.settler.add,
            usual_lease=deps.settings.lease,
            renew=heartbeat.renew_in_time,
            open_unhandled=lambda end: UnhandledTasks(
                self._settling,
                deps.worker_id,
                grace=deps.settings.handler_grace,
                knows_types=bool(deps.app.handlers),
                end=end,
                log=deps.log,
            ),
            log=deps.log,
        )

    def _build_executors(self, settled: Callable[[Job, str], object]) -> Executors:
        deps = self._deps
        return Executors(
            ExecutorWorker(
                app=deps.app,
                url=deps.url,
                worker_id=deps.worker_id,
                settings=deps.settings,
                log=deps.log,
                write=self._reporter.write,
                settled=settled,
                record_killed=self.killed.record,
                send_progress=self.heartbeat.send_progress_soon,
                open_journal=lambda job: LoopJournal(job, self.recorder, deps.loop),
                max_result_bytes=lambda: self.registration.max_result_bytes,
            )
        )


def logs_tasks(settings: Settings) -> bool:
    """Whether each finished task is logged: by default only for people, because machines have metrics."""
    if settings.worker_log_tasks == "auto":
        return is_for_people(settings.log_format)
    return settings.worker_log_tasks == "always"


def _tick_of(settings: Settings) -> float:
    """Often enough to act between half a lease and its end, and within the margin of a term."""
    lease, term = settings.lease.total_seconds(), settings.term.total_seconds()
    return min(TICK_SECONDS, lease / 8, term * MARGIN / 2)


def _settings_of(deps: WorkerDeps) -> Settings:
    """For runs: those of the worker, or of the application if only that can sign links."""
    if deps.settings.web_secrets and deps.settings.web_url:
        return deps.settings
    if deps.settings.record_step_arguments:
        return deps.app.settings
    return deps.app.settings.model_copy(update={"record_step_arguments": False})
