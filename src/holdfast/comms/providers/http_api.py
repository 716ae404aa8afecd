"""One request to a provider's API, and what its answer means for the message."""

import asyncio
import json
import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from holdfast.comms.provider import SendFailed
from holdfast.settings import Settings

MAX_WORDS = 500

_TOO_MANY = 429
# These say that the request was not carried out. After any other 5xx it may have been: a gateway gave up
# waiting for the answer, or something broke after the message was accepted.
_NOT_CARRIED_OUT = {501, 503, 505}
_PASSING = {408, 425, _TOO_MANY}


class Api:
    """A provider that is reached over HTTP. No redirect is followed: secrets stay with their host."""

    def __init__(self, title: str, settings: Settings, url: str, auth: httpx.Auth | None = None) -> None:
        self._title = title
        self._seconds = settings.send_timeout.total_seconds()
        self._client = httpx.AsyncClient(
            base_url=url,
            auth=auth,
            # Until it is connected nothing is sent: that has to be known before the whole time is over.
            timeout=httpx.Timeout(self._seconds, connect=self._seconds / 3, pool=self._seconds / 3),
            headers={"user-agent": "holdfast", "accept": "application/json"},
            trust_env=True,
        )

    async def post(self, path: str, **request: Any) -> httpx.Response:
        """The answer, if the provider has given one. Raises SendFailed if the connection failed."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._client.post(path, **request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise SendFailed("unreachable", f"{self._title} cannot be reached: {_words(error)}") from error
        except (httpx.TransportError, TimeoutError) as error:
            raise SendFailed(
                "outcome_unknown",
                f"{self._title} did not answer, and may have sent the message: {_words(error)}",
                outcome_unknown=True,
            ) from error

    def failure(
        self, answer: httpx.Response, code: str, words: str, *, passing: bool | None = None
    ) -> SendFailed:
        """What an answer other than success means; `passing` is what the code itself says of it."""
        message = f"{self._title} answered {answer.status_code} {code}".rstrip() + f": {words[:MAX_WORDS]}"
        status = answer.status_code
        if status >= httpx.codes.INTERNAL_SERVER_ERROR and status not in _NOT_CARRIED_OUT:
            return SendFailed(
                "outcome_unknown", message, outcome_unknown=True, retry_after=retry_after(answer)
            )
        if passing is None:
            passing = status in _PASSING or status >= httpx.codes.INTERNAL_SERVER_ERROR
        if not passing:
            return SendFailed("rejected", message, permanent=True)
        kind = "rate_limited" if status == _TOO_MANY else "unavailable"
        return SendFailed(kind, message, retry_after=retry_after(answer))

    async def close(self) -> None:
        await self._client.aclose()


def body_of(answer: httpx.Response) -> dict[str, Any]:
    """The object in an answer; empty if it is something else, a proxy's page for one."""
    try:
        found = json.loads(answer.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def id_in(answer: httpx.Response, name: str, title: str) -> str:
    """The id of a message that was taken over. Without one, something else than the provider has answered."""
    found = body_of(answer).get(name)
    if isinstance(found, str) and found:
        return found
    kind = answer.headers.get("content-type", "no content type")[:100]
    raise SendFailed(
        "unexpected_answer",
        f"{title} answered {answer.status_code} ({kind}) without the {name!r} of a message:"
        " it may have been sent, or a proxy answered in its place",
        outcome_unknown=True,
    )


def retry_after(answer: httpx.Response) -> float | None:
    """Seconds, whether they were given as such or as a date."""
    given = answer.headers.get("retry-after", "").strip()
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        try:
            moment = parsedate_to_datetime(given)
        except ValueError:
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _words(error: BaseException) -> str:
    return str(error)[:MAX_WORDS] or type(error).__name__
