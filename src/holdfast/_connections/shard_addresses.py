"""Where notifications of a task come from: with shards, from its shard and not from the front."""

from typing import Any
from uuid import UUID

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._connections.session import DatabaseAddress, facts_of
from holdfast._connections.wait_ticket import Subject
from holdfast._engine import AsyncEngine
from holdfast._engine.shards import list_shards, shard_of

_PLACE = ("host", "hostaddr", "port", "dbname")


class ShardAddresses:
    """The addresses of all shards of a front, in their order; of one database, only its own."""

    def __init__(self, addresses: list[DatabaseAddress]) -> None:
        self.addresses = addresses

    def of(self, subject: Subject) -> int:
        """The place of its shard. Processes are on the first."""
        return shard_of(subject.bytes, len(self.addresses)) if isinstance(subject, UUID) else 0


async def read_shard_names(engine: AsyncEngine) -> list[str]:
    """The shards of a front, in their order; none if this is not a front."""
    if not facts_of(engine.connection).is_front:
        return []
    return [shard.shard_name for shard in await engine.run(list_shards())]


async def read_shard_addresses(engine: AsyncEngine, front: DatabaseAddress) -> ShardAddresses:
    """Shards have the login of the front, and other hosts."""
    if not facts_of(engine.connection).is_front:
        return ShardAddresses([front])
    login = conninfo_to_dict(await front.aget())
    for name in _PLACE:
        login.pop(name, None)
    found = await engine.run(list_shards())
    return ShardAddresses([_address({**login, **_place(shard.address)}) for shard in found])


def _place(address: str) -> dict[str, str]:
    return {name: str(value) for name, value in conninfo_to_dict(address).items() if name in _PLACE}


def _address(conninfo: dict[str, Any]) -> DatabaseAddress:
    url = make_conninfo("", **conninfo)
    return DatabaseAddress(lambda: url)
