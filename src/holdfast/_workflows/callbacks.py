"""Links by which a person answers a waiting run: `ctx.callback` makes them, `holdfast serve` verifies them.

What the link asks is a step of the run. The signature, by HOLDFAST_WEB_SECRET, is not stored: who reads the
steps of a run cannot answer for somebody else.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast._workflows.calls import AwaitedCall
from holdfast.errors import ConfigurationError, InvalidStep

DEFAULT_TTL = timedelta(days=30)
MAX_TTL = timedelta(days=366)
MAX_CHOICES = 10
MAX_LABEL = 60
MAX_QUESTION = 500
DEFAULT_CHOICES: Mapping[str, Any] = {"Approve": {"approved": True}, "Refuse": {"approved": False}}
LINK = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
_SIGNATURE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


class CallbackRun(Protocol):
    @property
    def settings(self) -> Callable[[], Any]: ...
    @property
    def steps(self) -> Any: ...
    def now(self) -> float: ...


def open_callback(
    run: CallbackRun,
    task_id: UUID,
    name: str,
    *,
    question: str | None,
    choices: Mapping[str, Any] | None,
    ttl: float | timedelta | None,
) -> Any:
    """The address of a link, made once. An awaitable in a run of a coroutine."""
    settings = run.settings()
    if not settings.web_secrets or settings.web_url is None:
        raise ConfigurationError(
            "a callback cannot be signed: HOLDFAST_WEB_SECRET or HOLDFAST_WEB_URL is not set for this worker",
            hint="Set both as for holdfast serve; the URL is where browsers find it.",
        )
    asked = {
        "signal": _text("the name", name, 200),
        "question": _text(
            "question", question if question is not None else f"Please answer: {name}", MAX_QUESTION
        ),
        "choices": _checked_choices(DEFAULT_CHOICES if choices is None else choices),
    }
    seconds = _seconds(ttl)

    def callback() -> dict[str, Any]:
        return {"link": secrets.token_urlsafe(16), "expires_at": int(run.now() + seconds), **asked}

    def address(made: dict[str, Any]) -> str:
        link = str(made["link"])
        signature = sign(settings.web_secrets[0], task_id, link)
        return f"{settings.web_url}/callbacks/{task_id}/{link}?signature={signature}"

    made = run.steps.step(callback, (), key=name, retries=0, retry=None, timeout=None, lazy=False, adapt=None)
    return made.then("ctx.callback", name, address) if isinstance(made, AwaitedCall) else address(made)


def sign(secret: str, task_id: UUID, link: str) -> str:
    note = f"holdfast callback\n{task_id}\n{link}".encode()
    return (
        base64.urlsafe_b64encode(hmac.new(secret.encode(), note, hashlib.sha256).digest())
        .rstrip(b"=")
        .decode()
    )


def is_signed(accepted: Sequence[str], task_id: UUID, link: str, signature: str) -> bool:
    """Whether one of the secrets signed this link. Compares all of them, each in constant time."""
    if LINK.fullmatch(link) is None or _SIGNATURE.fullmatch(signature) is None:
        return False
    good = [hmac.compare_digest(sign(secret, task_id, link), signature) for secret in accepted]
    return any(good)


def _text(what: str, given: object, longest: int) -> str:
    if not isinstance(given, str) or not 1 <= len(given) <= longest or "\0" in given:
        raise InvalidStep(
            f"{what} of a callback must be text of 1 to {longest} characters, not {given!r:.100}"
        )
    return given


def _checked_choices(choices: Mapping[str, Any]) -> list[list[Any]]:
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise InvalidStep(f"choices of a callback must be 1 to {MAX_CHOICES} labels, each with its payload")
    try:
        return [
            [_text("a label", label, MAX_LABEL), to_jsonable_python(payload)]
            for label, payload in choices.items()
        ]
    except PydanticSerializationError as error:
        raise InvalidStep(f"a choice of a callback cannot be written as JSON: {error}") from error


def _seconds(ttl: float | timedelta | None) -> float:
    given = timedelta(seconds=ttl) if isinstance(ttl, int | float) else ttl
    length = DEFAULT_TTL if given is None else given
    if not timedelta(seconds=1) <= length <= MAX_TTL:
        raise InvalidStep(
            f"ttl of a callback must be between 1 second and {MAX_TTL.days} days, and {length} is not"
        )
    return length.total_seconds()
