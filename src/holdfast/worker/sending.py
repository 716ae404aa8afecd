"""Tasks that hand a message to a provider, between handlers in the database.

Before-handler, provider, then success-handler or error-handler; the outcome of the task is recorded in the
transaction of the last one. A worker that dies in between leaves an attempt of which nobody knows whether it
was sent: it is repeated only under an idempotency key that the provider honours.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Protocol

from holdfast.comms.provider import SendFailed, Sent
from holdfast.engine.documents import object_of, report_json
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.handler import Handler
from holdfast.model import LastError
from holdfast.worker.db_function import Settled, detail_of, kind_of, told
from holdfast.worker.envelope import Envelope, FunctionFailed, FunctionNotFound
from holdfast.worker.functions import Functions
from holdfast.worker.job import Job
from holdfast.worker.logs import Log
from holdfast.worker.report import Reporter
from holdfast.worker.transaction import CommitUnknown

KEY_LIFE = timedelta(hours=23)  # providers keep a key for a day
PAUSES_SECONDS = (0.1, 0.5, 2.0)  # between attempts to record what is known


class Provider(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def honours_idempotency_key(self) -> bool: ...
    async def send(self, message: Any) -> Sent: ...
    async def close(self) -> None: ...


Compose = Callable[[dict[str, Any], str], Any]
"""A message from what the before-handler answered and the key; SendFailed if it is none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the payload of such a task says."""

    payload: dict[str, Any]
    before: str | None
    success: str | None
    error: str | None


class SendingExecutor:
    """One for e-mail, one for text messages."""

    needs_handler = False

    def __init__(
        self,
        *,
        open_provider: Callable[[], Provider],
        compose: Compose,
        functions: Functions,
        reporter: Reporter,
        settled: Settled,
        log: Log,
    ) -> None:
        self._open_provider = open_provider
        self._provider: Provider | None = None
        self._compose = compose
        self._functions = functions
        self._reporter = reporter
        self._settled = settled
        self._log = log

    async def prepare(self) -> None:
        pass

    async def run(self, job: Job, handler: Handler | None) -> str | None:
        del handler
        plan = read_plan(job.payload)
        if plan is None:
            return self._reporter.failed(job, "invalid_payload", "the payload is not an object of handlers")
        try:
            provider = self._connected(job.executor)
            if job.attempt > 1:
                before = await self._functions.last_error(job)
                known = _known(before)
                if known is not None:
                    return await self._record(job, plan, known)
                if not _may_repeat(provider, before):
                    return await self._record(job, plan, _unknown(job))
            return await self._attempt(job, plan, provider)
        except (ConfigurationError, ImportError) as error:
            self._log.error("executor_not_available", **job.name, executor=job.executor, error=str(error))
            return self._reporter.retry(job, "executor_not_available", str(error), sent=False)
        except HoldfastError as error:  # nothing has gone outside yet: what comes later has its own report
            return self._reporter.retry(job, "database_error", str(error), sent=False)

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()
        await self._functions.close()

    def _connected(self, executor: str) -> Provider:
        if self._provider is None:
            self._provider = self._open_provider()
            self._log.info("provider_chosen", executor=executor, provider=self._provider.name)
        return self._provider

    async def _attempt(self, job: Job, plan: Plan, provider: Provider) -> str | None:
        try:
            content = await self._prepared(job, plan)
            message = self._compose(content, _key(job, content))
        except SendFailed as error:
            return await self._record(job, plan, _failure(job, provider, error))
        except FunctionFailed as error:
            if isinstance(error, FunctionNotFound) or job.attempt >= job.max_attempts:
                failed = SendFailed(
                    "before_handler_failed", error.told, permanent=isinstance(error, FunctionNotFound)
                )
                return await self._record(job, plan, _failure(job, provider, failed))
            return self._reporter.retry(job, kind_of(error), told("", error), sent=False, **detail_of(error))
        return await self._sent(job, plan, provider, message)

    async def _prepared(self, job: Job, plan: Plan) -> dict[str, Any]:
        """What the provider shall get. Without a before-handler, the payload itself has it."""
        if plan.before is None:
            return plan.payload
        envelope = await self._functions.call(plan.before, job.payload, job.timeout)
        if envelope.validation_failure is not None:
            raise SendFailed(
                "validation_failure", f"{plan.before}: {envelope.validation_failure}", permanent=True
            )
        content = None if envelope.payload is None else json.loads(envelope.payload)
        if not isinstance(content, dict):
            raise FunctionFailed(plan.before, "answered no object as the payload for the provider")
        return content

    async def _sent(self, job: Job, plan: Plan, provider: Provider, message: Any) -> str | None:
        job.outside = True
        try:
            async with asyncio.timeout(job.timeout):
                sent = await provider.send(message)
        except SendFailed as error:
            return await self._record(job, plan, _failure(job, provider, error))
        except TimeoutError:
            late = SendFailed("timeout", "there was no answer in time", outcome_unknown=True)
            return await self._record(job, plan, _failure(job, provider, late))
        except asyncio.CancelledError:
            if job.stop is None:
                raise
            return self._reporter.retry(job, "outcome_unknown", "its worker ended while it was sent", delay=0)
        except Exception as error:  # noqa: BLE001 - a provider that breaks its word has to be survived
            self._log.exception("provider_failed", **job.name, provider=provider.name)
            broken = SendFailed("provider_failed", f"{type(error).__name__}: {error}", outcome_unknown=True)
            return await self._record(job, plan, _failure(job, provider, broken))
        return await self._record(job, plan, {"sent": _plain(asdict(sent))})

    async def _record(self, job: Job, plan: Plan, known: dict[str, Any]) -> str | None:
        try:
            return await self._tell(job, plan, known)
        except asyncio.CancelledError:
            if job.stop is None:
                raise
            told_why = "its worker ended before it could be recorded"
            return self._reporter.retry(job, "recording_failed", told_why, delay=0, known=known)

    async def _tell(self, job: Job, plan: Plan, known: dict[str, Any]) -> str | None:
        """Have the right handler called, with the outcome in its transaction, until it is heard."""
        function = plan.success if "sent" in known else plan.error
        if function is None:
            return self._unhandled(job, known)
        body = _body(job, known)
        for pause in (*PAUSES_SECONDS, None):
            try:
                verdict = await self._functions.record(
                    job, function, body, lambda envelope: self._report(job, envelope, known)
                )
            except CommitUnknown:  # accepted only if the commit did not happen: then it is recorded next time
                return self._reporter.retry(
                    job, "commit_unknown", "the connection was lost at the commit", delay=0, known=known
                )
            except FunctionNotFound as error:
                return self._reporter.failed(job, "function_not_found", error.message, known=known)
            except (FunctionFailed, HoldfastError) as error:
                self._log.warning("recording_failed", **job.name, error=told(function, error))
                if pause is None:
                    detail = {**detail_of(error), "known": known}
                    return self._reporter.retry(job, "recording_failed", told(function, error), **detail)
                await asyncio.sleep(pause)
            else:
                self._settled(job, verdict)
                return None
        raise AssertionError("the last attempt returns")

    def _unhandled(self, job: Job, known: dict[str, Any]) -> str:
        """Nobody waits for the outcome in the database: the queue itself tries again where that may help."""
        if "sent" in known:
            return self._reporter.succeeded(job, json.dumps(known["sent"]))
        error = known["error"]
        told_error = {name: error[name] for name in ("permanent", "outcome_unknown", "retry_after")}
        if error["permanent"] or error["outcome_unknown"]:
            return self._reporter.failed(job, error["kind"], error["message"], **told_error)
        return self._reporter.retry(
            job, error["kind"], error["message"], delay=error["retry_after"], sent=False, **told_error
        )

    def _report(self, job: Job, envelope: Envelope, known: dict[str, Any]) -> str:
        if envelope.validation_failure is not None:
            return self._reporter.failed(
                job, "validation_failure", f"{envelope.function}: {envelope.validation_failure}", **known
            )
        if "sent" in known:
            return self._reporter.succeeded(job, json.dumps(known["sent"]))
        error = dict(known["error"])
        self._log.warning("attempt_failed", **job.name, error=error["message"])
        return self._reporter.failed(job, error.pop("kind"), error.pop("message"), **error)


def read_plan(payload: str) -> Plan | None:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):  # JSON that PostgreSQL holds and Python does not
        return None
    if not isinstance(found, dict):
        return None
    names = [found.get(f"{when}_handler") for when in ("before", "success", "error")]
    if not all(isinstance(name, str | None) for name in names):
        return None
    return Plan(found, *names)


def _key(job: Job, content: dict[str, Any]) -> str:
    """The same for every attempt of a send if the before-handler says so, else of this task."""
    given = content.get("idempotency_key")
    return given if isinstance(given, str) and given else f"holdfast-{job.task_id}"


def _known(before: LastError | None) -> dict[str, Any] | None:
    """What an attempt before this one found out and could not record."""
    detail = before.detail if before is not None and not before.recovered else None
    known = detail.get("known") if isinstance(detail, dict) else None
    return known if isinstance(known, dict) and ("sent" in known or "error" in known) else None


def _may_repeat(provider: Provider, before: LastError | None) -> bool:
    """Whether nothing was sent yet for sure, or sending it again is harmless."""
    if before is None:
        return True
    surely_not = isinstance(before.detail, dict) and before.detail.get("sent") is False
    if surely_not or before.kind == "executor_not_available":
        return True
    return provider.honours_idempotency_key and before.age < KEY_LIFE


def _unknown(job: Job) -> dict[str, Any]:
    message = "its worker ended before it could tell whether the message was sent"
    return {"error": _described(job, SendFailed("outcome_unknown", message, outcome_unknown=True))}


def _failure(job: Job, provider: Provider, error: SendFailed) -> dict[str, Any]:
    """Where the provider honours the key, another attempt under it is harmless: the outcome will be known."""
    described = _described(job, error)
    described["outcome_unknown"] = error.outcome_unknown and not provider.honours_idempotency_key
    return {"error": {**described, "provider": provider.name}}


def _described(job: Job, error: SendFailed) -> dict[str, Any]:
    found = {
        "kind": error.kind,
        "message": error.message,
        "permanent": error.permanent,
        "outcome_unknown": error.outcome_unknown,
        "retry_after": error.retry_after,
        "task_id": job.task_id,
    }
    return dict(_plain(found))


def _plain(value: Any) -> Any:
    """As PostgreSQL can hold it."""
    return json.loads(report_json(value))


def _body(job: Job, known: dict[str, Any]) -> str:
    if "sent" in known:
        return object_of(original_payload=job.payload, worker_payload=json.dumps(known["sent"]))
    return object_of(original_payload=job.payload, error=json.dumps(known["error"]))
