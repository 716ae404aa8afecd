"""Events to an AMQP 0.9.1 broker, such as RabbitMQ: persistent, confirmed, and not lost without a queue."""

import asyncio
import contextlib
from typing import Annotated, Literal

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, DeliveryMode
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, DeliveryError
from pydantic import Field

from holdfast.outbox.event import OutgoingEvent
from holdfast.outbox.sink import Options, Place, Undelivered

CONNECT_SECONDS = 5.0


class AmqpOptions(Options):
    mode: Literal["structured", "binary"] = "structured"
    exchange: Annotated[str, Field(max_length=127)] = ""
    routing_key: Annotated[str, Field(min_length=1, max_length=255)] = "{type}"
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 100


class AmqpSink:
    """Publishes, and waits for the confirmation. Exchanges and queues are made by whoever consumes."""

    def __init__(self, place: Place) -> None:
        options = AmqpOptions.model_validate(place.options)
        self.concurrency = options.concurrency
        self.timeout = options.timeout
        self._options = options
        self._target = place.target
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None
        self._connecting = asyncio.Lock()

    async def send(self, event: OutgoingEvent, /) -> None:
        message = event.message(self._options.mode)
        headers = dict(message.headers)
        outgoing = aio_pika.Message(
            message.body,
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
            raise Undelivered(f"the broker did not take it: {_reason(error)}") from None
        except (AMQPError, ChannelInvalidStateError, OSError, TimeoutError, RuntimeError) as error:
            raise Undelivered(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            ) from None

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._exchange = self._channel = None
        if connection is not None:
            with contextlib.suppress(AMQPError, OSError, TimeoutError, RuntimeError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await connection.close()

    async def _connected(self) -> AbstractExchange:
        async with self._connecting:
            if self._exchange is None or self._channel is None or self._channel.is_closed:
                await self.close()
                # Not the robust one: the next event connects again, and says what is wrong.
                self._connection = await aio_pika.connect(self._target, timeout=CONNECT_SECONDS)
                channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                self._channel = channel
                self._exchange = (
                    await channel.get_exchange(self._options.exchange, ensure=True)
                    if self._options.exchange
                    else channel.default_exchange
                )
            return self._exchange


def _reason(error: DeliveryError) -> str:
    delivery = getattr(error.message, "delivery", None)
    return str(getattr(delivery, "reply_text", "") or "refused")
