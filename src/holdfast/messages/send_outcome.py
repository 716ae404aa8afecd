"""The outcome of a send: what is known about it, and whether the message may be sent again."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import Any

from holdfast._engine.leases import LastError
from holdfast._serialization.failure import error_of
from holdfast._serialization.text import json_object, report_json
from holdfast._worker.report import AttemptEnd
from holdfast.messages.provider import SendFailed, Sent

SAFE_SHARE = 0.95  # of the time for which a provider recognises a key; the rest covers delays


@dataclass(frozen=True, slots=True)
class SendError:
    """Why a message was not sent, or why that is unknown; the attributes of `SendFailed` are explained there.

    Another attempt under the same idempotency key cannot deliver twice for `key_seconds` after its first use.
    """

    kind: str
    message: str
    permanent: bool = False
    outcome_unknown: bool = False
    retry_after: float | None = None
    key_seconds: float | None = None
    task_id: str | None = None
    provider: str | None = None

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        if self.provider is None:  # it was not called
            del found["provider"]
        return found


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """What the provider confirmed, or an error. An attempt stores it until it is recorded as a fact."""

    sent: Mapping[str, Any] | None = None
    error: SendError | None = None

    @classmethod
    def of_sent(cls, sent: Sent, recipient: str) -> "SendOutcome":
        text = without(recipient, json.dumps(asdict(sent), default=str))
        return cls(sent=json.loads(report_json(json.loads(text))))

    @classmethod
    def of_failure(
        cls,
        task_id: str,
        error: SendFailed,
        *,
        provider: str | None = None,
        key_retention: timedelta | None = None,
    ) -> "SendOutcome":
        """`key_retention` is for how long the provider recognises an idempotency key."""
        key_seconds = None
        if error.outcome_unknown and key_retention is not None:
            key_seconds = (key_retention * SAFE_SHARE).total_seconds()
        described = {
            **error_of(error.kind, error.message),
            "permanent": error.permanent,
            "outcome_unknown": error.outcome_unknown,
            "retry_after": error.retry_after,
            "key_seconds": key_seconds,
            "task_id": task_id,
            "provider": provider,
        }
        return cls(error=SendError(**json.loads(report_json(described))))

    @classmethod
    def stored_by(cls, before: LastError | None) -> "SendOutcome | None":
        """The outcome that the previous attempt stored, which only has to be recorded."""
        detail = before.detail if before is not None and not before.recovered else None
        stored = detail.get("known") if isinstance(detail, dict) else None
        match stored:
            case {"sent": dict() as sent}:
                return cls(sent=sent)
            case {"error": {"kind": str(), "message": str()} as error}:
                names = {field.name for field in fields(SendError)}
                return cls(error=SendError(**{name: error[name] for name in names & error.keys()}))
        return None

    def as_json(self) -> dict[str, Any]:
        return {"sent": self.sent} if self.error is None else {"error": self.error.as_json()}

    def body(self, payload: str) -> str:
        """What the success-handler or the error-handler is called with."""
        if self.error is None:
            return json_object(original_payload=payload, worker_payload=json.dumps(self.sent))
        return json_object(original_payload=payload, error=json.dumps(self.error.as_json()))

    def recorded_end(self) -> AttemptEnd:
        """The end of an attempt whose outcome a handler has recorded: that handler decides about another."""
        if self.error is None:
            return AttemptEnd.succeeded(json.dumps(self.sent))
        detail = self.error.as_json()
        return AttemptEnd.failed(detail.pop("kind"), detail.pop("message"), **detail)

    def unhandled_end(self, attempt: int) -> AttemptEnd:
        """The end without a handler for the outcome: the queue retries where that may help."""
        error = self.error
        if error is None:
            return AttemptEnd.succeeded(json.dumps(self.sent))
        detail: dict[str, Any] = {
            "permanent": error.permanent,
            "outcome_unknown": error.outcome_unknown,
            "retry_after": error.retry_after,
        }
        if error.permanent or (error.outcome_unknown and error.key_seconds is None):
            return AttemptEnd.failed(error.kind, error.message, **detail)
        if not error.outcome_unknown:
            detail["sent"] = False
        return AttemptEnd.retry(attempt, error.kind, error.message, delay=error.retry_after, **detail)


def may_repeat(key_retention: timedelta | None, before: LastError | None) -> bool:
    """Whether nothing was sent yet, or sending it again cannot deliver it twice."""
    if before is None:
        return True
    not_sent = isinstance(before.detail, dict) and before.detail.get("sent") is False
    if not_sent or before.kind == "executor_not_available":
        return True
    return key_retention is not None and before.age < key_retention * SAFE_SHARE


def without(recipient: str, text: str) -> str:
    """Remove the address from a provider's text: facts and errors are kept for longer than messages."""
    return re.sub(re.escape(recipient.lstrip("+")), "…", text, flags=re.IGNORECASE)
