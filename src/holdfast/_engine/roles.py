"""The roles of a login, and the statements that grant what it lacks. They need no right on the schema."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast._engine.health import HealthLine, Level, health_line
from holdfast._engine.statement import Rows, Statement, many, only, select

ROLES = ("client", "process", "worker", "dispatcher", "operator", "reader")

# From PostgreSQL 16 on, inheritance belongs to the membership; before, to the login.
_MISSING = """(
  with facts as (
    select l.oid as login, l.rolname, l.rolinherit,
      current_setting('server_version_num')::integer >= 160000 as since_16,
      (select c.relowner from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where n.nspname = 'queues' and c.relname = 'installation') as owner
    from pg_roles l where l.rolname = coalesce($1::text, session_user)),
  lacking as (
    select r.rolname as role, w.place, pg_has_role(f.login, r.oid, 'member') as is_member
    from facts f cross join unnest($2::text[]) with ordinality w(role, place)
    join pg_roles r on r.rolname = 'holdfast_' || w.role
    where not pg_has_role(f.login, r.oid, $3::text)
      and exists (select from pg_namespace n where n.nspname = 'queues')
      and coalesce(pg_get_userbyid(f.owner), 'holdfast_owner') = 'holdfast_owner')
  select 1 as place, null as single_login,
    format('grant %s to %I', string_agg(l.role, ', ' order by l.place), f.rolname)
      || case when f.since_16 and (not f.rolinherit or bool_or(l.is_member)) then ' with inherit true'
        else '' end as statement
  from facts f cross join lacking l group by f.rolname, f.since_16, f.rolinherit
  union all
  select 2, null, format('alter role %I inherit', f.rolname)
  from facts f where not f.since_16 and not f.rolinherit and exists (select from lacking)
  union all
  select 3, quote_ident(pg_get_userbyid(f.owner)), null from facts f
  where pg_get_userbyid(f.owner) <> 'holdfast_owner' and not pg_has_role(f.login, f.owner, 'usage'))"""


# From PostgreSQL 16 on, a membership can be granted by several roles, and each revokes its own.
_MEMBERSHIPS = """(
  select distinct format('revoke %I from %I', r.rolname, l.rolname)
    || case when current_setting('server_version_num')::integer >= 160000
      then format(' granted by %I', pg_get_userbyid(m.grantor)) else '' end as statement
  from pg_auth_members m join pg_roles l on l.oid = m.member join pg_roles r on r.oid = m.roleid
  where l.rolname = $1::text and r.rolname = any (select 'holdfast_' || w from unnest($2::text[]) w))"""

_FACTS = """(
  select exists (select from pg_roles l where l.rolname = $1::text and l.rolcanlogin) as login_exists,
    (select count(*)::integer from pg_roles r where r.rolname = any ($2::text[])) as roles,
    (select quote_ident(pg_get_userbyid(c.relowner))
     from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'queues' and c.relname = 'installation'
       and pg_get_userbyid(c.relowner) <> 'holdfast_owner') as single_login)"""


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """Whether a login exists, how many of the roles do, and whose database it is if it has none."""

    login_exists: bool
    roles: int
    single_login: str | None


@dataclass(frozen=True, slots=True)
class MissingGrant:
    """A statement that a login needs, or the login that it would have to be."""

    statement: str | None
    single_login: str | None


def missing_grants(
    roles: Sequence[str], *, login: str | None = None, inherited: bool = True
) -> Statement[list[MissingGrant]]:
    """What the login of the session, or another, needs to have these roles. Empty if nothing is missing.

    A caller that sets the role need not inherit its rights.
    """
    needed = "usage" if inherited else "member"
    return select(many(MissingGrant), _MISSING, "order by answer.place", (login, list(roles), needed))


def advice(missing: Sequence[MissingGrant]) -> str:
    """What to do, as one sentence with all statements."""
    statements = [one.statement for one in missing if one.statement]
    if statements:
        return f"Have a DBA run: {'; '.join(statements)};"
    return f"Connect as {missing[0].single_login}: this database was installed for that login alone."


def grant_lines(missing: Sequence[MissingGrant], level: Level, code: str) -> list[HealthLine]:
    """The line of health about them, if any."""
    if not missing:
        return []
    return [
        health_line("missing_grant", level, None, value=None, code=code, facts={"advice": advice(missing)})
    ]


def memberships(login: str, roles: Sequence[str]) -> Statement[list[str]]:
    """The statements that revoke these roles, as far as the login itself was granted them."""
    rows = Rows("answer.statement", lambda found: [row[0] for row in found])
    return select(rows, _MEMBERSHIPS, "order by 1", (login, list(roles)))


def role_facts(login: str) -> Statement[RoleFacts]:
    return select(only(RoleFacts), _FACTS, "", (login, [f"holdfast_{role}" for role in ROLES]))
