"""Sends events as HTTP requests, signed as described by Standard Webhooks."""

import asyncio
import contextlib
import re
import ssl
from typing import Annotated, Literal
from urllib.parse import urlsplit

import httpx
from pydantic import AfterValidator, Field

from holdfast import __version__
from holdfast._serialization.webhook_signature import attribute_headers, decode_secret, signature_headers
from holdfast.errors import ConfigurationError
from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.destinations import DestinationResolver, Resolve
from holdfast.outbox.sink import SinkConfig, SinkOptions, Undelivered, resolve_reference
from holdfast.retry import retry_after

CONNECT_SECONDS = 5.0
MAX_BODY_BYTES = 64 * 1024
MAX_BODY_SECONDS = 1.0
_MAX_DELAY_SECONDS = 86_400.0
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_RESERVED_HEADER = re.compile(
    r"(?i)(webhook-.*|ce-.*|content-.*|host|connection|transfer-encoding|te|upgrade|trailer)"
)
_TRY_LATER = (429, 503)


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or _RESERVED_HEADER.fullmatch(name):
            raise ValueError(f"{name!r} cannot be set")
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the value of {name} must be printable ASCII")
    return headers


class HttpOptions(SinkOptions):
    mode: Literal["structured", "binary"] = "structured"
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(default_factory=dict)
    timeout: Annotated[float, Field(gt=0, le=60)] = 15.0
    concurrency: Annotated[int, Field(ge=1, le=100)] = 10


class HttpSink:
    """Sends a POST request to an address that was checked. Any 2xx status accepts the event."""

    def __init__(self, config: SinkConfig, *, resolve: Resolve | None = None) -> None:
        options = HttpOptions.model_validate(config.options)
        self.concurrency = options.concurrency
        self.timeout = options.timeout
        self._mode = options.mode
        self._url = _parse_target(config.target)
        self._headers = {name: resolve_reference(value) for name, value in options.headers.items()}
        self._secrets = config.secrets
        for secret in config.secrets:
            decode_secret(secret)
        self._resolver = DestinationResolver(config.allowed, resolve=resolve)
        self._port = self._url.port or (443 if self._url.scheme == "https" else 80)
        self._resolver.check_target(self._url.scheme, self._url.host, self._port)
        self._draining: set[asyncio.Task[None]] = set()
        self._client = httpx.AsyncClient(
            trust_env=False,  # ignore proxies and .netrc of the environment
            follow_redirects=False,
            verify=_certificates() if self._url.scheme == "https" else False,
            timeout=httpx.Timeout(options.timeout, connect=CONNECT_SECONDS),
            # Twice the concurrency: bodies of finished requests may still be drained.
            limits=httpx.Limits(max_connections=2 * options.concurrency),
        )

    async def send(self, event: OutgoingEvent, /) -> None:
        url = self._url
        address = await self._resolver.address_of(url.scheme, url.host, self._port)
        encoded = event.encode(self._mode)
        request = self._client.build_request(
            "POST",
            url.copy_with(host=address),
            headers={
                "user-agent": f"holdfast/{__version__}",
                **self._headers,
                **encoded.headers,
                **signature_headers(
                    event.id, encoded.body, self._secrets, attributes=attribute_headers(encoded.headers)
                ),
                "host": url.netloc.decode("ascii"),
            },
            content=encoded.body,
            extensions={"sni_hostname": url.host},
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise Undelivered(_describe_error(error)) from None
        # The status alone decides: a body that stalls or breaks off changes nothing.
        draining = asyncio.create_task(_drain(response))
        self._draining.add(draining)
        draining.add_done_callback(self._draining.discard)
        _raise_unless_accepted(response)

    async def close(self) -> None:
        self._resolver.close()
        if self._draining:
            await asyncio.wait(self._draining)
        await self._client.aclose()


def _parse_target(target: str) -> httpx.URL:
    try:
        urlsplit(target)
        url = httpx.URL(target)
    except (ValueError, httpx.InvalidURL):
        raise ConfigurationError("the target is not a URL") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigurationError("the target of an http sink must be a URL that begins with https://")
    return url.copy_with(fragment=None)


def _certificates() -> ssl.SSLContext:
    """The certificates of SSL_CERT_FILE and SSL_CERT_DIR, or those that httpx trusts by default."""
    return httpx.create_ssl_context()


async def _drain(response: httpx.Response) -> None:
    """Read a short body so that the connection can be reused. Close the connection on a long or slow one."""
    size = 0
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        try:
            async with asyncio.timeout(MAX_BODY_SECONDS):
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > MAX_BODY_BYTES:
                        break
        finally:
            await response.aclose()


def _raise_unless_accepted(response: httpx.Response) -> None:
    """Only the status is recorded: the body may come from inside somebody's network."""
    if response.is_success:
        return
    if response.is_redirect or response.has_redirect_location:
        raise Undelivered(f"HTTP {response.status_code}: redirects are not followed")
    delay = retry_after(response.headers) if response.status_code in _TRY_LATER else None
    raise Undelivered(
        f"HTTP {response.status_code}", delay=None if delay is None else min(delay, _MAX_DELAY_SECONDS)
    )


def _describe_error(error: httpx.HTTPError) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name
