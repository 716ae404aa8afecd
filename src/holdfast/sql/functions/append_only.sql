-- Facts: rows that are written once.
-- Invariant: no statement changes a fact, not even one of the owner, and only retention removes facts. Triggers see to
-- it, which install/protect_facts.sql creates for the tables of the engine.
-- Lock order: none.
-- At the same time: a trigger judges the statement that fires it, so other transactions do not matter.

-- Trigger function that refuses every update, delete and truncate of facts, even by the owner. For tables of a business
-- process: create trigger … before update or delete or truncate … for each statement, enabled always.
-- For holdfast_process.
create or replace function queues.refuse_change()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'QF412',
    message = format('%I.%I is append-only: %s is refused', tg_table_schema, tg_table_name, lower(tg_op)),
    hint = 'Insert a new fact instead.';
end
$$;
