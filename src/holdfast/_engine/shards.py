"""Shards, as a front lists them."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from holdfast._engine.statement import Statement, sql_function


@dataclass(frozen=True, slots=True)
class ShardAddress:
    """Where a shard is. The address has no login."""

    shard_number: int
    shard_name: str
    address: str


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """A shard, and why its front cannot reach it, if so."""

    shard_number: int
    shard_name: str
    address: str
    reached: bool
    problem: str | None


@sql_function("holdfast_front.list_shards")
def list_shards() -> Statement[list[ShardAddress]]:
    """Without asking the shards."""


@sql_function("holdfast_front.problem_of")
def problem_of(shard_number: int) -> Statement[str | None]:
    """Why the front cannot reach this shard, or None."""


def name_of_shard(task_id: UUID, names: Sequence[str]) -> str | None:
    """The shard of a task, of those that `list_shards` returns; None without shards."""
    return names[shard_of(task_id.bytes, len(names))] if names else None


def shard_of(task_id_bytes: bytes, count: int) -> int:
    """The number of the shard in an id: see `queues.new_task_id`."""
    return task_id_bytes[11] % count
