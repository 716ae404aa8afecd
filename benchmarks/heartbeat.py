"""`python -m benchmarks.heartbeat`: what a heartbeat of many leases writes, and how many updates are HOT.

A HOT update writes no index and leaves nothing for vacuum to remove from one.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate

LEAST = 0.9
_COUNTS = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'queues.lease'::regclass"


@dataclass(frozen=True)
class Beat:
    """One heartbeat of all leases."""

    hot: float
    wal_per_lease: float


def beats(url: str, leases: int, rounds: int) -> list[Beat]:
    """Claim this many tasks, and renew all their leases once per round."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "select queues.enqueue_many(jsonb_agg(jsonb_build_object('type', 'beat.x')))"
            " from generate_series(1, %s)",
            [leases],
        )
        claimed = connection.execute(
            "select task_id, token from queues.claim('beat', %s, array['beat'])", [leases]
        ).fetchall()
        held = json.dumps([{"task_id": str(task_id), "token": token} for task_id, token in claimed])
        connection.execute("checkpoint")
        return [_beat(connection, held, leases) for _ in range(rounds)]


def _beat(connection: psycopg.Connection[Any], held: str, leases: int) -> Beat:
    before, written = _one(connection, _COUNTS), _one(connection, "select pg_current_wal_insert_lsn()")[0]
    connection.execute("select count(*) from queues.heartbeat('beat', %s)", [held])
    connection.execute("select pg_stat_force_next_flush()")
    after = _one(connection, _COUNTS)
    wal = _one(connection, f"select pg_current_wal_insert_lsn() - '{written}'::pg_lsn")[0]
    updated, hot = (now - then for now, then in zip(after, before, strict=True))
    assert updated == leases, f"{updated} updates of {leases} leases"
    return Beat(hot / updated, float(wal) / leases)


def _one(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row
    return tuple(row)


def measure(leases: int, rounds: int, version: int = 18) -> list[Beat]:
    """The same on a server of its own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        server = EmbeddedServer(Path(home), version=version, settings={"autovacuum": "off"})
        url = server.start()
        try:
            migrate(url)
            return beats(url, leases, rounds)
        finally:
            server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=1000, help="how many leases")
    parser.add_argument("--rounds", type=int, default=10, help="how many heartbeats")
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    given = parser.parse_args()
    found = measure(given.leases, given.rounds, given.pg)
    for number, beat in enumerate(found, start=1):
        print(f"heartbeat {number}: {beat.hot:.0%} HOT, {beat.wal_per_lease:.0f} bytes of WAL per lease")
    hot = sum(beat.hot for beat in found) / len(found)
    holds = hot >= LEAST
    print(f"{given.leases} leases: {hot:.1%} HOT, at least {LEAST:.0%}: {'holds' if holds else 'MISSED'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
