-- Refuses more schedules than one namespace may have. Transactions that add schedules at the same time do not count
-- those of each other; what they add beyond the limit delays no other namespace, because namespaces take turns.
-- Internal: called after schedules were added.
create or replace function queues.check_schedules(namespace text)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_schedules');
begin
  if (select count(*) from (
    select from queues.schedule s where s.namespace = check_schedules.namespace limit _most + 1) made) > _most
  then
    raise exception using errcode = 'QF429',
      message = format('namespace %s would have more than %s schedules', to_json(namespace), _most),
      hint = 'Remove those that are not needed, also paused and orphaned ones (holdfast schedules remove NAME), let '
        'one schedule enqueue several tasks, or raise max_schedules in queues.setting.';
  end if;
end
$$;

comment on function queues.check_schedules(text) is 'Refuses more schedules than one namespace may have.';
