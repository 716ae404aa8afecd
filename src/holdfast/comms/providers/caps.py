"""How much may be sent, as the database has it: shared by all workers, and still true after a crash."""

from holdfast.comms.provider import SendFailed
from holdfast.connections.pool import AsyncPool
from holdfast.connections.session import DatabaseAddress
from holdfast.engine import messages
from holdfast.engine.messages import Reservation
from holdfast.errors import HoldfastError
from holdfast.postgres import resolve_database_url
from holdfast.settings import Settings

_SCOPES = {"recipient": "to one recipient", "country": "to one country", "all": "in all"}


def link_to(settings: Settings) -> AsyncPool:
    """A connection of the provider's own, made when it is first used."""
    return AsyncPool(DatabaseAddress(lambda: resolve_database_url(settings)))


class Caps:
    """A message is counted once under its key, before it is sent."""

    def __init__(self, channel: str, settings: Settings) -> None:
        self._channel = channel
        self._link = link_to(settings)

    async def reserve(self, recipient: str, idempotency_key: str) -> None:
        """Raises SendFailed when a cap is reached, or when nobody can say."""
        try:
            answer = await self._link.run(
                lambda engine: engine.run(messages.reserve_send(self._channel, recipient, idempotency_key)),
                repeatable=True,
            )
        except HoldfastError as error:
            raise SendFailed("unavailable", f"the caps cannot be read: {error}") from error
        if not answer.reserved:
            raise _reached(self._channel, answer)

    async def close(self) -> None:
        self._link.close()


def _reached(channel: str, cap: Reservation) -> SendFailed:
    scope = _SCOPES.get(cap.scope or "", cap.scope)
    return SendFailed(
        "cap_reached",
        f"no more than {cap.most} messages of channel {channel} go {scope} in {cap.period}",
        retry_after=cap.retry_after.total_seconds() if cap.retry_after else None,
    )
