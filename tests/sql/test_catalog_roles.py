"""What the catalog says of our roles: their powers, their members, and how functions ask for them."""

from support.catalog import names_of
from support.engine import Connection, rows
from support.roles import ROLES


def test_our_roles_are_not_logins_and_have_no_powers(admin: Connection) -> None:
    powerful = rows(
        admin,
        """select rolname from pg_roles where rolname = any(%s)
             and (rolsuper or rolcreaterole or rolcreatedb or rolcanlogin or rolreplication
               or rolbypassrls)""",
        [["holdfast_owner", *ROLES]],
    )

    assert powerful == []


def test_roles_are_members_of_one_another_only_as_designed(admin: Connection) -> None:
    members = rows(
        admin,
        """select m.member::regrole::text || ' in ' || m.roleid::regrole::text as name from pg_auth_members m
           where m.member::regrole::text = any(%s)""",
        [["holdfast_owner", *ROLES]],
    )

    assert names_of(members) == {
        "holdfast_process in holdfast_client",
        "holdfast_operator in holdfast_reader",
        "holdfast_owner in holdfast_process",
        "holdfast_owner in holdfast_worker",
        "holdfast_owner in holdfast_dispatcher",
        "holdfast_owner in holdfast_operator",
        "holdfast_owner in holdfast_caller",
    }


def test_functions_ask_for_roles_in_a_way_that_works_without_them(admin: Connection) -> None:
    """A database of a single login has no roles, and PostgreSQL raises an error about those that it lacks."""
    asking = rows(
        admin,
        r"""select p.oid::regprocedure::text as name from pg_proc p
           where p.pronamespace in ('queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and p.prosrc ~ $$pg_has_role\([^)]*'holdfast_|'holdfast_\w+'::$$""",
    )
    assert names_of(asking) == set()
