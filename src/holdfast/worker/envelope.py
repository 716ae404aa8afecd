"""What a business function answers: whether it went well, and what it has to say."""

from dataclasses import dataclass
from typing import Any

_TEXTS = ("error", "validation_failure_message")


@dataclass(frozen=True, slots=True)
class Envelope:
    """An answer that was understood. Its payload is JSON text, with every digit."""

    function: str
    payload: str | None
    validation_failure: str | None


class FunctionFailed(Exception):
    """Something broke in a function, or in what it answered. Not the payload's fault: it is tried again."""

    def __init__(self, function: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.function = function
        self.message = message
        self.detail = detail

    @property
    def told(self) -> str:
        return f"{self.function}: {self.message}"


class FunctionNotFound(FunctionFailed):
    """There is no such function, or this worker may not run it. Another attempt would not find it either."""


def read_envelope(function: str, answer: Any, payload: str | None) -> Envelope:
    """The answer of a function that succeeded or declined; FunctionFailed if it is anything else."""
    if not isinstance(answer, dict) or not isinstance(answer.get("success"), bool):
        raise _broken(function, 'an object with a boolean "success"', answer)
    for field in _TEXTS:
        if not isinstance(answer.get(field), str | None):
            raise _broken(function, f'text as its "{field}"', answer)
    error, declined = (answer.get(field) or None for field in _TEXTS)
    if error is not None:
        raise FunctionFailed(function, error)
    if answer["success"] == (declined is not None):
        raise _broken(function, 'either "success" or a reason why not', answer)
    return Envelope(function, payload, declined)


def _broken(function: str, expected: str, answer: Any) -> FunctionFailed:
    return FunctionFailed(function, f"answered {repr(answer)[:200]} and not {expected}")
