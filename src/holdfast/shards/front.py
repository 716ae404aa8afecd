"""Generates a front: a database without data that offers the functions and views of all shards."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._engine import roles
from holdfast._install.schema import Sources
from holdfast.errors import MigrationRefused, translate
from holdfast.shards.catalog import Catalog, read_catalog
from holdfast.shards.front_functions import function_statements, public_functions
from holdfast.shards.front_views import foreign_tables, view_grants, view_statement

ROLES = tuple(f"holdfast_{role}" for role in roles.ROLES)
OLDEST_SERVER = 150_000
"""Before PostgreSQL 15, a view reads with the rights of its owner, and so would the shards."""

# How a front reaches a shard. It connects as its caller: the user and password of an administrator stay here.
_ADDRESS = {
    *("host", "hostaddr", "port", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl"),
    *(
        "target_session_attrs",
        "connect_timeout",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
    ),
    *("tcp_user_timeout", "gssencmode", "channel_binding"),
}
# PL/Proxy knows no connect_timeout; of a host that does not answer it learns by tcp_user_timeout.
_DEFAULTS = {
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}

_LOGINS = """
select r.rolname from pg_catalog.pg_roles r
where r.rolcanlogin and (r.rolname = session_user or exists (
  select from pg_catalog.pg_roles h
  where h.rolname like 'holdfast\\_%' and not r.rolsuper and pg_catalog.pg_has_role(r.oid, h.oid, 'member')))
order by 1
"""
_FOREIGN = """
select pg_catalog.to_regclass('queues.installation') is not null,
  pg_catalog.to_regclass('holdfast_front.generated') is not null,
  pg_catalog.current_setting('server_version_num')::integer
"""
_IS_SUPERUSER = "select r.rolname, r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user"


@dataclass(frozen=True)
class Shard:
    number: int
    name: str
    url: str

    @property
    def address(self) -> dict[str, str]:
        """The address without a login."""
        given = {name: str(value) for name, value in conninfo_to_dict(self.url).items() if name in _ADDRESS}
        return _DEFAULTS | given


def generate(
    front: str, shards: Sequence[Shard], keys: int, sources: Sources, *, force: bool = False
) -> bool:
    """Bring a front up to date, and return whether anything had to be done. All of it, or nothing.

    `keys` is how many of the shards keys are spread over.
    """
    try:
        with psycopg.connect(shards[0].url, client_encoding="utf-8") as first:
            catalog = read_catalog(first, sources)
        with psycopg.connect(
            front, client_encoding="utf-8", application_name="holdfast migrate"
        ) as connection:
            return _generate(connection, list(shards), keys, catalog, sources, force=force)
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate.startswith(("08", "28", "3D", "57")):
            raise translate(error) from error
        raise MigrationRefused(f"the front cannot be generated: {error.diag.message_primary}") from error


def grants_query(sources: Sources) -> str:
    """Who has which role of Holdfast, as a query that can be part of another."""
    lines = sources.section("front/catalog.sql", "grants").sql.splitlines()
    return "\n".join(line for line in lines if not line.startswith("--")).strip().rstrip(";")


def known_shards(front: str) -> list[str]:
    """The names of the shards that this front sends tasks to; none if it is not made yet."""
    try:
        with psycopg.connect(front, client_encoding="utf-8", connect_timeout=5) as connection:
            _require_superuser(connection)
            row = connection.execute(_FOREIGN).fetchone()
            return _known(connection) if row and row[1] else []
    except psycopg.Error as error:
        raise translate(error) from error


def _known(connection: psycopg.Connection[Any]) -> list[str]:
    rows = connection.execute("select shard_name from holdfast_front.shard order by shard_number").fetchall()
    return [name for (name,) in rows]


def front_problem(front: str, shards: Sequence[Shard], keys: int, sources: Sources) -> str | None:
    """What `holdfast migrate` would change about a front, or None. Raises if it cannot be reached."""
    try:
        with psycopg.connect(shards[0].url, client_encoding="utf-8", connect_timeout=5) as first:
            statements = list(_statements(list(shards), keys, read_catalog(first, sources), sources))
        with psycopg.connect(front, client_encoding="utf-8", connect_timeout=5) as connection:
            row = connection.execute(_FOREIGN).fetchone()
            if not row or not row[1]:
                return "this database is not a front yet"
            found = connection.execute("select digest from holdfast_front.generated").fetchone()
    except psycopg.Error as error:
        raise translate(error) from error
    same = found is not None and found[0] == _digest(statements)
    return None if same else "it was generated by another release, or from other settings"


def _digest(statements: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()


def _lock_out_others(connection: psycopg.Connection[Any]) -> None:
    """One migration of a front at a time. Only its owner and superusers may take this lock."""
    connection.execute("set local lock_timeout = '5s'")
    try:
        connection.execute("lock table holdfast_front.generated in share update exclusive mode")
    except psycopg.errors.LockNotAvailable:
        raise MigrationRefused(
            "another migration of this front is running; try again when it has ended"
        ) from None
    connection.execute("set local lock_timeout = 0")


def _generate(
    connection: psycopg.Connection[Any],
    shards: list[Shard],
    keys: int,
    catalog: Catalog,
    sources: Sources,
    *,
    force: bool,
) -> bool:
    connection.execute("set local search_path = pg_catalog, pg_temp")
    connection.execute("set local client_min_messages = warning")
    made = _check_database(connection)
    if made:
        _lock_out_others(connection)
    connection.execute(sources.section("rights.sql", "roles").sql.encode())
    statements = list(_statements(shards, keys, catalog, sources))
    digest = _digest(statements)
    if made:
        _check_known(connection, shards)
    found = connection.execute("select digest from holdfast_front.generated").fetchone() if made else None
    if force or found is None or found[0] != digest:
        for statement in _clearing() if made else []:
            connection.execute(statement.encode())
        for statement in statements:
            _execute(connection, statement)
        connection.execute("insert into holdfast_front.generated values (%s)", (digest,))
        done = True
    else:
        done = False
    return map_logins(connection, shards) or done


def _require_superuser(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute(_IS_SUPERUSER).fetchone()
    if row and not row[1]:
        raise MigrationRefused(
            f"{row[0]} is no superuser on the server of the front, and a front needs one to be generated: "
            "PL/Proxy is an untrusted language. Give a superuser's login in DATABASE_URL for this command."
        )


def _check_database(connection: psycopg.Connection[Any]) -> bool:
    """Return whether this database is a front already."""
    _require_superuser(connection)
    row = connection.execute(_FOREIGN).fetchone()
    assert row is not None  # noqa: S101 - a select without from returns one row
    has_engine, made, version = row
    if has_engine:
        raise MigrationRefused(
            "DATABASE_URL is the address of a database that holds tasks, and a front holds none. "
            "Name that database as the first shard, and create an empty one for the front."
        )
    if version < OLDEST_SERVER:
        raise MigrationRefused("a front needs PostgreSQL 15 or later")
    missing = connection.execute(
        "select string_agg(e, ', ') from unnest(array['plproxy', 'postgres_fdw']) e "
        "where not exists (select from pg_available_extensions a where a.name = e)"
    ).fetchone()
    if missing and missing[0]:
        raise MigrationRefused(
            f"the server of the front lacks {missing[0]}. "
            "On Debian: apt-get install postgresql-15-plproxy (postgres_fdw is part of postgresql-15)."
        )
    return bool(made)


def _check_known(connection: psycopg.Connection[Any], shards: list[Shard]) -> None:
    """A shard that is missing in the settings would take its tasks out of sight."""
    known = _known(connection)
    names = [shard.name for shard in shards]
    if known != names[: len(known)]:
        raise MigrationRefused(
            f"this front has the shards {', '.join(known)}, and the settings have "
            f"{', '.join(names)}. Shards keep their order, and none is removed. Put the settings back."
        )


def _execute(connection: psycopg.Connection[Any], statement: str) -> None:
    try:
        connection.execute(statement.encode())
    except psycopg.Error as error:
        error.add_note(statement)
        raise


def _clearing() -> list[str]:
    schemas = "queues, internal, comms, plproxy, holdfast_front"
    return [
        f"drop schema if exists {schemas} cascade",
        """do $$ declare _server text; begin
        for _server in select srvname from pg_foreign_server where srvname like 'holdfast\\_%' loop
          execute format('drop server %I cascade', _server); end loop; end $$""",
    ]


def _statements(shards: list[Shard], keys: int, catalog: Catalog, sources: Sources) -> Iterator[str]:
    names = [shard.name for shard in shards]
    roles = ", ".join(ROLES)
    yield "create extension if not exists plproxy schema pg_catalog"
    yield "create extension if not exists postgres_fdw"
    for schema in (*catalog.schemas, "holdfast_front", "plproxy"):
        yield f"create schema {schema}"
    yield from _cluster(shards)
    yield from _base(shards, keys, catalog, sources)
    for view in catalog.views:
        yield from foreign_tables(view, names)
        yield view_statement(view, names)
    yield from (s for s in function_statements(catalog) if not s.startswith("create type"))
    yield from public_functions(catalog)
    # Everything runs with the rights of the caller, who may call only what is granted on the shards.
    for schema in (*catalog.schemas, "holdfast_front", "plproxy"):
        yield f"revoke execute on all functions in schema {schema} from public"
    yield from (s for s in public_functions(catalog) if s.startswith("grant"))
    for schema, grantees in catalog.schemas.items():
        yield f"grant usage on schema {schema} to {', '.join(grantees)}"
    yield f"grant usage on schema holdfast_front, plproxy to {roles}"
    yield f"grant execute on all functions in schema holdfast_front, plproxy to {roles}"
    yield f"grant select on holdfast_front.shard to {roles}"
    for view in catalog.views:
        yield from view_grants(view)


def _base(shards: list[Shard], keys: int, catalog: Catalog, sources: Sources) -> Iterator[str]:
    yield "create table holdfast_front.generated (digest text not null)"
    yield (
        "create table holdfast_front.shard ("
        "shard_number integer primary key, shard_name text not null, address text not null)"
    )
    for shard in shards:
        address = make_conninfo(**shard.address)
        values = f"{shard.number}, {_quoted(shard.name)}, {_quoted(address)}"
        yield f"insert into holdfast_front.shard values ({values})"
    yield from (s for s in function_statements(catalog) if s.startswith("create type"))
    parts = {"count": str(len(shards)), "keys": str(keys), "grants": grants_query(sources)}
    yield re.sub(
        r"(?m)^(?!--)(.*?)(?<!:):(count|keys|grants)\b",
        lambda found: found[1] + parts[found[2]],
        sources.read("front/base.sql").sql,
    )
    # See holdfast_front.is_used: a kept plan would ask a shard that is lost, or leave out one that is back.
    yield """do $$ begin
      execute format('alter database %I set plan_cache_mode = force_custom_plan', current_database());
    end $$"""
    # PL/Proxy waits for a shard that hangs without end: it looks at its query_timeout only when something
    # comes, and at a statement timeout it sends a cancel request, which waits as well. So callers give up,
    # and the front ends the session of a caller who has gone.
    yield """do $$ begin
      execute format('alter database %I set client_connection_check_interval = %L', current_database(), '2s');
    end $$"""


def _cluster(shards: list[Shard]) -> Iterator[str]:
    """How PL/Proxy and postgres_fdw find the shards. Neither knows a password."""
    lines = ", ".join(
        f"({_quoted(make_conninfo(**shard.address, application_name='holdfast front'))})" for shard in shards
    )
    version = int(hashlib.sha256(lines.encode()).hexdigest()[:7], 16)
    yield f"""create function plproxy.get_cluster_version(cluster_name text) returns integer
      language sql immutable as $$ select {version} $$"""
    yield f"""create function plproxy.get_cluster_partitions(cluster_name text) returns setof text
      language sql immutable as $$ values {lines} $$"""
    yield """create function plproxy.get_cluster_config(in cluster_name text, out key text, out val text)
      returns setof record language sql immutable
      as $$ values ('modular_mapping', '1'), ('default_user', 'session_user') $$"""
    for shard in shards:
        options = ", ".join(f"{name} {_quoted(value)}" for name, value in shard.address.items())
        yield (
            f"create server holdfast_{shard.name} foreign data wrapper postgres_fdw "
            f"options ({options}, application_name 'holdfast front', "
            "async_capable 'true', fetch_size '1000')"
        )


def map_logins(connection: psycopg.Connection[Any], shards: list[Shard]) -> bool:
    """Let each login read the shards as itself. No login may use the servers, or change a mapping."""
    missing = [
        statement for login in logins_of(connection) for statement in mappings_of(connection, shards, login)
    ]
    for statement in missing:
        connection.execute(statement.encode())
    return bool(missing)


def logins_of(connection: psycopg.Connection[Any]) -> list[str]:
    """Those that may use this front, and that of this connection."""
    return [login for (login,) in connection.execute(_LOGINS.encode()).fetchall()]


def mappings_of(connection: psycopg.Connection[Any], shards: list[Shard], login: str) -> list[str]:
    """The statements that let a login read the shards as itself, as far as they are missing."""
    found = connection.execute("select srvname from pg_user_mappings where usename = %s", (login,))
    known = {server for (server,) in found.fetchall()}
    name = psycopg.sql.Identifier(login).as_string(None)
    return [
        f"create user mapping for {name} server holdfast_{shard.name} "
        f"options (user {_quoted(login)}, password_required 'false')"
        for shard in shards
        if f"holdfast_{shard.name}" not in known
    ]


def _quoted(value: str) -> str:
    return psycopg.sql.Literal(value).as_string(None)
