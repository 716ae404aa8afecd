"""Sends events to NATS JetStream, which drops duplicates by the id of the event."""

import asyncio
import contextlib
from typing import Annotated, Literal

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError
from pydantic import Field

from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.destinations import DestinationResolver, parse_broker_address
from holdfast.outbox.sink import Rejected, SinkConfig, SinkOptions, Undelivered

CONNECT_SECONDS = 5


class NatsOptions(SinkOptions):
    mode: Literal["structured", "binary"] = "structured"
    subject: Annotated[str, Field(min_length=1, max_length=200)] = "{type}"
    stream: str | None = None
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 100


class NatsSink:
    """Publishes an event and waits until the stream has stored it. The subject needs a stream."""

    def __init__(self, config: SinkConfig) -> None:
        options = NatsOptions.model_validate(config.options)
        self.concurrency = options.concurrency
        self.timeout = options.timeout
        self._options = options
        self._server = parse_broker_address(config, {"nats": 4222, "tls": 4222})
        self._resolver = DestinationResolver(config.allowed)
        self._resolver.check_target(*self._server.endpoint)
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def send(self, event: OutgoingEvent, /) -> None:
        options = self._options
        encoded = event.encode(options.mode)
        subject = options.subject.replace("{type}", event.type)
        try:
            client = await self._connected()
            if len(encoded.body) > client.max_payload:
                raise Rejected(f"{len(encoded.body)} bytes exceed the maximum payload of the server")
            await client.jetstream().publish(
                subject,
                encoded.body,
                timeout=options.timeout,
                stream=options.stream,
                headers={**encoded.headers, "Nats-Msg-Id": event.id},
            )
        except (NatsError, JetStreamError, OSError, TimeoutError) as error:
            raise Undelivered(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            ) from None

    async def close(self) -> None:
        self._resolver.close()
        await self._disconnect()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await client.close()

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None or not self._client.is_connected:
                await self._disconnect()
                server = self._server
                client = await nats.connect(
                    server.url_at(await self._resolver.address_of(*server.endpoint)),
                    tls_hostname=server.host,
                    connect_timeout=CONNECT_SECONDS,
                    allow_reconnect=False,  # the next event reconnects and reports what is wrong
                    error_cb=_ignore,
                    name="holdfast dispatch",
                )
                self._client = client
                if server.scheme == "tls" and not client._server_info.get("tls_required"):  # noqa: SLF001 - the client has no public accessor
                    await self._disconnect()
                    raise Undelivered("the server does not ask for TLS")
            return self._client


async def _ignore(error: Exception) -> None:
    """The failed send reports the error. Without a callback, the library would log it as well."""
    del error
