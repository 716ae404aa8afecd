"""Who is measured: versions, the best settings known, and how its database says that nothing is left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Settings = Mapping[str, Any]
Runtime = Literal["own", "python", "node"]
DRIVERS = ("asyncpg", "psycopg")


@dataclass(frozen=True)
class Peer:
    """`unfinished` counts jobs to be done or acknowledged, `finished` those that ended; one is enough."""

    name: str
    runtime: Runtime
    unfinished: str | None = None
    finished: str | None = None
    packages: tuple[str, ...] = ()
    settings: Settings = field(default_factory=dict)
    idle_settings: Settings = field(default_factory=dict)
    bulk: bool = True
    drivers: tuple[str, ...] = ()
    """Those that its producers can use, where they are compared with ours over the same ones."""
    jobs: int = 60_000
    """How many a drain gets: some seconds of work, so a slow one gets fewer."""
    singles: int = 5_000
    hold: str | None = None
    release: str | None = None
    """How its backlog is kept from workers until all are there. One without it takes no part in fleets."""
    root: Path = Path(__file__).resolve().parents[2]
    """The tree with its adapter and, of Holdfast, with its code."""

    @property
    def adapter(self) -> str:
        return self.name.partition("@")[0].replace("-", "_")

    @property
    def is_ours(self) -> bool:
        return self.adapter == "holdfast"


HOLDFAST = Peer(
    "holdfast",
    "own",
    unfinished="select (select count(*) from queues.ready) + (select count(*) from queues.lease)",
    finished="select count(*) from queues.outcome where status = 'succeeded'",
    settings={"concurrency": 1000},
    drivers=DRIVERS,
    hold="select queues.pause('bench')",
    release="select queues.resume('bench')",
)

FLOOR = Peer("floor", "own", unfinished="select count(*) from floor where status <> 'succeeded'")
"""A plain insert from our own driver. It only enqueues."""

PEERS = (
    Peer(
        "pgqueuer",
        "python",
        packages=(
            "pgqueuer[asyncpg]==1.6.0",
            "asyncpg==0.32.0",
            "psycopg[binary]==3.3.8",
            "uvloop==0.23.0",
        ),
        unfinished="select count(*) from pgqueuer",
        finished="select count(*) from pgqueuer_log where status = 'successful'",
        settings={"batch_size": 1000},
        drivers=DRIVERS,
        hold="create table held as select * from pgqueuer; truncate pgqueuer",
        release="insert into pgqueuer overriding system value select * from held",
    ),
    Peer(
        "chancy",
        "python",
        packages=("chancy==0.26.0", "psycopg[binary]==3.3.8", "uvloop==0.23.0"),
        unfinished="select count(*) from chancy_jobs where state in ('pending', 'retrying', 'running')",
        finished="select count(*) from chancy_jobs where state = 'succeeded'",
        settings={"concurrency": 500},
        jobs=20_000,
    ),
    Peer(
        "procrastinate",
        "python",
        packages=("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
        unfinished="select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
        finished="select count(*) from procrastinate_jobs where status = 'succeeded'",
        settings={"concurrency": 30, "pool": 3},
        jobs=5_000,
    ),
    Peer(
        "graphile-worker",
        "node",
        packages=("graphile-worker@0.18.0",),
        unfinished="select count(*) from graphile_worker._private_jobs",
        settings={"concurrency": 200, "localQueue": 2000, "completeDelay": 10},
        hold="create table held as select task_id, payload, priority, max_attempts "
        "from graphile_worker._private_jobs; truncate graphile_worker._private_jobs",
        release="insert into graphile_worker._private_jobs (task_id, payload, priority, max_attempts) "
        "select task_id, payload, priority, max_attempts from held; "
        """notify "jobs:insert", '{"r":1,"count":9}'""",
    ),
    Peer(
        "pg-boss",
        "node",
        packages=("pg-boss@12.35.0",),
        unfinished="select count(*) from pgboss.job_common where name = 'noop' and state < 'completed'",
        finished="select count(*) from pgboss.job_common where name = 'noop' and state = 'completed'",
        settings={"batchSize": 1000, "concurrency": 2},
    ),
    Peer(
        "awa",
        "python",
        packages=("awa-pg==0.6.9",),
        finished="select coalesce((select sum(completed_count) from awa.receipt_completion_batches), 0)"
        " + (select count(*) from awa.done_entries)",
        settings={"concurrency": 500, "claimers": 2, "claim_batch_size": 512},
        jobs=20_000,
        singles=3_000,
    ),
    Peer(
        "absurd",
        "python",
        packages=("absurd-sdk==0.5.1", "absurdctl==0.5.1"),
        unfinished="select count(*) from absurd.r_noop where state in ('pending', 'running', 'sleeping')",
        finished="select count(*) from absurd.t_noop where state = 'completed'",
        settings={"concurrency": 1, "batch_size": 100, "poll": 0.25},
        idle_settings={"poll": 0.02},
        bulk=False,
        jobs=5_000,
    ),
    Peer(
        "dbos",
        "python",
        packages=("dbos==3.3.0",),
        unfinished="select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')",
        finished="select count(*) from dbos.workflow_status where status = 'SUCCESS'",
        settings={"concurrency": 50, "polling": 0.02, "threads": 16},
        jobs=3_000,
        singles=2_000,
    ),
)

EVERYONE = {peer.name: peer for peer in (HOLDFAST, *PEERS)}
DEFAULT = ("holdfast", "pgqueuer", "chancy", "procrastinate", "graphile-worker")
PYTHON_PEERS = tuple(peer.name for peer in PEERS if peer.runtime == "python")


def chosen(names: str) -> list[Peer]:
    """`default`, `all`, or names with commas between them."""
    wanted = {"default": DEFAULT, "all": tuple(EVERYONE)}.get(names) or tuple(names.split(","))
    unknown = [name for name in wanted if name not in EVERYONE]
    if unknown:
        raise SystemExit(
            f"{', '.join(unknown)}: no such peer; there are {', '.join(EVERYONE)}, default and all"
        )
    return [EVERYONE[name] for name in wanted]
