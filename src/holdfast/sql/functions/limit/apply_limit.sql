-- Applies a limit that was set, changed or dropped: running tasks count under it, and tasks that wait for another one
-- of their concurrency key may be claimed if the limit now allows it.
-- Internal: called by set_limit and drop_limit. Locks: leases and ready rows, without waiting.
create or replace function queues.apply_limit(subject text, name text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (
    select from queues.task_limit t
    where t.subject = apply_limit.subject and t.name = apply_limit.name and t.max_running is not null)
  then
    perform queues.count_running(subject, name);
  end if;
  perform queues.bring_back(array(
    select r.task_id from queues.lane l join queues.ready r on r.lane_id = l.lane_id
    where l.concurrency_key > ''
      and case apply_limit.subject when 'queue' then l.queue else l.type end = apply_limit.name));
end
$$;

comment on function queues.apply_limit(text, text) is
  'Applies a limit that was set, changed or dropped to running tasks and to those that wait for their key.';
