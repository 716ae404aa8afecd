"""What is kept of an exception: a description that can be stored, and when to try again after it."""

import json
import math
import traceback

from holdfast.retry import Exponential, RetryPolicy

MAX_MESSAGE = 8_000
MAX_TRACEBACK = 16_000
MAX_ERROR_BYTES = 60_000  # finish keeps 64 KiB of it
LONGEST_DELAY = 90 * 365 * 86400.0  # finish takes what is a century away for a mistake
DEFAULT_RETRY = Exponential()


def storable(text: str, most: int) -> str:
    """What PostgreSQL cannot keep becomes the replacement character; of a long text, both ends are kept."""
    if len(text) > most:
        text = f"{text[: most // 2]}\n… {len(text) - most} characters left out …\n{text[-most // 2 :]}"
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def brief(error: BaseException) -> str:
    """One line for the log; all of it is kept with the task."""
    lines = _text_of(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


def describe(error: BaseException) -> dict[str, str]:
    """For people to read, and small enough to be kept whole."""
    name = type(error).__qualname__
    described = {
        "kind": "handler_error",
        "message": storable(f"{name}: {_text_of(error)}", MAX_MESSAGE),
        "exception": storable(f"{type(error).__module__}.{name}", MAX_MESSAGE),
    }
    for most in (MAX_TRACEBACK, MAX_TRACEBACK // 4):
        described["traceback"] = storable(_traceback_of(error), most)
        if fits(described):
            return described
    del described["traceback"]
    return described


def fits(described: object) -> bool:
    """Whether it can be kept whole."""
    return len(json.dumps(described, ensure_ascii=False).encode("utf-8", "replace")) <= MAX_ERROR_BYTES


def next_delay(policy: RetryPolicy, attempt: int, error: BaseException) -> float | None:
    """Seconds until the next attempt. A policy that fails must not keep the task from being settled."""
    try:
        delay = policy.delay(attempt, error)
        if delay is None:
            return None
        if not math.isfinite(delay):
            raise ValueError(delay)  # noqa: TRY301 - to the default, as any other failure of a policy
        return min(max(0.0, delay), LONGEST_DELAY)
    except Exception:  # noqa: BLE001 - whatever it is
        return DEFAULT_RETRY.delay(attempt, error)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as problem:  # noqa: BLE001 - an exception whose text cannot be had is still one
        return f"(its text cannot be had: {type(problem).__name__})"


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-40))
    except BaseException as problem:  # noqa: BLE001 - as above
        return f"(the traceback cannot be had: {type(problem).__name__})"
