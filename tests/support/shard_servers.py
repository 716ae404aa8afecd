"""Shards and fronts that are servers of their own, so that each can be killed; for tests."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import make_conninfo

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.shards.logins import Logins, Purpose
from holdfast.shards.migration import migrate_shards
from support.engine import Connection, rows
from support.server import disposable_server
from support.sharded import require_plproxy

_KEYS = "select idempotency_key as key from queues.task where idempotency_key is not null"
LOGINS = {"client": "shop", "worker": "runner"}


@dataclass
class ShardServers:
    fronts: list[EmbeddedServer]
    shards: list[EmbeddedServer]

    @property
    def settings(self) -> dict[str, str]:
        """What HOLDFAST_SHARDS says."""
        return {f"s{n:02}": server.url("shard") for n, server in enumerate(self.shards)}

    def environment(self, front: int = 0) -> dict[str, str]:
        shards = " ".join(f"{name}={url}" for name, url in self.settings.items())
        return {"DATABASE_URL": self.fronts[front].url("front"), "HOLDFAST_SHARDS": shards}

    def address(self, front: int = 0) -> str:
        """Of a front, for a client."""
        return make_conninfo(self.fronts[front].url("front"), user=LOGINS["client"])

    def worker_address(self, shard: int) -> str:
        return make_conninfo(self.shards[shard].url("shard"), user=LOGINS["worker"])

    def migrate(self) -> None:
        for front in self.fronts:
            migrate_shards(front.url("front"), self.settings)

    def admit_logins(self) -> None:
        for front in self.fronts:
            for role, login in LOGINS.items():
                logins = Logins(front.url("front"), self.settings)
                logins.apply(logins.to_grant(login, [Purpose(role)]))

    @contextmanager
    def connected(self) -> Iterator[list[Connection]]:
        """To every shard, as the superuser."""
        with ExitStack() as stack:
            urls = self.settings.values()
            yield [stack.enter_context(psycopg.connect(url, autocommit=True)) for url in urls]

    def count_keys(self) -> int:
        """Of all shards. Fails if one is there twice."""
        with self.connected() as connections:
            keys = [row["key"] for connection in connections for row in rows(connection, _KEYS)]
        assert len(keys) == len(set(keys)), "a key has two tasks"
        return len(keys)


@contextmanager
def shard_servers(shards: int, fronts: int = 1) -> Iterator[ShardServers]:
    require_plproxy()
    with ExitStack() as stack:
        servers = [stack.enter_context(disposable_server(15)) for _ in range(fronts + shards)]
        for number, server in enumerate(servers):
            with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
                admin.execute(f"create database {'front' if number < fronts else 'shard'}")
                for login in LOGINS.values():
                    admin.execute(f"create role {login} login")
        found = ShardServers(servers[:fronts], servers[fronts:])
        found.migrate()
        found.admit_logins()
        yield found
