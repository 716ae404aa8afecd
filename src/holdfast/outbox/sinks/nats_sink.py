"""Events into NATS JetStream. The server drops what it has seen already, by the id of the event."""

import asyncio
import contextlib
from typing import Annotated, Literal

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError
from pydantic import Field

from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.destinations import Guard
from holdfast.outbox.server import read_server
from holdfast.outbox.sink import Options, Place, Rejected, Undelivered

CONNECT_SECONDS = 5


class NatsOptions(Options):
    mode: Literal["structured", "binary"] = "structured"
    subject: Annotated[str, Field(min_length=1, max_length=200)] = "{type}"
    stream: str | None = None
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 100


class NatsSink:
    """Publishes and waits until the stream has stored the event. Needs a stream for the subject."""

    def __init__(self, place: Place) -> None:
        options = NatsOptions.model_validate(place.options)
        self.concurrency = options.concurrency
        self.timeout = options.timeout
        self._options = options
        self._server = read_server(place, {"nats": 4222, "tls": 4222})
        self._guard = Guard(place.allowed)
        self._guard.check_target(*self._server.address)
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def send(self, event: OutgoingEvent, /) -> None:
        options = self._options
        message = event.message(options.mode)
        subject = options.subject.replace("{type}", event.type)
        try:
            client = await self._connected()
            if len(message.body) > client.max_payload:
                raise Rejected(f"{len(message.body)} bytes are more than the server takes")
            await client.jetstream().publish(
                subject,
                message.body,
                timeout=options.timeout,
                stream=options.stream,
                headers={**message.headers, "Nats-Msg-Id": event.id},
            )
        except (NatsError, JetStreamError, OSError, TimeoutError) as error:
            raise Undelivered(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            ) from None

    async def close(self) -> None:
        self._guard.close()
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
                    server.at(await self._guard.address_of(*server.address)),
                    tls_hostname=server.host,
                    connect_timeout=CONNECT_SECONDS,
                    allow_reconnect=False,  # the next event does that, and says what is wrong
                    error_cb=_ignore,
                    name="holdfast dispatch",
                )
                self._client = client
                if server.scheme == "tls" and not client._server_info.get("tls_required"):  # noqa: SLF001 - no other way
                    await self._disconnect()
                    raise Undelivered("the server does not ask for TLS")
            return self._client


async def _ignore(error: Exception) -> None:
    """Whoever sends is told; the library would log it as well."""
    del error
