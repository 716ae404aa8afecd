"""Sending: tasks that give a message to a provider, between handlers in the database.

The before-handler is called, then the provider, then the success-handler or the error-handler, whose
transaction records the outcome of the task. An error before the call of the provider means that nothing was
sent. A worker that dies after that leaves an attempt with an unknown outcome, which is repeated only while
the provider recognises its idempotency key.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from holdfast._worker.envelope import Envelope, FunctionFailed
from holdfast._worker.executor import Executor, ExecutorTask, ExecutorWorker, unusable
from holdfast._worker.handler import Handler
from holdfast._worker.report import AttemptEnd, CommitUnknown
from holdfast._worker.subscription import WorkerApp, serves_messages
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.messages.message_checks import check_sms_sender, parse_address
from holdfast.messages.message_plan import (
    SendPlan,
    compose_email,
    compose_sms,
    idempotency_key,
    read_plan,
)
from holdfast.messages.provider import SendFailed, Sent
from holdfast.messages.providers.choice import email_provider, sms_provider
from holdfast.messages.send_outcome import SendOutcome, may_repeat, without
from holdfast.processes.database_function import DatabaseFunctions, FunctionNotFound, describe_failure
from holdfast.settings import Settings

PAUSES_SECONDS = (0.1, 0.5, 2.0)  # between attempts to record an outcome


class AdmittingProvider(Protocol):
    """A provider that checks and counts a message before it sends it. Nothing is sent before `send`."""

    @property
    def name(self) -> str: ...
    @property
    def key_retention(self) -> timedelta | None: ...
    async def admit(self, message: Any) -> Any: ...
    async def send(self, message: Any) -> Sent: ...
    async def close(self) -> None: ...


class MessageExecutor(Executor):
    """Sends e-mail or text messages."""

    needs_handler = False

    def __init__(self, worker: ExecutorWorker) -> None:
        self._settings = worker.settings.model_copy(update={"database_url": worker.url})
        self._provider: AdmittingProvider | None = None
        # A pool of its own for both kinds, so that a message does not wait for functions that take long.
        self._functions = worker.share(DatabaseFunctions)
        self._settled = worker.settled
        self._log = worker.log
        if serves_messages(worker.settings):
            self.connected()

    def open_provider(self, settings: Settings) -> AdmittingProvider:
        """Raises ConfigurationError if the settings do not name a provider that can be used."""
        raise NotImplementedError

    def compose(self, content: dict[str, Any], key: str) -> Any:
        """Build a message from its content and idempotency key. Raises SendFailed if that is impossible."""
        raise NotImplementedError

    async def run(self, job: ExecutorTask, handler: Handler | None) -> AttemptEnd | None:
        del handler
        plan = read_plan(job.payload)
        if plan is None:
            return AttemptEnd.failed("invalid_payload", "the payload is not an object of handlers")
        try:
            provider = self.connected()
            outcome = await self._known_outcome(job, provider)
            message = None if outcome else await self._prepare_message(job, plan, provider)
        except SendFailed as error:
            return await self._record(job, plan, SendOutcome.of_failure(job.task_id, error))
        except Exception as error:  # noqa: BLE001 - whatever it was, the provider was not called
            return await self._not_sent(job, plan, error)
        if outcome is not None:
            return await self._record(job, plan, outcome)
        return await self._send(job, plan, provider, message)

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()
        await self._functions.close()

    def connected(self) -> AdmittingProvider:
        """Raises ConfigurationError if the settings do not name a provider that can be used."""
        if self._provider is None:
            self._provider = self.open_provider(self._settings)
            self._log.info("provider_chosen", provider=self._provider.name)
        return self._provider

    async def _known_outcome(self, job: ExecutorTask, provider: AdmittingProvider) -> SendOutcome | None:
        """The outcome of an earlier attempt, which only has to be recorded; None if it may be sent."""
        before = await self._functions.last_error(job) if job.attempt > 1 else None
        stored = SendOutcome.stored_by(before)
        if stored is not None or may_repeat(provider.key_retention, before):
            return stored
        message = "its worker ended before it could record whether the message was sent"
        return SendOutcome.of_failure(
            job.task_id, SendFailed("outcome_unknown", message, outcome_unknown=True)
        )

    async def _prepare_message(self, job: ExecutorTask, plan: SendPlan, provider: AdmittingProvider) -> Any:
        """The message for the provider, checked and counted."""
        content = await self._content(job, plan)
        if "only_provider" in content and content["only_provider"] != provider.name:
            raise SendFailed(
                "provider_changed",
                f"an earlier attempt may have been delivered by {content['only_provider']}, and"
                f" {provider.name} does not know its idempotency key",
                permanent=True,
            )
        message = self.compose(content, idempotency_key(job.task_id, content))
        async with asyncio.timeout(job.timeout):
            return await provider.admit(message)

    async def _content(self, job: ExecutorTask, plan: SendPlan) -> dict[str, Any]:
        """What the before-handler returns; without one, the payload of the task."""
        if plan.before is None:
            return plan.payload
        envelope = await self._functions.call(job, plan.before)
        if envelope.validation_failure is not None:
            raise SendFailed(
                "validation_failure", f"{plan.before}: {envelope.validation_failure}", permanent=True
            )
        content = None if envelope.payload is None else json.loads(envelope.payload)
        if not isinstance(content, dict):
            raise FunctionFailed(plan.before, "returned no object as the payload for the provider")
        return content

    async def _not_sent(self, job: ExecutorTask, plan: SendPlan, error: Exception) -> AttemptEnd | None:
        """An error before the provider was called: another worker or a later attempt may succeed."""
        kind, message = _cause(error)
        detail = error.detail if isinstance(error, FunctionFailed) else {}
        if kind == "preparation_failed":
            self._log.exception("preparation_failed", **job.log_fields)
        else:
            self._log.warning("message_not_sent", **job.log_fields, kind=kind, error=message)
        if job.attempt < job.max_attempts and not isinstance(error, FunctionNotFound):
            return AttemptEnd.retry(job.attempt, kind, message, sent=False, **detail)
        failed = SendFailed("before_handler_failed" if isinstance(error, FunctionFailed) else kind, message)
        return await self._record(job, plan, SendOutcome.of_failure(job.task_id, failed))

    async def _send(
        self, job: ExecutorTask, plan: SendPlan, provider: AdmittingProvider, message: Any
    ) -> AttemptEnd | None:
        if time.monotonic() >= job.lease_ends:  # this process was suspended: another worker may have the task
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
        except Exception as error:  # noqa: BLE001 - a provider may raise what it should not
            self._log.exception("provider_failed", **job.log_fields, provider=provider.name)
            failed = SendFailed("provider_failed", f"{type(error).__name__}: {error}", outcome_unknown=True)
        else:
            return await self._record(job, plan, SendOutcome.of_sent(sent, message.to))
        failed.message = without(message.to, failed.message)
        outcome = SendOutcome.of_failure(
            job.task_id, failed, provider=provider.name, key_retention=provider.key_retention
        )
        return await self._record(job, plan, outcome)

    async def _record(self, job: ExecutorTask, plan: SendPlan, outcome: SendOutcome) -> AttemptEnd | None:
        """Call the handler for the outcome; without one, the outcome is the end of the attempt."""
        function = plan.success if outcome.error is None else plan.error
        if function is None:
            return outcome.unhandled_end(job.attempt)
        try:
            return await self._call_handler(job, function, outcome)
        except asyncio.CancelledError:
            if job.stop is None:
                raise
            return _record_later(
                job, "recording_failed", "its worker ended before it could be recorded", outcome
            )

    async def _call_handler(
        self, job: ExecutorTask, function: str, outcome: SendOutcome
    ) -> AttemptEnd | None:
        """Call it with the outcome, and record the end of the task in its transaction."""
        body = outcome.body(job.payload)
        for pause in (*PAUSES_SECONDS, None):
            try:
                verdict = await self._functions.record(
                    job, function, body, partial(self._handled_end, job, function, outcome)
                )
            except CommitUnknown:  # accepted only if the commit did not happen
                return _record_later(job, "commit_unknown", "the connection was lost at the commit", outcome)
            except FunctionNotFound as error:
                return AttemptEnd.failed("function_not_found", error.message, known=outcome.as_json())
            except (FunctionFailed, HoldfastError) as error:
                failure = describe_failure(function, error)
                self._log.warning("recording_failed", **job.log_fields, error=failure.message)
                if pause is None:
                    detail = {**failure.detail, "known": outcome.as_json()}
                    return AttemptEnd.retry(job.attempt, "recording_failed", failure.message, **detail)
                await asyncio.sleep(pause)
            else:
                self._settled(job, verdict)
                return None
        raise AssertionError("the last attempt returns")

    def _handled_end(
        self, job: ExecutorTask, function: str, outcome: SendOutcome, envelope: Envelope
    ) -> AttemptEnd:
        if envelope.validation_failure is not None:
            message = f"{function}: {envelope.validation_failure}"
            return AttemptEnd.failed("validation_failure", message, **outcome.as_json())
        if outcome.error is not None:
            self._log.warning("attempt_failed", **job.log_fields, error=outcome.error.message)
        return outcome.recorded_end()


class EmailExecutor(MessageExecutor):
    @classmethod
    def check(
        cls, settings: Settings, app: WorkerApp | None = None, handlers: Sequence[Handler] = ()
    ) -> None:
        del app, handlers
        if "templates" in settings.model_fields_set and not os.access(settings.templates, os.R_OK | os.X_OK):
            raise ConfigurationError(
                f"{unusable('templates', settings.templates)}: it is not a directory that this account can"
                " read",
                hint="Give the directory of the templates of messages, or leave it out.",
            )
        _check_sender("email_sender", settings.email_sender, parse_address)

    def open_provider(self, settings: Settings) -> AdmittingProvider:
        return email_provider(settings)

    def compose(self, content: dict[str, Any], key: str) -> Any:
        return compose_email(content, key)


class SmsExecutor(MessageExecutor):
    @classmethod
    def check(
        cls, settings: Settings, app: WorkerApp | None = None, handlers: Sequence[Handler] = ()
    ) -> None:
        del app, handlers
        _check_sender("sms_sender", settings.sms_sender, check_sms_sender)

    def open_provider(self, settings: Settings) -> AdmittingProvider:
        return sms_provider(settings)

    def compose(self, content: dict[str, Any], key: str) -> Any:
        return compose_sms(content, key)


def _check_sender(setting: str, value: str | None, check: Callable[[str, str], object]) -> None:
    if value is None:
        return
    try:
        check("sender", value)
    except HoldfastError as error:
        raise ConfigurationError(f"{unusable(setting, value)}: {error.message}") from None


def _record_later(job: ExecutorTask, kind: str, message: str, outcome: SendOutcome) -> AttemptEnd:
    """The next attempt records the outcome and sends nothing."""
    return AttemptEnd.retry(job.attempt, kind, message, delay=0, known=outcome.as_json())


def _cause(error: Exception) -> tuple[str, str]:
    match error:
        case ConfigurationError():
            return "provider_not_configured", str(error)
        case FunctionFailed():
            failure = describe_failure(error.function, error)
            return failure.kind, failure.message
        case HoldfastError():
            return "database_error", str(error)
        case TimeoutError():
            return "timeout", "the time limit was passed before the provider was called"
    return "preparation_failed", f"{type(error).__name__}: {error}"
