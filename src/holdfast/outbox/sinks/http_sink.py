"""Events as HTTP requests, signed as Standard Webhooks say."""

import asyncio
import contextlib
import re
import ssl
from email.utils import parsedate_to_datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

import httpx
from pydantic import AfterValidator, Field

from holdfast import __version__
from holdfast.errors import ConfigurationError
from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.destinations import Guard, Resolve
from holdfast.outbox.sink import Options, Place, Undelivered, looked_up
from holdfast.webhook import key_of, signature_headers

CONNECT_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 * 1024
MAX_ANSWER_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 86_400.0
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = re.compile(r"(?i)(webhook-.*|ce-.*|content-.*|host|connection|transfer-encoding|te|upgrade|trailer)")
_TRY_LATER = (429, 503)


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or _OURS.fullmatch(name):
            raise ValueError(f"{name!r} cannot be set")
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the value of {name} must be printable ASCII")
    return headers


class HttpOptions(Options):
    mode: Literal["structured", "binary"] = "structured"
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(default_factory=dict)
    timeout: Annotated[float, Field(gt=0, le=60)] = 15.0
    concurrency: Annotated[int, Field(ge=1, le=100)] = 10


class HttpSink:
    """POST, never redirected, to an address that was looked at. Any status of 2xx takes the event."""

    def __init__(self, place: Place, *, resolve: Resolve | None = None) -> None:
        options = HttpOptions.model_validate(place.options)
        self.concurrency = options.concurrency
        self.timeout = options.timeout
        self._mode = options.mode
        self._url = _checked(place.target)
        self._headers = {name: looked_up(value) for name, value in options.headers.items()}
        self._secrets = place.secrets
        for secret in place.secrets:
            key_of(secret)
        self._guard = Guard(place.allowed, resolve=resolve)
        self._port = self._url.port or (443 if self._url.scheme == "https" else 80)
        self._guard.check_target(self._url.scheme, self._url.host, self._port)
        self._endings: set[asyncio.Task[None]] = set()
        self._client = httpx.AsyncClient(
            trust_env=False,  # no proxy and no .netrc that nobody asked for
            follow_redirects=False,
            verify=_certificates() if self._url.scheme == "https" else False,
            timeout=httpx.Timeout(options.timeout, connect=CONNECT_SECONDS),
            # Twice as many as requests: what has been answered may still be read to its end.
            limits=httpx.Limits(max_connections=2 * options.concurrency),
        )

    async def send(self, event: OutgoingEvent, /) -> None:
        url = self._url
        address = await self._guard.address_of(url.scheme, url.host, self._port)
        message = event.message(self._mode)
        request = self._client.build_request(
            "POST",
            url.copy_with(host=address),
            headers={
                "user-agent": f"holdfast/{__version__}",
                **self._headers,
                **message.headers,
                **signature_headers(event.id, message.body, self._secrets),
                "host": url.netloc.decode("ascii"),
            },
            content=message.body,
            extensions={"sni_hostname": url.host},
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise Undelivered(_what_happened(error)) from None
        # The status decides. A body that stalls or breaks off does not undo it.
        ending = asyncio.create_task(_end(response))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        _judge(response)

    async def close(self) -> None:
        self._guard.close()
        if self._endings:
            await asyncio.wait(self._endings)
        await self._client.aclose()


def _checked(target: str) -> httpx.URL:
    try:
        urlsplit(target)
        url = httpx.URL(target)
    except (ValueError, httpx.InvalidURL):
        raise ConfigurationError("the target is not a URL") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigurationError("the target of an http sink is a URL that begins with https://")
    return url.copy_with(fragment=None)


def _certificates() -> ssl.SSLContext:
    """SSL_CERT_FILE and SSL_CERT_DIR count; else those that httpx trusts."""
    return httpx.create_ssl_context()


async def _end(response: httpx.Response) -> None:
    """Read a short body, so that the connection can be used again. Close it on a long or slow one."""
    size = 0
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > MAX_ANSWER_BYTES:
                        break
        finally:
            await response.aclose()


def _judge(response: httpx.Response) -> None:
    """What the receiver says beyond its status is not kept: it may be from inside somebody's network."""
    if response.is_success:
        return
    if response.is_redirect or response.has_redirect_location:
        raise Undelivered(f"HTTP {response.status_code}: redirects are not followed")
    delay = _retry_after(response) if response.status_code in _TRY_LATER else None
    raise Undelivered(f"HTTP {response.status_code}", delay=delay)


def _retry_after(response: httpx.Response) -> float | None:
    said = response.headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return min(float(said), _LONGEST_WAIT_SECONDS)
    try:
        until = parsedate_to_datetime(said)
        date = parsedate_to_datetime(response.headers.get("date", ""))
        return min(max((until - date).total_seconds(), 0.0), _LONGEST_WAIT_SECONDS)
    except (TypeError, ValueError):
        return None


def _what_happened(error: httpx.HTTPError) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name
