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

comment on function queues.refuse_change() is
  'Trigger function that refuses every update, delete and truncate of facts, even by the owner.';

do $install$
declare
  _table text;
begin
  for _table in
    select c.relname from pg_catalog.pg_class c
    where c.relnamespace = 'comms'::pg_catalog.regnamespace and c.relkind = 'r'
      and (c.relname in ('message', 'message_erased')
        or c.relname ~ '^send_task(_scheduled|_failed|_succeeded|_reported|_supervised)?$')
      and not exists (select from pg_catalog.pg_trigger t where t.tgrelid = c.oid and t.tgname = 'append_only')
  loop
    execute pg_catalog.format(
      'create trigger append_only before update or delete or truncate on comms.%I '
      'for each statement execute function queues.refuse_change()', _table);
    -- Also where triggers are disabled, as in a session that restores a dump or applies a replica's changes.
    execute pg_catalog.format('alter table comms.%I enable always trigger append_only', _table);
  end loop;
end
$install$;

-- The facts of the engine. Retention may delete them: its functions set holdfast.retention for that statement. Of a
-- task that goes on by ctx.continue_as, begin_generations changes the payload, and sets holdfast.continues for that
-- statement.
do $install$
declare
  _table text;
begin
  foreach _table in array array[
    'task', 'error', 'act', 'schedule_act', 'subscription_act', 'schedule_firing',
    'worker_environment', 'access_act', 'outbox_event',
    'step', 'signal', 'child', 'change', 'generation']
  loop
    continue when exists (
      select from pg_catalog.pg_trigger t
      where t.tgrelid = pg_catalog.format('queues.%I', _table)::pg_catalog.regclass and t.tgname = 'append_only');
    execute pg_catalog.format(
      'create trigger append_only before update or truncate on queues.%I for each statement %s'
      'execute function queues.refuse_change()', _table, case when _table = 'task'
        then 'when (pg_catalog.current_setting(''holdfast.continues'', true) is distinct from ''on'') ' end);
    execute pg_catalog.format(
      'create trigger removed_by_retention_only before delete on queues.%I for each statement '
      'when (pg_catalog.current_setting(''holdfast.retention'', true) is distinct from ''on'') '
      'execute function queues.refuse_change()', _table);
    execute pg_catalog.format(
      'alter table queues.%I enable always trigger append_only, '
      'enable always trigger removed_by_retention_only', _table);
  end loop;
end
$install$;
