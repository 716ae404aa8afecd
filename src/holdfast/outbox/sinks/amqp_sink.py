"""Sends events to an AMQP 0.9.1 broker such as RabbitMQ: persistent, confirmed and mandatory."""

import asyncio
import contextlib
from typing import Annotated, Any, Literal

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, DeliveryMode
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, DeliveryError
from aiormq.connection import TransportFactory
from pydantic import Field
from yarl import URL

from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.destinations import DestinationResolver, parse_broker_address
from holdfast.outbox.sink import SinkConfig, SinkOptions, Undelivered

CONNECT_SECONDS = 5.0


class AmqpOptions(SinkOptions):
    mode: Literal["structured", "binary"] = "structured"
    exchange: Annotated[str, Field(max_length=127)] = ""
    routing_key: Annotated[str, Field(min_length=1, max_length=255)] = "{type}"
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 100


class AmqpSink:
    """Publishes an event and waits for the confirmation. The consumers declare exchanges and queues."""

    def __init__(self, config: SinkConfig) -> None:
        options = AmqpOptions.model_validate(config.options)
        self.concurrency = options.concurrency
        self.timeout = options.timeout
        self._options = options
        self._server = parse_broker_address(config, {"amqp": 5672, "amqps": 5671})
        self._target = config.target
        self._resolver = DestinationResolver(config.allowed)
        self._resolver.check_target(*self._server.endpoint)
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None
        self._connecting = asyncio.Lock()

    async def send(self, event: OutgoingEvent, /) -> None:
        encoded = event.encode(self._options.mode)
        headers = dict(encoded.headers)
        outgoing = aio_pika.Message(
            encoded.body,
            content_type=headers.pop("content-type"),
            delivery_mode=DeliveryMode.PERSISTENT,
            message_id=event.id,
            type=event.type,
            timestamp=event.claimed.occurred_at,
            headers=dict(headers),
        )
        try:
            exchange = await self._connected()
            await exchange.publish(
                outgoing,
                routing_key=self._options.routing_key.replace("{type}", event.type),
                mandatory=True,
                timeout=self._options.timeout,
            )
        except DeliveryError as error:
            raise Undelivered(f"the broker did not accept the event: {_reason(error)}") from None
        except (AMQPError, ChannelInvalidStateError, OSError, TimeoutError, RuntimeError) as error:
            raise Undelivered(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            ) from None

    async def close(self) -> None:
        self._resolver.close()
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._exchange = self._channel = None
        if connection is not None:
            with contextlib.suppress(AMQPError, OSError, TimeoutError, RuntimeError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await connection.close()

    async def _connected(self) -> AbstractExchange:
        async with self._connecting:
            if self._exchange is None or self._channel is None or self._channel.is_closed:
                await self._disconnect()
                address = await self._resolver.address_of(*self._server.endpoint)
                # Not a robust connection: the next event reconnects and reports what is wrong.
                connection = aio_pika.Connection(URL(self._target))
                connection.kwargs["transport_factory"] = _CheckedTransport(address)
                await connection.connect(timeout=CONNECT_SECONDS)
                self._connection = connection
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                self._channel = channel
                self._exchange = (
                    await channel.get_exchange(self._options.exchange, ensure=True)
                    if self._options.exchange
                    else channel.default_exchange
                )
            return self._exchange


class _CheckedTransport(TransportFactory):
    """Connects to an address that was checked. The certificate is still verified for the host name."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        certificates = kwargs.pop("ssl_context_provider")
        tls = await certificates.get_context() if url.scheme == "amqps" else None
        return await asyncio.open_connection(
            self._address, url.port, ssl=tls, server_hostname=url.host if tls else None, **kwargs
        )


def _reason(error: DeliveryError) -> str:
    delivery = getattr(error.message, "delivery", None)
    return str(getattr(delivery, "reply_text", "") or "refused")
