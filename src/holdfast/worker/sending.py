"""Tasks that hand a message to a provider, between handlers in the database.

Before-handler, provider, then success-handler or error-handler; the outcome of the task is recorded in the
transaction of the last one. What fails before the provider is called was certainly not sent. A worker that
dies after that leaves an attempt whose outcome is unknown: it is repeated only while the provider recognises
its idempotency key.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from holdfast.comms.provider import SendFailed, Sent
from holdfast.engine.documents import object_of, report_json
from holdfast.engine.leases import LastError
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.executors.attempt import AttemptEnd
from holdfast.executors.envelope import Envelope
from holdfast.handler import Handler
from holdfast.logs import Log
from holdfast.worker.db_function import Settled, detail_of, kind_of, told
from holdfast.worker.functions import FunctionFailed, FunctionNotFound, Functions
from holdfast.worker.job import Job
from holdfast.worker.job_transaction import CommitUnknown

SAFE_SHARE = 0.95  # of the time for which a provider recognises a key; the rest covers delays
PAUSES_SECONDS = (0.1, 0.5, 2.0)  # between attempts to record what is known


class Provider(Protocol):
    """A provider behind its guard. Nothing is sent before `send`."""

    @property
    def name(self) -> str: ...
    @property
    def key_retention(self) -> timedelta | None: ...
    async def admit(self, message: Any) -> Any: ...
    async def send(self, message: Any) -> Sent: ...
    async def close(self) -> None: ...


Compose = Callable[[dict[str, Any], str], Any]
"""A message from what the before-handler returned and the key; SendFailed if it is none."""


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
        settled: Settled,
        log: Log,
    ) -> None:
        self._open_provider = open_provider
        self._provider: Provider | None = None
        self._compose = compose
        self._functions = functions
        self._settled = settled
        self._log = log

    async def prepare(self) -> None:
        pass

    async def run(self, job: Job, handler: Handler | None) -> AttemptEnd | None:
        del handler
        plan = read_plan(job.payload)
        if plan is None:
            return AttemptEnd.failed("invalid_payload", "the payload is not an object of handlers")
        try:
            provider = self.connected()
            before = await self._functions.last_error(job) if job.attempt > 1 else None
            known = _known(job, provider, before)
            message = None if known else await self._admitted(job, plan, provider)
        except SendFailed as error:
            return await self._record(job, plan, {"error": _described(job, error)})
        except Exception as error:  # noqa: BLE001 - whatever it was, the provider was not called
            return await self._not_sent(job, plan, error)
        if known is not None:
            return await self._record(job, plan, known)
        return await self._sent(job, plan, provider, message)

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()
        await self._functions.close()

    def connected(self) -> Provider:
        """Raises ConfigurationError if the settings do not make a provider."""
        if self._provider is None:
            self._provider = self._open_provider()
            self._log.info("provider_chosen", provider=self._provider.name)
        return self._provider

    async def _admitted(self, job: Job, plan: Plan, provider: Provider) -> Any:
        """The message as the provider gets it, checked and counted."""
        content = await self._prepared(job, plan)
        if "only_provider" in content and content["only_provider"] != provider.name:
            raise SendFailed(
                "provider_changed",
                f"an earlier attempt may have been delivered by {content['only_provider']}, and"
                f" {provider.name} does not know its idempotency key",
                permanent=True,
            )
        message = self._compose(content, _key(job, content))
        async with asyncio.timeout(job.timeout):
            return await provider.admit(message)

    async def _not_sent(self, job: Job, plan: Plan, error: Exception) -> AttemptEnd | None:
        """Something broke before the provider was called. Another worker or a later attempt may succeed."""
        kind, message = _cause(error)
        detail = error.detail if isinstance(error, FunctionFailed) else {}
        if kind == "preparation_failed":
            self._log.exception("preparation_failed", **job.log_fields)
        else:
            self._log.warning("message_not_sent", **job.log_fields, kind=kind, error=message)
        if job.attempt < job.max_attempts and not isinstance(error, FunctionNotFound):
            return AttemptEnd.retry(job.attempt, kind, message, sent=False, **detail)
        failed = SendFailed("before_handler_failed" if isinstance(error, FunctionFailed) else kind, message)
        return await self._record(job, plan, {"error": _described(job, failed)})

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
            raise FunctionFailed(plan.before, "returned no object as the payload for the provider")
        return content

    async def _sent(self, job: Job, plan: Plan, provider: Provider, message: Any) -> AttemptEnd | None:
        if time.monotonic() >= job.lease_ends:  # this process stood still: another worker may have the task
            return AttemptEnd.retry(
                job.attempt, "lease_expired", "the lease ended before it was sent", sent=False
            )
        job.outside = True
        try:
            async with asyncio.timeout(job.timeout):
                sent = await provider.send(message)
        except SendFailed as error:
            failed = error
        except TimeoutError:
            failed = SendFailed("timeout", "the provider did not answer in time", outcome_unknown=True)
        except asyncio.CancelledError:
            if job.stop is None:
                raise
            return AttemptEnd.retry(
                job.attempt, "outcome_unknown", "its worker ended while it was sent", delay=0
            )
        except Exception as error:  # noqa: BLE001 - a provider that breaks its word has to be survived
            self._log.exception("provider_failed", **job.log_fields, provider=provider.name)
            failed = SendFailed("provider_failed", f"{type(error).__name__}: {error}", outcome_unknown=True)
        else:
            told = json.dumps(asdict(sent), default=str)
            return await self._record(job, plan, {"sent": _plain(json.loads(without(message.to, told)))})
        failed.message = without(message.to, failed.message)
        return await self._record(job, plan, _failure(job, provider, failed))

    async def _record(self, job: Job, plan: Plan, known: dict[str, Any]) -> AttemptEnd | None:
        try:
            return await self._tell(job, plan, known)
        except asyncio.CancelledError:
            if job.stop is None:
                raise
            told_why = "its worker ended before it could be recorded"
            return AttemptEnd.retry(job.attempt, "recording_failed", told_why, delay=0, known=known)

    async def _tell(self, job: Job, plan: Plan, known: dict[str, Any]) -> AttemptEnd | None:
        """Have the right handler called, with the outcome in its transaction, until it is heard."""
        function = plan.success if "sent" in known else plan.error
        if function is None:
            return self._unhandled(job, known)
        body = _body(job, known)
        for pause in (*PAUSES_SECONDS, None):
            try:
                verdict = await self._functions.record(
                    job, function, body, partial(self._report, job, function, known)
                )
            except CommitUnknown:  # accepted only if the commit did not happen: then it is recorded next time
                return AttemptEnd.retry(
                    job.attempt,
                    "commit_unknown",
                    "the connection was lost at the commit",
                    delay=0,
                    known=known,
                )
            except FunctionNotFound as error:
                return AttemptEnd.failed("function_not_found", error.message, known=known)
            except (FunctionFailed, HoldfastError) as error:
                self._log.warning("recording_failed", **job.log_fields, error=told(function, error))
                if pause is None:
                    detail = {**detail_of(error), "known": known}
                    return AttemptEnd.retry(job.attempt, "recording_failed", told(function, error), **detail)
                await asyncio.sleep(pause)
            else:
                self._settled(job, verdict)
                return None
        raise AssertionError("the last attempt returns")

    def _unhandled(self, job: Job, known: dict[str, Any]) -> AttemptEnd:
        """No handler in the database waits for the outcome: the queue itself retries where that may help."""
        if "sent" in known:
            return AttemptEnd.succeeded(json.dumps(known["sent"]))
        error = known["error"]
        told_error = {name: error[name] for name in ("permanent", "outcome_unknown", "retry_after")}
        if error["permanent"] or (error["outcome_unknown"] and error["key_seconds"] is None):
            return AttemptEnd.failed(error["kind"], error["message"], **told_error)
        if not error["outcome_unknown"]:
            told_error["sent"] = False
        return AttemptEnd.retry(
            job.attempt, error["kind"], error["message"], delay=error["retry_after"], **told_error
        )

    def _report(self, job: Job, function: str, known: dict[str, Any], envelope: Envelope) -> AttemptEnd:
        if envelope.validation_failure is not None:
            return AttemptEnd.failed(
                "validation_failure", f"{function}: {envelope.validation_failure}", **known
            )
        if "sent" in known:
            return AttemptEnd.succeeded(json.dumps(known["sent"]))
        error = dict(known["error"])
        self._log.warning("attempt_failed", **job.log_fields, error=error["message"])
        return AttemptEnd.failed(error.pop("kind"), error.pop("message"), **error)


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


def _known(job: Job, provider: Provider, before: LastError | None) -> dict[str, Any] | None:
    """What is known from the attempt before this one, and only has to be recorded; None: it may be sent."""
    detail = before.detail if before is not None and not before.recovered else None
    known = detail.get("known") if isinstance(detail, dict) else None
    if isinstance(known, dict) and ("sent" in known or "error" in known):
        return known
    if _may_repeat(provider, before):
        return None
    message = "its worker ended before it could record whether the message was sent"
    return {"error": _described(job, SendFailed("outcome_unknown", message, outcome_unknown=True))}


def _may_repeat(provider: Provider, before: LastError | None) -> bool:
    """Whether certainly nothing was sent yet, or sending it again cannot deliver it twice."""
    if before is None:
        return True
    surely_not = isinstance(before.detail, dict) and before.detail.get("sent") is False
    if surely_not or before.kind == "executor_not_available":
        return True
    return provider.key_retention is not None and before.age < provider.key_retention * SAFE_SHARE


def _cause(error: Exception) -> tuple[str, str]:
    match error:
        case ConfigurationError() | ImportError():
            return "provider_not_configured", str(error)
        case FunctionFailed():
            return kind_of(error), error.told
        case HoldfastError():
            return "database_error", str(error)
        case TimeoutError():
            return "timeout", "the time limit was passed before the provider was called"
    return "preparation_failed", f"{type(error).__name__}: {error}"


def _failure(job: Job, provider: Provider, error: SendFailed) -> dict[str, Any]:
    """With how long another attempt under the same key cannot deliver twice, counted from its first use."""
    described = _described(job, error)
    if error.outcome_unknown and provider.key_retention is not None:
        described["key_seconds"] = (provider.key_retention * SAFE_SHARE).total_seconds()
    return {"error": {**described, "provider": provider.name}}


def _described(job: Job, error: SendFailed) -> dict[str, Any]:
    found = {
        "kind": error.kind,
        "message": error.message,
        "permanent": error.permanent,
        "outcome_unknown": error.outcome_unknown,
        "retry_after": error.retry_after,
        "key_seconds": None,
        "task_id": job.task_id,
    }
    return dict(_plain(found))


def without(recipient: str, text: str) -> str:
    """What a provider said, without the address: facts and errors are kept for longer than messages."""
    return re.sub(re.escape(recipient.lstrip("+")), "…", text, flags=re.IGNORECASE)


def _plain(value: Any) -> Any:
    """As PostgreSQL can hold it."""
    return json.loads(report_json(value))


def _body(job: Job, known: dict[str, Any]) -> str:
    if "sent" in known:
        return object_of(original_payload=job.payload, worker_payload=json.dumps(known["sent"]))
    return object_of(original_payload=job.payload, error=json.dumps(known["error"]))
