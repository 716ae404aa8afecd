"""Asks a front which of its shards it reaches."""

from holdfast._connections.pool import open_connection
from holdfast._connections.session import DatabaseAddress
from holdfast._engine import Engine
from holdfast._engine.shards import ShardStatus, list_shards, problem_of
from holdfast.errors import NoAnswer

ASK_SECONDS = 5.0
HANGS = "it accepts connections, and does not answer"


def front_status(front: DatabaseAddress) -> list[ShardStatus]:
    """Each shard, and why the front does not reach it with the login of this address, if so.

    One statement for each: the front waits for a shard that hangs for as long as its caller does.
    """
    connection = open_connection(front, ASK_SECONDS)
    try:
        found = []
        for shard in Engine(connection).run(list_shards()):
            try:
                problem = Engine(connection).run(problem_of(shard.shard_number))
            except NoAnswer:
                problem = HANGS
                connection = open_connection(front, ASK_SECONDS)
            found.append(
                ShardStatus(shard.shard_number, shard.shard_name, shard.address, problem is None, problem)
            )
        return found
    finally:
        connection.close()
