"""All errors, as one tree, with the exit code of the command line for each class.

HoldfastError               1
├── ConfigurationError      2   a setting is invalid
├── InvalidHandler          2   a function cannot be a handler as written
├── PayloadError            2   a payload does not match the arguments of its handler
├── EventLoopRunning        1   a synchronous method was called inside a running event loop
├── ResultError             1   a result cannot be written as JSON, or does not match its type when read
├── InvalidStep             2   a step cannot be run as written
├── StepFailed              1   a step of a run failed, now or in an earlier attempt
├── StepResultMismatch        1   the recorded result of a step no longer matches the type of its function
├── RunTooLong              1   a run has reached its limit of steps or of memory
├── TaskEnded               1   the awaited task has no result
│   ├── TaskFailed          1   the task failed, or its attempts were used up
│   └── TaskCancelled       1   the task was cancelled
├── RequestRefused                 1   the engine refused the call; nothing was written
│   ├── InvalidArgument     2   an argument is missing, malformed or out of bounds
│   │   ├── TooLarge        2   a payload or a batch exceeds its limit
│   │   └── UnsupportedValue     2   text or JSON that PostgreSQL, Python or JavaScript cannot represent
│   ├── QuotaExceeded       1   a namespace or a run has reached its limit
│   ├── KeyConflict         1   an idempotency key already belongs to another task
│   ├── InvalidState         1   the status of the task does not allow the action
│   ├── NotFound        4   no such task, function or subscription, or it belongs to another login
│   ├── NotAllowed          7   the login lacks a role
│   └── MigrationRefused    3   the schema cannot be installed or upgraded
├── PartialBatchError          1   of a batch for several shards, some shards have written their part
├── DatabaseUnavailable     5   no connection, or it was lost: the outcome of the last call is unknown
│   ├── NoAnswer            5   the database was reached, and did not answer in time
│   └── EmbeddedServerError 5   the embedded PostgreSQL cannot be found, started or reached
├── InvalidSignature        1   a webhook was not signed with a known secret, or too long ago
├── NotInstalled            6   the database has no Holdfast schema, or an older one
│   └── UnitNotInstalled    6   the database does without the unit that was needed: messages, events or web
├── TransactionConflict               75   a conflict, or no time left; nothing was written, so try again
└── UnexpectedDatabaseError 1   any other error of PostgreSQL
"""

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

import psycopg

from holdfast.sql.optional_units import unit_that_lacks


class HoldfastError(Exception):
    """The base class of all errors. The message is written for the person who reads it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", *, hint: str | None = None, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.sqlstate = sqlstate

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}. {self.hint}" if self.hint else self.message


class ConfigurationError(HoldfastError):
    """A setting is invalid."""

    exit_code: ClassVar[int] = 2


class InvalidHandler(HoldfastError):
    """A function cannot be a handler as written."""

    exit_code: ClassVar[int] = 2


class PayloadError(HoldfastError):
    """A payload does not match the arguments of its handler, or a kickoff refuses its input."""

    exit_code: ClassVar[int] = 2


class EventLoopRunning(HoldfastError):
    """A synchronous method was called inside a running event loop, which it would block."""


class ResultError(HoldfastError):
    """A result cannot be written as JSON, or does not match its type when read."""


class InvalidStep(HoldfastError):
    """A step cannot be run as written."""

    exit_code: ClassVar[int] = 2


class StepFailed(HoldfastError):
    """A step of a run failed, now or in an earlier attempt. Its cause is what was raised now, if anything."""

    def __init__(
        self, message: str, *, step: str, kind: str, exception: str | None = None, arguments: Any = None
    ) -> None:
        super().__init__(message)
        self.step = step
        self.kind = kind
        self.exception = exception
        """The module and name of the exception's class, such as `shop.errors.CardDeclined`."""
        self.arguments = arguments
        """What the step was called with, by name, if it failed now: as much as is stored."""

    def __reduce__(self) -> tuple[Any, ...]:
        given: dict[str, Any] = {"step": self.step, "kind": self.kind, "exception": self.exception}
        given["arguments"] = self.arguments
        return partial(type(self), **given), (self.message,)

    def is_caused_by(self, error: type[BaseException]) -> bool:
        """Whether the step raised this class. A subclass is recognised only if it was raised now."""
        if isinstance(self.__cause__, error):
            return True
        return self.exception == f"{error.__module__}.{error.__qualname__}"


class StepResultMismatch(HoldfastError):
    """The recorded result of a step no longer matches the type of its function."""


class RunTooLong(HoldfastError):
    """A run has reached its limit of steps or of memory."""


@dataclass(frozen=True, slots=True)
class AttemptError:
    """How one attempt or one try of a step failed, with the traceback if the worker reported one."""

    attempt: int
    kind: str
    message: str
    traceback: str | None = None
    step: str | None = None
    """The step that is tried again; None if the attempt failed."""
    step_try: int | None = None


class TaskEnded(HoldfastError):
    """The awaited task has no result."""

    def __init__(
        self, message: str, *, task_id: UUID, status: str, errors: tuple[AttemptError, ...] = ()
    ) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.status = status
        self.errors = errors

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all arguments: by default an exception is rebuilt from its message alone."""
        given: dict[str, Any] = {"task_id": self.task_id, "status": self.status, "errors": self.errors}
        return partial(type(self), **given), (self.message,)


class TaskFailed(TaskEnded):
    """The task failed, or its attempts were used up."""


class TaskCancelled(TaskEnded):
    """The task was cancelled, by a person or by its handler."""


class RequestRefused(HoldfastError):
    """The engine refused the call; nothing was written."""


class InvalidArgument(RequestRefused):
    """An argument is missing, malformed or out of bounds."""

    exit_code: ClassVar[int] = 2


class TooLarge(InvalidArgument):
    """A payload or a batch exceeds its limit."""


class UnsupportedValue(InvalidArgument):
    """Text or JSON that PostgreSQL, Python or JavaScript cannot represent."""


class QuotaExceeded(RequestRefused):
    """A namespace or a run has reached its limit: of lanes, or of signals that it has not taken."""


class KeyConflict(RequestRefused):
    """A key already belongs to another task, or to a signal with another payload."""


class InvalidState(RequestRefused):
    """The status of the task does not allow the action."""


class NotFound(RequestRefused):
    """No such task, function or subscription, or it belongs to another login."""

    exit_code: ClassVar[int] = 4


class NotAllowed(RequestRefused):
    """The login lacks a role."""

    exit_code: ClassVar[int] = 7


class MigrationRefused(RequestRefused):
    """The schema cannot be installed or upgraded."""

    exit_code: ClassVar[int] = 3


class InvalidSignature(HoldfastError):
    """A webhook was not signed with a known secret, or too long ago."""


class PartialBatchError(HoldfastError):
    """Of a batch for several shards, some shards have written their part, and one has not.

    `enqueued` has the place in the batch, the id and whether it is new, for each task that was written. It is
    empty if the batch was too long for that. `cause` is the error of the shard.
    """

    def __init__(
        self,
        message: str = "",
        *,
        hint: str | None = None,
        sqlstate: str | None = None,
        enqueued: tuple[tuple[int, UUID, bool], ...] = (),
        cause: HoldfastError | None = None,
    ) -> None:
        super().__init__(message, hint=hint, sqlstate=sqlstate)
        self.enqueued = enqueued
        self.cause = cause


class DatabaseUnavailable(HoldfastError):
    """No connection, or it was lost: the outcome of the last call is unknown."""

    exit_code: ClassVar[int] = 5


class NoAnswer(DatabaseUnavailable):
    """The database was reached, and did not answer within HOLDFAST_CALL_TIMEOUT: the outcome is unknown."""


class EmbeddedServerError(DatabaseUnavailable):
    """The embedded PostgreSQL cannot be found, started or reached."""


class NotInstalled(HoldfastError):
    """The database has no Holdfast schema, or an older one."""

    exit_code: ClassVar[int] = 6


class UnitNotInstalled(NotInstalled):
    """The database does without the unit that was needed: messages, events or web."""


class TransactionConflict(HoldfastError):
    """A conflict with another transaction, or no time left. Nothing was written: the call may be repeated."""

    exit_code: ClassVar[int] = 75  # EX_TEMPFAIL of sysexits.h


class UnexpectedDatabaseError(HoldfastError):
    """Any other error of PostgreSQL."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, or all of them."""
    names = list(known)
    close = close_to(name, names)
    if close is not None:
        return f"; did you mean {close!r}?"
    return f"; expected one of {', '.join(names)}" if names else ""


def close_to(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


# Five characters name a state, two a whole class of them. The engine's own begin with QF.
BY_SQLSTATE: dict[str, type[HoldfastError]] = {
    "QF207": PartialBatchError,
    "QF400": InvalidArgument,
    "QF403": NotAllowed,
    "QF404": NotFound,
    "QF409": KeyConflict,
    "QF412": InvalidState,
    "QF413": TooLarge,
    "QF422": UnsupportedValue,
    "QF429": QuotaExceeded,
    "QF503": TransactionConflict,
    "08": DatabaseUnavailable,  # connection exceptions
    "22": InvalidArgument,  # a value that its type cannot hold
    "22P05": UnsupportedValue,  # \u0000, or a character that the database's encoding lacks
    "25006": DatabaseUnavailable,  # a standby, which reads only
    "28": DatabaseUnavailable,  # the login is refused
    "3D000": DatabaseUnavailable,  # no such database
    "3F000": NotInstalled,
    "40": TransactionConflict,  # serialization failure, deadlock
    "42501": NotAllowed,
    "42703": NotInstalled,  # a column that an older schema lacks
    "42846": TransactionConflict,  # an upgrade has changed a type under a call that had begun before it
    "42883": NotInstalled,
    "42P01": NotInstalled,
    "53": DatabaseUnavailable,  # out of connections, memory or disk
    "54000": UnexpectedDatabaseError,  # also of a server that is out of transaction ids
    "54": TooLarge,  # over a limit of PostgreSQL itself, such as the depth of a document
    "55P03": TransactionConflict,  # a lock was not had in time
    "57014": TransactionConflict,  # the statement took too long, or an administrator cancelled it
    "57P": DatabaseUnavailable,  # the server is starting, stopping or has crashed
}

# Violated constraints, except a unique one: the same call, whose connection broke, may be under way.
_CONSTRAINTS = ("23000", "23001", "23502", "23503", "23514", "23P01")

_DENIED = "42501"
_DENIED_OBJECT = re.compile(r"permission denied for (?P<kind>[a-z ]+?) (?P<name>\S+)$")
_FUNCTION = re.compile(r'^(?:PL/pgSQL function |SQL function ")(?P<name>[^"\n(]+)', re.MULTILINE)
_STATEMENT = re.compile(r'^SQL statement "\s*(\w+)', re.MULTILINE)
_RIGHTS = {"function": "EXECUTE", "procedure": "EXECUTE", "schema": "USAGE", "sequence": "USAGE"}
_VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")

_HINTS: dict[str, str] = {
    "22P05": r"Leave the character out, or send the value in another form, such as base64.",
    "25006": "Connect to the primary server.",
    "42501": "Have an administrator run holdfast grant LOGIN --as client, worker, web, operator or reader.",
}
# How libpq begins or ends its complaints about an address. Most of them quote it.
_CONNINFO = re.compile(r"in connection info string|connection option|\bURI\b|percent-encoded")


def translate(error: psycopg.Error) -> HoldfastError:
    """The error of Holdfast for an error of psycopg."""
    message = error.diag.message_primary or str(error).strip() or type(error).__name__
    if error.sqlstate is None:
        return _without_sqlstate(error, message)
    return translate_state(
        error.sqlstate,
        message,
        detail=error.diag.message_detail,
        hint=error.diag.message_hint,
        context=error.diag.context,
    )


def translate_state(
    state: str, message: str, *, detail: str | None, hint: str | None, context: str | None
) -> HoldfastError:
    """The error of Holdfast for an error of PostgreSQL, whichever driver raised it.

    With a context it arose inside a function. A missing name or right is then that function's own: the engine
    was found, and the caller was allowed to call it.
    """
    kind = next(
        (BY_SQLSTATE[state[:n]] for n in (5, 3, 2) if state[:n] in BY_SQLSTATE), UnexpectedDatabaseError
    )
    if kind is PartialBatchError:
        return _partly(message, state, hint, detail)
    if kind is NotInstalled:
        if context:
            return UnexpectedDatabaseError(message, sqlstate=state)
        if unit := unit_that_lacks(message):
            message = f"this database has no {unit}, or those of an older release ({message})"
            return UnitNotInstalled(message, hint=f"Run holdfast migrate --with {unit}.", sqlstate=state)
        message = f"this database has no Holdfast schema, or an older one ({message})"
        return NotInstalled(message, hint="Run holdfast migrate.", sqlstate=state)
    if state == _DENIED and context and hint is None:
        message, hint = _denied_inside(message, context)
    if state == "22P05" and r"\u0000" in (detail or ""):
        message = r"the text holds \u0000, which PostgreSQL cannot store"
    elif kind is InvalidArgument and detail and not state.startswith("QF"):
        message = f"{message}: {detail}"
    return kind(message, hint=hint or _HINTS.get(state), sqlstate=state)


def is_about_content(error: HoldfastError) -> bool:
    """Whether the database refuses the values of a call: the same call would always be refused.

    A list of what is certain. Every other error, also one of an unknown kind, may be over soon: a lost
    connection, a deadlock, a migration, a full disk, an I/O error, a bad page.
    """
    return isinstance(error, InvalidArgument) or error.sqlstate in _CONSTRAINTS


def is_missing_right(error: HoldfastError) -> bool:
    """Whether the login lacks a right, and not whether the engine refuses what was asked of it."""
    return error.sqlstate == _DENIED


def _partly(message: str, state: str, hint: str | None, detail: str | None) -> HoldfastError:
    """What a front says about the parts of a batch: see holdfast_front.rethrow_part."""
    told = json.loads(detail or "{}")
    written = tuple((int(n), UUID(task_id), bool(new)) for n, task_id, new in told.get("enqueued") or ())
    cause = None
    if "state" in told:
        cause = translate_state(
            told["state"], told["message"], detail=None, hint=told.get("hint"), context=None
        )
    return PartialBatchError(message, hint=hint, sqlstate=state, enqueued=written, cause=cause)


def _denied_inside(message: str, context: str) -> tuple[str, str | None]:
    """The missing privilege. PostgreSQL names the object, and the statement in the context the privilege."""
    found = _FUNCTION.search(context)
    if found is None or found["name"].startswith(("queues.", "internal.", "holdfast_front.")):
        return message, None  # of the engine: the caller lacks a role
    function, denied, statement = found["name"], _DENIED_OBJECT.match(message), _STATEMENT.search(context)
    wanted = "what it lacks"
    if denied:
        verb = statement[1].upper() if statement else ""
        right = _RIGHTS.get(denied["kind"]) or (verb if verb in _VERBS else "the right")
        wanted = f"{right} on {denied['kind']} {denied['name']}"
    hint = f"Grant {wanted} to the owner of {function}, or to its caller if it is not security definer."
    return f"{message}, inside {function}", hint


def _without_sqlstate(error: psycopg.Error, message: str) -> HoldfastError:
    """An error of the driver itself: it could not send a value, or has no connection."""
    if isinstance(error, psycopg.DataError):
        return UnsupportedValue(message)
    if isinstance(error, psycopg.ProgrammingError) and _CONNINFO.search(message):
        error.args = ("the address of the database cannot be read",)  # a traceback would show it
        return ConfigurationError(
            "the address of the database cannot be read; it is not shown, because it may hold a password",
            hint="Give one such as postgresql://user@host:5432/database.",
        )
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return DatabaseUnavailable(f"the database cannot be reached: {message}")
    return UnexpectedDatabaseError(message)
