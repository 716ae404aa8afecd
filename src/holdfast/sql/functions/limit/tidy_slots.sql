-- Removes slots without a lease and returns how many. Claims ignore them, and remove those of the limits that they use.
-- Also inserts missing slots of tasks whose claim was running when the limit was set.
-- For holdfast_worker. Locks: slots, without waiting.
create or replace function queues.tidy_slots(max_slots integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _hasty constant boolean := queues.allow_to_lose();
  _removed integer;
begin
  if max_slots is null or max_slots not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_slots must be between 1 and 10000';
  end if;
  delete from queues.slot s
  where (s.subject, s.name, s.namespace, s.concurrency_key, s.task_id, s.token) in (
    select stale.subject, stale.name, stale.namespace, stale.concurrency_key, stale.task_id, stale.token from queues.slot stale
    where not exists (select from queues.lease l where l.task_id = stale.task_id and l.token = stale.token)
    limit max_slots for update skip locked);
  get diagnostics _removed = row_count;
  if exists (select from queues.task_limit) then
    perform queues.enter_running(array(
      select distinct l.lane_id from queues.lane l
      join queues.task_limit t on t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type), queues.clock());
  end if;
  return _removed;
end
$$;

comment on function queues.tidy_slots(integer) is 'Removes slots without a lease and returns how many.';
