-- Protects the facts of the engine, in each unit that is installed. Retention may delete them: its functions set
-- holdfast.retention for that statement. Of a task that goes on by ctx.continue_as, begin_generations changes the
-- payload, and sets holdfast.continues for that statement.
do $$
declare
  _table text;
begin
  foreach _table in array array[
    'task', 'error', 'act', 'schedule_act', 'subscription_act', 'schedule_firing',
    'worker_environment', 'access_act', 'outbox_event',
    'step', 'signal', 'child', 'change', 'generation']
  loop
    continue when pg_catalog.to_regclass('queues.' || _table) is null or exists (
      select from pg_catalog.pg_trigger t
      where t.tgrelid = pg_catalog.to_regclass('queues.' || _table) and t.tgname = 'append_only');
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
$$;
