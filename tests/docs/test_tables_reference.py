"""docs/reference/tables.md says what the catalog says."""

from typing import Any

import psycopg

from support.documents import REFERENCE, rows, sections

COLUMNS = """
  select n.nspname || '.' || c.relname, a.attname::text,
    replace(pg_catalog.format_type(a.atttypid, a.atttypmod), 'timestamp with time zone', 'timestamptz')
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  where n.nspname in ('queues', 'internal', 'comms') and c.relkind in ('r', 'p', 'v')
    and c.relname <> 'test_clock'
  order by n.nspname, c.relname, a.attnum
"""

OTHERS = """
  select n.nspname || '.' || c.relname from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname in ('queues', 'internal', 'comms') and c.relkind in ('S', 'c')
    and not exists (
      select from pg_catalog.pg_depend d
      where d.objid = c.oid and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass)
"""


WRITTEN = {
    title: text
    for page in ("tables.md", "comms.md")
    for title, text in sections(REFERENCE / page).items()
    if title.startswith(("queues.", "internal.", "comms.")) and "| column |" in text
}


def test_every_column_of_every_table_and_view_is_described(tx: psycopg.Connection[Any]) -> None:
    real: dict[str, list[tuple[str, str]]] = {}
    for relation, column, kind in tx.execute(COLUMNS).fetchall():
        real.setdefault(relation, []).append((column, kind))
    described = {title: [(column, kind) for column, kind, _ in rows(text)] for title, text in WRITTEN.items()}
    assert described == real


def test_every_column_has_a_meaning() -> None:
    for title, text in WRITTEN.items():
        assert all(meaning for _, _, meaning in rows(text)), title


def test_sequences_and_types_are_listed(tx: psycopg.Connection[Any]) -> None:
    listed = {cells[0] for cells in rows(sections(REFERENCE / "tables.md")["Sequences and types"])}
    assert listed == {name for (name,) in tx.execute(OTHERS).fetchall()}
