"""What the catalog says of our objects: owners, pinned paths, comments. Over everything there is."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast._install.schema import Sources
from support.catalog import names_of, our_functions
from support.engine import Connection, rows

SQL = Path(str(files("holdfast"))) / "sql"
DECLARATION = r"(?m)^ *create or replace function \w+\.(\w+)"
DECLARED = {
    name
    for part in [Sources().core, *Sources().units]
    for piece in part.of("functions")
    for name in re.findall(DECLARATION, piece.sql)
}

# Without a path of their own, so that the planner can put them into the query that calls them.
INLINED = {
    *("clock", "new_task_id", "safe_text", "spec_hash"),
    *("commit_to_disk", "is_simple_task", "is_simple_payload", "are_simple_options", "with_defaults"),
    *("lanes_of", "limit_lock_of", "qualified_key", "may_notify"),
    *(
        "error_kind",
        "error_message",
        "group_of_error",
        "status_of",
        "step_kind",
        "step_code",
        "matches",
        "is_subscribed",
        "engine_event_types",
    ),
    *("tasks_of", "task_errors_of"),
    "namespace_of_login",
    "process_status_of",
}


def test_the_functions_are_those_of_the_files(admin: Connection) -> None:
    assert {row["name"] for row in our_functions(admin)} == DECLARED


def test_everything_belongs_to_the_owner(admin: Connection) -> None:
    strangers = rows(
        admin,
        """select 'schema' as kind, nspname::text as name, nspowner::regrole::text as owner from pg_namespace
           where nspname in ('queues', 'internal', 'comms')
           union all select 'function', proname, proowner::regrole::text from pg_proc
           where pronamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
           union all select 'relation', relname, relowner::regrole::text from pg_class
           where relnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
           union all select 'type', typname, typowner::regrole::text from pg_type
           where typnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)""",
    )

    assert len(strangers) > 100
    # The function that calls those of processes belongs to a role without rights.
    assert {row["name"] for row in strangers if row["owner"] != "holdfast_owner"} == {"call_function"}


def test_every_definer_function_pins_its_path(admin: Connection) -> None:
    loose = [
        row["name"]
        for row in our_functions(admin, "p.prosecdef")
        if "search_path=pg_catalog, pg_temp" not in row["config"]
    ]

    assert loose == []


def test_every_other_function_pins_its_path_too_unless_it_is_inlined(admin: Connection) -> None:
    loose = {
        row["name"] for row in our_functions(admin) if "search_path=pg_catalog, pg_temp" not in row["config"]
    }

    assert loose == INLINED


def test_what_is_inlined_names_every_schema(admin: Connection) -> None:
    """Its operators are found by the path of the caller, which is pinned; everything else is qualified."""
    for row in our_functions(admin):
        if row["name"] in INLINED:
            called = set(re.findall(r"(?<![\w.])([a-z_]\w*)\s*\(", re.sub(r"'[^']*'", "''", row["body"])))
            assert called <= {
                "any",
                "coalesce",
                "case",
                "and",
                "or",
                "values",
                "extract",
                "select",
                "from",
            }, row["name"]


def test_the_comment_of_a_function_is_the_first_sentence_above_it(admin: Connection) -> None:
    comments = {row["name"]: row["comment"] for row in our_functions(admin)}
    assert comments["pause"].startswith("Stops claims from a queue and returns whether it was active;")
    for name, comment in comments.items():
        assert (comment[0].isupper(), comment[-1]) == (True, "."), (name, comment)


def test_every_table_and_view_has_a_comment(admin: Connection) -> None:
    bare = rows(
        admin,
        """select c.relname from pg_class c
           where c.relnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and c.relkind in ('r', 'v') and obj_description(c.oid, 'pg_class') is null""",
    )

    assert bare == []


def test_one_function_per_name(admin: Connection) -> None:
    names = [row["name"] for row in our_functions(admin)]

    assert len(names) == len(set(names))


def test_every_view_is_a_barrier(admin: Connection) -> None:
    leaky = rows(
        admin,
        """select relname from pg_class
           where relnamespace in ('queues'::regnamespace, 'comms'::regnamespace) and relkind = 'v'
             and not coalesce(reloptions, '{}') @> '{security_barrier=true}'""",
    )

    # No role may read these: other views are made of them, and every finish reads the subscriptions.
    assert {row["relname"] for row in leaky} == {"event_origin", "engine_subscription", "namespace_token"}


def test_no_function_says_that_it_leaks_nothing(admin: Connection) -> None:
    assert names_of(our_functions(admin, "p.proleakproof")) == set()


def test_no_argument_is_unnamed(admin: Connection) -> None:
    unnamed: list[Any] = rows(
        admin,
        """select proname from pg_proc
           where pronamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and pronargs > 0 and (proargnames is null or '' = any(proargnames))""",
    )

    assert unnamed == []


def test_no_line_of_sql_is_longer_than_120_characters() -> None:
    long = [
        f"{path.relative_to(SQL)}:{number}"
        for path in sorted(SQL.rglob("*.sql"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > 120
    ]
    assert long == []
