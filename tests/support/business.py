"""Business functions of a test's own, as an application would install them."""

from typing import Any

from psycopg.types.json import Jsonb

from support.engine import Connection, value

PINNED = "security definer set search_path = pg_catalog, pg_temp"


def make_application(conn: Connection) -> None:
    """A schema `app` with its own owner, and a ledger that no other role may access."""
    if not value(conn, "select exists (select from pg_roles where rolname = 'app_owner')"):
        conn.execute("create role app_owner in role holdfast_process")
    conn.execute("create schema app authorization app_owner")
    conn.execute("grant usage on schema app to holdfast_caller")
    conn.execute("set role app_owner")
    conn.execute("create table app.ledger (entry text, transaction_id xid8 default pg_current_xact_id())")
    conn.execute("reset role")


def make_function(conn: Connection, name: str, body: str, how: str = PINNED, *, granted: bool = True) -> None:
    """`body` is what stands between begin and end."""
    conn.execute("set role app_owner")
    conn.execute(
        f"""create or replace function app.{name}(payload jsonb) returns jsonb language plpgsql {how}
            as $$ begin {body} end $$""".encode()
    )
    conn.execute(f"revoke all on function app.{name} from public".encode())
    if granted:
        conn.execute(f"grant execute on function app.{name} to holdfast_caller".encode())
    conn.execute("reset role")


def entries(conn: Connection) -> list[str]:
    return [row[0] for row in conn.execute("select entry from app.ledger order by 1").fetchall()]


def ask(conn: Connection, payload: Any, **options: Any) -> Any:
    """Enqueue a task of the queue `work`."""
    more = "".join(f", {name} => %s" for name in options)
    return value(conn, f"select queues.enqueue('work.run', %s{more})", [Jsonb(payload), *options.values()])
