"""Tasks that call a function in the database: its effects and the outcome of the task are one transaction."""

import json
from collections.abc import Callable
from functools import partial

from holdfast.errors import HoldfastError
from holdfast.executors.attempt import AttemptEnd
from holdfast.executors.envelope import Envelope
from holdfast.handler import Handler
from holdfast.logs import Log
from holdfast.worker.functions import FunctionFailed, FunctionNotFound, Functions, describe_failure
from holdfast.worker.job import Job
from holdfast.worker.job_transaction import CommitUnknown
from holdfast.worker.reporting import unknown_commit

Settled = Callable[[Job, str], object]


class DbFunctionExecutor:
    """Calls the function that the payload names as `db_function`, with the whole payload."""

    needs_handler = False

    def __init__(self, functions: Functions, settled: Settled, log: Log) -> None:
        self._functions = functions
        self._settled = settled
        self._log = log

    async def prepare(self) -> None:
        pass

    async def run(self, job: Job, handler: Handler | None) -> AttemptEnd | None:
        del handler
        function = text_member(job.payload, "db_function")
        if function is None:
            return AttemptEnd.failed("invalid_payload", 'the payload names no "db_function"')
        try:
            verdict = await self._functions.record(job, function, job.payload, partial(_end_of, function))
        except CommitUnknown:
            return unknown_commit(job)
        except FunctionNotFound as error:
            return AttemptEnd.failed("function_not_found", error.message)
        except (FunctionFailed, HoldfastError) as error:
            self._log.warning("attempt_failed", **job.log_fields, error=str(error))
            failure = describe_failure(function, error)
            return AttemptEnd.retry(job.attempt, failure.kind, failure.message, **failure.detail)
        self._settled(job, verdict)
        return None

    async def close(self) -> None:
        await self._functions.close()


def _end_of(function: str, envelope: Envelope) -> AttemptEnd:
    if envelope.validation_failure is not None:
        return AttemptEnd.failed("validation_failure", f"{function}: {envelope.validation_failure}")
    return AttemptEnd.succeeded(envelope.payload or "null")


def text_member(payload: str, name: str) -> str | None:
    """Return a member of the payload if it is a text that is not empty, else None."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):  # JSON that PostgreSQL stores and Python cannot read
        return None
    member = found.get(name) if isinstance(found, dict) else None
    return member if isinstance(member, str) and member else None
