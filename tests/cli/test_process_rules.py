"""holdfast process check: a new process keeps every rule, and what breaks one is found with its fix."""

import json
from pathlib import Path

import psycopg
import pytest

from support.database import Database
from support.process_commands import ProcessCommand


def _findings(run: ProcessCommand, code: int = 1) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(run("check", "shipping", "--json", code=code))["findings"]
    return found


def test_a_new_process_keeps_every_rule(shipping: ProcessCommand) -> None:
    assert shipping("check", "shipping") == "shipping: all checks passed\n"


def test_ours_keep_every_rule_too(run: ProcessCommand) -> None:
    assert run("check") == "comms.send_email, comms.send_sms: all checks passed\n"


BREAKS = {
    "a grant": (
        "revoke execute on function shipping.record_shipping_failure from holdfast_caller",
        "shipping.record_shipping_failure(jsonb)",
        "grant execute",
    ),
    "a unique key": (
        "alter table shipping.shipping_task_failed drop constraint shipping_task_failed_pkey",
        "shipping.shipping_task_failed",
        "add unique (shipping_task_id, attempt)",
    ),
    "a pinned path": (
        "alter function shipping.shipping_supervisor(jsonb) reset search_path",
        "shipping.shipping_supervisor(jsonb)",
        "set search_path = pg_catalog, pg_temp",
    ),
    "the trigger": (
        "drop trigger append_only on shipping.shipping_task_scheduled",
        "shipping.shipping_task_scheduled",
        "create trigger append_only",
    ),
    "the trigger's being always on": (
        "alter table shipping.shipping_task_scheduled enable trigger append_only",
        "shipping.shipping_task_scheduled",
        "enable always",
    ),
    "the one end": (
        "drop index shipping.one_end_per_shipping",
        "shipping.shipping_task_supervised",
        "where next_task_id is null",
    ),
    "the definer's rights": (
        "alter function shipping.get_shipping_payload(jsonb) security invoker",
        "shipping.get_shipping_payload(jsonb)",
        "security definer",
    ),
    "that PUBLIC may not": (
        "grant execute on function shipping.kickoff_shipping_task to public",
        "shipping.kickoff_shipping_task(jsonb,timestamp with time zone,integer)",
        "from PUBLIC",
    ),
    "that PUBLIC may not, of any function": (
        "grant execute on function shipping.count_shipping_task_runs to public",
        "shipping.count_shipping_task_runs(bigint)",
        "revoke execute on function shipping.count_shipping_task_runs(bigint) from PUBLIC",
    ),
    "the owner of a function": (
        """create function shipping.help() returns text language sql security definer as $$ select 'x' $$;
           grant execute on function shipping.help to holdfast_client""",
        "shipping.help()",
        "owner to the owner of the schema",
    ),
    "the path of any function with its owner's rights": (
        """create function shipping.help() returns text language sql security definer as $$ select 'x' $$;
           alter function shipping.help owner to shipping_owner""",
        "shipping.help()",
        "set search_path",
    ),
    "that an owner is no superuser": (
        """create function shipping.help() returns text language sql security definer
           set search_path = pg_catalog, pg_temp as $$ select 'x' $$""",
        "shipping.help()",
        "must not be a superuser",
    ),
    "that nobody touches columns": (
        "grant update (decision) on shipping.shipping_task_supervised to holdfast_worker",
        "shipping.shipping_task_supervised",
        "revoke update (decision) on shipping.shipping_task_supervised from holdfast_worker",
    ),
    "a trigger without a condition": (
        """drop trigger append_only on shipping.shipping_task_failed;
           create trigger append_only before update or delete or truncate on shipping.shipping_task_failed
             for each statement when (false) execute function queues.refuse_change();
           alter table shipping.shipping_task_failed enable always trigger append_only""",
        "shipping.shipping_task_failed",
        "create trigger append_only",
    ),
    "a trigger on every column": (
        """drop trigger append_only on shipping.shipping_task_failed;
           create trigger append_only before update of message or delete or truncate
             on shipping.shipping_task_failed for each statement execute function queues.refuse_change();
           alter table shipping.shipping_task_failed enable always trigger append_only""",
        "shipping.shipping_task_failed",
        "create trigger append_only",
    ),
    "that a trigger refuses": (
        """create or replace trigger append_only before update or delete or truncate
             on shipping.shipping_task_failed for each statement execute function shipping.swallow()""",
        "shipping.shipping_task_failed",
        "drop trigger append_only",
    ),
    "that no other trigger is there": (
        """create trigger swallow before insert on shipping.shipping_task_failed
             for each row execute function shipping.swallow()""",
        "shipping.shipping_task_failed",
        "drop trigger swallow",
    ),
    "that foreign keys are checked": (
        "alter table shipping.shipping_task_failed disable trigger all",
        "shipping.shipping_task_failed",
        "enable trigger all",
    ),
    "an index that means one end": (
        """drop index shipping.one_end_per_shipping;
           create unique index one_end_per_shipping on shipping.shipping_task_supervised (shipping_task_id)
             where decision = 'succeeded'""",
        "shipping.shipping_task_supervised",
        "where next_task_id is null",
    ),
    "an index over nothing but the root": (
        """drop index shipping.one_end_per_shipping;
           create unique index one_end_per_shipping on shipping.shipping_task_supervised (run)
             where next_task_id is null""",
        "shipping.shipping_task_supervised",
        "where next_task_id is null",
    ),
    "a key that holds at every moment": (
        """alter table shipping.shipping_task_failed drop constraint shipping_task_failed_pkey;
           alter table shipping.shipping_task_failed
             add primary key (shipping_task_id, attempt) deferrable""",
        "shipping.shipping_task_failed",
        "add unique (shipping_task_id, attempt)",
    ),
    "a fact under another name": (
        """create table shipping.delivered (shipping_task_id bigint);
           alter table shipping.delivered owner to shipping_owner""",
        "shipping.delivered",
        "create trigger append_only",
    ),
    "that facts outlive a crash": (
        "create unlogged table shipping.delivered (shipping_task_id bigint)",
        "shipping.delivered",
        "set logged",
    ),
    "that no rule rewrites": (
        "create rule quiet as on update to shipping.shipping_task_failed do instead nothing",
        "shipping.shipping_task_failed",
        "drop the rules",
    ),
    "that nobody touches sequences": (
        "grant usage on sequence shipping.shipping_task_shipping_task_id_seq to holdfast_client",
        "shipping.shipping_task_shipping_task_id_seq",
        "revoke all on sequence",
    ),
    "that views are read only by readers": (
        """create view shipping.everything as select * from shipping.shipping_task;
           grant select on shipping.everything to holdfast_caller""",
        "shipping.everything",
        "revoke select on shipping.everything from holdfast_caller",
    ),
    "that views are barriers": (
        """create view shipping.everything as select * from shipping.shipping_task;
           grant select on shipping.everything to holdfast_reader""",
        "shipping.everything",
        "security_barrier",
    ),
    "that only the owner creates": (
        "grant create on schema shipping to holdfast_client",
        "shipping",
        "revoke create on schema shipping from holdfast_client",
    ),
    "that clients forge no facts": (
        "grant execute on function shipping.record_shipping_success to holdfast_client",
        "shipping.record_shipping_success(jsonb)",
        "from holdfast_client",
    ),
    "that workers and people call nothing else": (
        "grant execute on function shipping.count_shipping_task_failures to holdfast_caller",
        "shipping.count_shipping_task_failures(bigint)",
        "from holdfast_caller",
    ),
    "that people can see it": (
        "revoke execute on function shipping.shipping_history from holdfast_caller",
        "shipping.shipping_history(bigint)",
        "grant execute on function shipping.shipping_history(bigint) to holdfast_caller",
    ),
    "that no right is passed on": (
        "grant execute on function shipping.shipping_history to holdfast_reader with grant option",
        "shipping.shipping_history(bigint)",
        "grant option for",
    ),
    "that it is registered": (
        "delete from queues.process where process = 'shipping'",
        "shipping",
        "queues.register_process",
    ),
    "that each run is noted": (
        """create or replace function shipping.repair_shipping(payload jsonb) returns jsonb language sql
           security definer set search_path = pg_catalog, pg_temp
           as $$ select '{"success": false, "validation_failure_message": "no"}'::jsonb $$""",
        "shipping.repair_shipping(jsonb)",
        "queues.note_supervision",
    ),
    "that nobody touches tables": (
        "grant select on shipping.shipping_task to holdfast_worker",
        "shipping.shipping_task",
        "revoke all on shipping.shipping_task from holdfast_worker",
    ),
    "the authority of the owner": (
        "revoke holdfast_process from shipping_owner",
        "shipping.shipping_supervisor(jsonb)",
        "grant holdfast_process to shipping_owner",
    ),
    "the schema": ("revoke usage on schema shipping from holdfast_caller", "shipping", "grant usage"),
    "a fact function": (
        "drop function shipping.count_shipping_task_failures",
        "shipping.count_shipping_task_failures",
        "create the function",
    ),
    "the envelope": (
        """create or replace function shipping.record_shipping_success(payload jsonb) returns jsonb
           language sql security definer set search_path = pg_catalog, pg_temp as $$ select '[]'::jsonb $$""",
        "shipping.record_shipping_success",
        "it returned []",
    ),
}


@pytest.mark.full
def test_what_is_taken_away_is_found_with_what_to_do(shipping: ProcessCommand, db: Database) -> None:
    for what, (broken, named, fix) in BREAKS.items():
        with psycopg.connect(db.dsn) as copy:
            if "swallow" in broken:
                copy.execute(SWALLOW)
            copy.execute(broken.encode())
        found = _findings(shipping)
        assert any(one["object"] == named and fix in one["fix"] for one in found), (what, found)
        shipping_again(db)


SWALLOW = """
    create function shipping.swallow() returns trigger language plpgsql as $$ begin return null; end $$;
    alter function shipping.swallow owner to shipping_owner"""


def shipping_again(db: Database) -> None:
    """Put back what the last case has broken."""
    admin = db.connect()
    admin.execute("drop schema shipping cascade")
    admin.execute("delete from queues.process where process = 'shipping'")
    admin.execute("grant holdfast_process to shipping_owner")
    for path in sorted(Path("shipping").glob("[0-9]_*.sql")):
        admin.execute(path.read_text().encode())
