"""Sends a request to a provider's HTTP API and interprets the response."""

import asyncio
import json
from typing import Any

import httpx

from holdfast.messages.provider import SendFailed
from holdfast.retry import retry_after
from holdfast.settings import Settings

MAX_DETAIL = 500

_TOO_MANY = 429
# The request was not executed. After any other 5xx it may have been: a gateway timed out, or there was an
# error after the message was accepted.
_NOT_EXECUTED = {501, 503, 505}
_TEMPORARY = {408, 425, _TOO_MANY}


class ProviderApi:
    """A provider with an HTTP API. Redirects are not followed, so that secrets stay with their host."""

    def __init__(self, title: str, settings: Settings, url: str, auth: httpx.Auth | None = None) -> None:
        self._title = title
        self._seconds = settings.send_timeout.total_seconds()
        self._client = httpx.AsyncClient(
            base_url=url,
            auth=auth,
            # Connecting gets a part of the time: a failure to connect means that nothing was sent.
            timeout=httpx.Timeout(self._seconds, connect=self._seconds / 3, pool=self._seconds / 3),
            headers={"user-agent": "holdfast", "accept": "application/json"},
            trust_env=True,
        )

    async def post(self, path: str, **request: Any) -> httpx.Response:
        """Return the response. Raise SendFailed if there is none."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._client.post(path, **request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise SendFailed("unreachable", f"{self._title} cannot be reached: {_describe(error)}") from error
        except (httpx.TransportError, TimeoutError) as error:
            raise SendFailed(
                "outcome_unknown",
                f"{self._title} did not respond and may have sent the message: {_describe(error)}",
                outcome_unknown=True,
            ) from error

    def failure(
        self, response: httpx.Response, code: str, detail: str, *, temporary: bool | None = None
    ) -> SendFailed:
        """Interpret a response other than success. `temporary` overrides what the status means."""
        message = (
            f"{self._title} returned {response.status_code} {code}".rstrip() + f": {detail[:MAX_DETAIL]}"
        )
        status = response.status_code
        if status >= httpx.codes.INTERNAL_SERVER_ERROR and status not in _NOT_EXECUTED:
            return SendFailed(
                "outcome_unknown", message, outcome_unknown=True, retry_after=retry_after(response.headers)
            )
        if temporary is None:
            temporary = status in _TEMPORARY or status >= httpx.codes.INTERNAL_SERVER_ERROR
        if not temporary:
            return SendFailed("rejected", message, permanent=True)
        kind = "rate_limited" if status == _TOO_MANY else "unavailable"
        return SendFailed(kind, message, retry_after=retry_after(response.headers))

    async def close(self) -> None:
        await self._client.aclose()


def json_body(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a response; empty if the body is something else, such as a page of a proxy."""
    try:
        found = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def required_id(response: httpx.Response, name: str, title: str) -> str:
    """The id of an accepted message. Without an id, the response may not come from the provider."""
    found = json_body(response).get(name)
    if isinstance(found, str) and found:
        return found
    kind = response.headers.get("content-type", "no content type")[:100]
    raise SendFailed(
        "unexpected_answer",
        f"{title} returned {response.status_code} ({kind}) without the {name!r} of a message:"
        " the message may have been sent, or a proxy responded instead",
        outcome_unknown=True,
    )


def _describe(error: BaseException) -> str:
    return str(error)[:MAX_DETAIL] or type(error).__name__
