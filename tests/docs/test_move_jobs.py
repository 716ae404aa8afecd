"""The statements that move waiting jobs of a peer, as printed, on tables with the columns of that peer."""

import re
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from support.documents import DOCS, code

LATER = datetime(2031, 1, 1, 12, tzinfo=UTC)
PEERS = {
    "oban": """
        create type oban_job_state as enum ('available', 'suspended', 'scheduled', 'executing', 'retryable',
          'completed', 'discarded', 'cancelled');
        create table oban_jobs (
          id bigint primary key, state oban_job_state not null, worker text not null, args jsonb not null,
          scheduled_at timestamp not null default timezone('UTC', now()), cancelled_at timestamp);
        insert into oban_jobs (id, state, worker, args, scheduled_at)
        select n, s::oban_job_state, w, '{"report_id": 7, "email": "a@example.com"}', '2031-01-01 12:00'
        from unnest(array['available', 'scheduled', 'retryable', 'executing', 'completed', 'scheduled'],
          array['Shop.Exports.Report', 'Shop.Exports.Report', 'Shop.Exports.Report', 'Shop.Exports.Report',
            'Shop.Exports.Report', 'Shop.Other']) with ordinality as given(s, w, n);
    """,
    "river": """
        create type river_job_state as enum ('available', 'cancelled', 'completed', 'discarded', 'pending',
          'retryable', 'running', 'scheduled');
        create table river_job (
          id bigint primary key, state river_job_state not null, kind text not null, args jsonb not null,
          scheduled_at timestamptz not null default now(), finalized_at timestamptz,
          check ((finalized_at is not null) = (state in ('cancelled', 'completed', 'discarded'))));
        insert into river_job (id, state, kind, args, scheduled_at, finalized_at)
        select n, s::river_job_state, k, '{"strings": ["b", "a"]}', '2031-01-01 12:00Z',
          case when s = 'completed' then now() end
        from unnest(array['available', 'scheduled', 'retryable', 'running', 'completed', 'scheduled'],
          array['sort', 'sort', 'sort', 'sort', 'sort', 'other']) with ordinality as given(s, k, n);
    """,
    "procrastinate": """
        create type procrastinate_job_status as enum ('todo', 'doing', 'succeeded', 'failed', 'cancelled');
        create table procrastinate_jobs (
          id bigint primary key, status procrastinate_job_status not null, task_name text not null,
          args jsonb not null, priority integer not null default 0, scheduled_at timestamptz);
        insert into procrastinate_jobs (id, status, task_name, args, priority, scheduled_at)
        select n, s::procrastinate_job_status, t, '{"order_id": 7}', 500, '2031-01-01 12:00Z'
        from unnest(array['todo', 'todo', 'todo', 'doing', 'succeeded', 'todo'],
          array['shop.charge', 'shop.charge', 'shop.charge', 'shop.charge', 'shop.charge', 'shop.other'])
          with ordinality as given(s, t, n);
    """,
}
TABLES = {
    "oban": "select state::text from oban_jobs",
    "river": "select state::text from river_job",
    "procrastinate": "select status::text from procrastinate_jobs",
}


@pytest.mark.parametrize("peer", PEERS)
def test_waiting_jobs_move_once_and_others_stay(tx: psycopg.Connection[Any], peer: str) -> None:
    page = (DOCS / "howto" / f"migrate-from-{peer}.md").read_text()
    [printed] = [block for block in code(page, "text") if block.startswith("begin;")]
    statements = re.sub(r"^(?:begin|commit);\n", "", printed, flags=re.MULTILINE)
    tx.execute(PEERS[peer].encode())

    for _ in range(2):  # the second time, nothing is left to move
        tx.execute(statements.encode())

    moved = tx.execute("select idempotency_key, run_at, status from queues.task_status order by 1").fetchall()
    prefix = "moved" if peer == "procrastinate" else peer
    assert moved == [(f"{prefix}-{n}", LATER, "scheduled") for n in (1, 2, 3)]
    left = [state for (state,) in tx.execute(f"{TABLES[peer]} order by id".encode()).fetchall()]
    assert left[:3] == ["cancelled"] * 3
    assert "cancelled" not in left[3:]
