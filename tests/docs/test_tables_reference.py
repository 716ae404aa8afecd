"""docs/reference/tables.md says of the views what the catalog says."""

import re
from typing import Any

import psycopg

from support.documents import REFERENCE, rows, sections

COLUMNS = """
  select n.nspname || '.' || c.relname, a.attname::text,
    replace(pg_catalog.format_type(a.atttypid, a.atttypmod), 'timestamp with time zone', 'timestamptz')
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  where n.nspname in ('queues', 'internal', 'comms') and c.relkind = 'v'
  order by n.nspname, c.relname, a.attnum
"""

WRITTEN = {
    title: text
    for page in ("tables.md", "comms.md")
    for title, text in sections(REFERENCE / page).items()
    if title.startswith(("queues.", "internal.", "comms.")) and "| column |" in text
}


ONE_CHANNEL = dict(rows(sections(REFERENCE / "comms.md")["Rows of one channel"]))


def test_every_column_of_every_view_is_described(tx: psycopg.Connection[Any]) -> None:
    real: dict[str, list[tuple[str, str]]] = {}
    for relation, column, kind in tx.execute(COLUMNS).fetchall():
        real.setdefault(relation, []).append((column, kind))
    described = {title: [(column, kind) for column, kind, _ in rows(text)] for title, text in WRITTEN.items()}
    shown = {relation: columns for relation, columns in real.items() if relation not in ONE_CHANNEL}
    assert {title: columns for title, columns in described.items() if title in real} == shown
    assert ONE_CHANNEL.keys() < real.keys()


def test_a_view_of_one_channel_has_columns_of_its_table(tx: psycopg.Connection[Any]) -> None:
    real: dict[str, set[str]] = {}
    for relation, column, _ in tx.execute(COLUMNS.replace("= 'v'", "in ('r', 'v')")).fetchall():
        real.setdefault(relation, set()).add(re.sub("^send_(email|sms)_task_id$", "send_task_id", column))
    for view, table in ONE_CHANNEL.items():
        assert real[view] <= real[table], view


def test_every_column_has_a_meaning() -> None:
    for title, text in WRITTEN.items():
        assert all(meaning for _, _, meaning in rows(text)), title
