"""Leading the fleet: one worker at a time performs duties for all of them.

Leadership is requested on the heartbeat's connection, and the duties run in a thread of their own. So a slow
duty delays neither the leases nor the next term, and a worker that does not lead needs no connection for it.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import psycopg

from holdfast._connections.session import configure_session, with_defaults
from holdfast._connections.worker_connection import Outage, hang_up
from holdfast._engine import Engine, Statement, workers
from holdfast._engine.leases import FleetState
from holdfast._telemetry.logs import Log
from holdfast._worker.essential_thread import EssentialThread, Failed
from holdfast.errors import DatabaseUnavailable, HoldfastError, TransactionConflict, translate

T = TypeVar("T")

LEADER = "leader"
REQUESTS_PER_TERM = 3
LOOKS_PER_TERM = 2
"""How often a worker that does not lead asks how long the term lasts, unless it learns it otherwise."""
MARGIN = 0.1
"""The leader does not act in this last part of its term."""
LONGEST_PAUSE_SECONDS = 60.0
CLEANING_SECONDS = 60.0
"""A duty that is due no more often than this is not urgent."""
CLEANING_AFTER_SECONDS = 2.0
"""When a new leader begins with those: a worker that has just started has tasks to claim."""
PATIENCE_SECONDS = 1.0


class Execute(Protocol):
    """Executes a statement in a transaction of its own, while this worker certainly leads.

    Otherwise it raises TermEnded, which ends the duty. The server cancels a statement that is still running
    when the term ends.
    """

    def __call__(self, statement: Statement[T], /) -> T: ...


class Duty(Protocol):
    """Regular work of the leader, safe even if two leaders act at once. Its state stays with this one."""

    @property
    def name(self) -> str: ...

    @property
    def interval(self) -> float:
        """Seconds from one run to the next."""

    def run(self, execute: Execute) -> float | None:
        """Do one short step, because the other duties wait for it.

        Returns the seconds until the next step. None means the interval; 0 means as soon as the other duties
        have had their turn.
        """


class TermEnded(Exception):
    """A duty wanted to execute a statement after the term of this worker."""


class Candidate:
    """Requests and renews leadership: an errand of the heartbeat's thread."""

    def __init__(self, worker_id: str, term: timedelta, leader: "Leader", log: Log) -> None:
        self._worker_id = worker_id
        self._term = term
        self._leader = leader
        self._log = log
        self._next = 0.0
        self._withdrawn = False
        self._resigned = False
        self._refused = False

    @property
    def due(self) -> float:
        """When to call `run` next."""
        if self._withdrawn:
            return float("inf") if self._resigned else 0.0
        return self._next

    def withdraw(self) -> None:
        """Lead no more: the next call of `run` resigns. Any thread may call it."""
        self._withdrawn = True

    def run(self, execute: Execute) -> None:
        sent = time.monotonic()
        self._next = sent + self._interval() * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load
        try:
            if self._withdrawn:
                self._resigned = True
                execute(workers.resign(self._worker_id))
            else:
                self._request_to_lead(execute, sent)
        except DatabaseUnavailable:
            raise
        except TransactionConflict:
            self._retry_in(self._interval() / 10)
        except HoldfastError as error:
            if not self._refused:
                self._log.error("lead_refused", error=str(error))
            self._refused = True

    def _request_to_lead(self, execute: Execute, sent: float) -> None:
        if execute(workers.lead(self._worker_id, self._term)):
            # Counted from before the statement was sent; the database counts from after it.
            self._leader.appoint(sent + self._term.total_seconds() * (1 - MARGIN))
            return
        self._leader.dismiss()
        self.learn(execute(workers.fleet_state(self._worker_id)), time.monotonic())

    def learn(self, state: FleetState, asked: float) -> None:
        """Plan the next request by how long the current term lasts, counted from when that was asked."""
        if self._leader.seconds_left > 0 or self._next <= time.monotonic():
            return
        self._next = asked + self._term.total_seconds() / LOOKS_PER_TERM
        term_left = state.term_left
        self._retry_in(0.0 if term_left is None else asked + term_left.total_seconds() - time.monotonic())

    def _interval(self) -> float:
        return self._term.total_seconds() / REQUESTS_PER_TERM

    def _retry_in(self, seconds: float) -> None:
        """Retry then, but no later than planned, with jitter so that workers do not all ask at once."""
        spread = min(0.3, self._interval()) * random.uniform(0.1, 1.0)  # noqa: S311 - spreads load
        self._next = min(self._next, time.monotonic() + seconds + spread)


class Leader(EssentialThread):
    """Performs each duty when it is due, while this worker certainly leads, on a connection of its own."""

    def __init__(self, *, url: str, duties: Sequence[Duty], log: Log, outage: Outage, failed: Failed) -> None:
        super().__init__(LEADER, failed)
        self._url = with_defaults(url, worker=True)
        self._duties = duties
        self._log = log
        self._outage = outage
        self._acts_until = 0.0
        self._leading = False
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._wake = threading.Event()
        self._closed = False

    @property
    def seconds_left(self) -> float:
        """For how long this worker certainly leads, by its own steady clock."""
        return self._acts_until - time.monotonic()

    def appoint(self, until: float) -> None:
        """Any thread may call it."""
        self._acts_until = until
        self._log.debug("term_renewed", seconds=round(self.seconds_left, 3))
        self._wake.set()

    def dismiss(self) -> None:
        """Another worker leads. Any thread may call it."""
        if self._acts_until:
            self._acts_until = 0.0
            self._wake.set()

    def close(self, then: Callable[[], None] = lambda: None) -> None:
        """Stop acting, then call `then`."""
        self._closed = True
        self._wake.set()
        if self.is_alive():
            self.join(timeout=PATIENCE_SECONDS)
        connection = self._connection
        if self.is_alive() and connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                connection.cancel_safe(timeout=PATIENCE_SECONDS)
            self.join(timeout=PATIENCE_SECONDS)
            hang_up(connection)
            self.join(timeout=PATIENCE_SECONDS)
        then()

    def check_deadline(self) -> None:
        """Called by the watchdog, because this thread may wait for an answer that never comes."""
        if self._leading and self.seconds_left < 0 and (connection := self._connection) is not None:
            hang_up(connection)

    def work(self) -> None:
        try:
            while not self._closed:
                if self.seconds_left > 0:
                    self._begin()
                    self._run_due_duties()
                if self.seconds_left <= 0:
                    self._end("its term was not renewed")
                self._wake.wait(self._seconds_until_next())
                self._wake.clear()
        finally:
            self._end("the worker stops")

    def _begin(self) -> None:
        if not self._leading:
            self._leading = True
            later = time.monotonic() + CLEANING_AFTER_SECONDS
            self._due = {d.name: later if d.interval >= CLEANING_SECONDS else 0.0 for d in self._duties}
            self._failures.clear()
            self._log.info("leading_started")

    def _end(self, why: str) -> None:
        if self._leading:
            self._leading = False
            self._disconnect()
            self._outage.forget(LEADER)
            self._log.info("leading_stopped", why=why)

    def _seconds_until_next(self) -> float | None:
        if not self._leading:
            return None
        due = min(self._due.values(), default=float("inf"))
        return max(0.0, min(due, self._acts_until) - time.monotonic())

    def _run_due_duties(self) -> None:
        """Each duty once, the one that has waited longest first."""
        for duty in sorted(self._duties, key=lambda duty: self._due[duty.name]):
            now = time.monotonic()
            if self._due[duty.name] <= now < self._acts_until and not self._closed:
                self._due[duty.name] = time.monotonic() + self._perform(duty)

    def _perform(self, duty: Duty) -> float:
        """Return the seconds until it is due again. A duty that fails does not delay the others."""
        try:
            pause = duty.run(self._execute)
        except TermEnded:
            return 0.0
        except Exception as error:  # noqa: BLE001 - without this thread, the fleet would have no leader
            self._disconnect()
            if self.seconds_left <= 0 or self._closed:
                return 0.0
            failures = self._failures[duty.name] = self._failures.get(duty.name, 0) + 1
            self._log_failure(duty, error)
            return max(duty.interval, min(LONGEST_PAUSE_SECONDS, 0.1 * 2.0 ** min(failures, 10)))
        self._failures.pop(duty.name, None)
        self._outage.works(LEADER)
        return duty.interval if pause is None else pause

    def _log_failure(self, duty: Duty, error: Exception) -> None:
        if isinstance(error, DatabaseUnavailable):
            self._outage.failed(LEADER, error, duty=duty.name)
        else:
            self._log.error(
                "duty_failed",
                duty=duty.name,
                error=str(error).strip() or type(error).__name__,
                exc_info=None if isinstance(error, HoldfastError) else error,
            )

    def _execute(self, statement: Statement[T], /) -> T:
        connection = self._connected()
        left = self.seconds_left
        if left <= 0 or self._closed:
            raise TermEnded
        try:
            with connection.transaction():
                # The server enforces it even if this process is suspended or the network is gone.
                connection.execute(
                    "select set_config('statement_timeout', %s, true)", [f"{1 + left * 1000:.0f}ms"]
                )
                return Engine(connection).run(statement)
        except psycopg.Error as error:
            raise translate(error) from error

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            try:
                self._connection = psycopg.connect(self._url, autocommit=True)
                configure_session(self._connection)
            except psycopg.Error as error:
                raise translate(error) from error
            self._outage.opened(LEADER)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()
