-- How long until the next task is due that the worker subscribes to: zero or less if one is due now, null if none waits.
-- For holdfast_worker. Locks: none.
create or replace function queues.next_due(queues text[] default null, type_prefixes text[] default null)
returns interval
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  return (
    select min(first.run_at) - queues.clock()
    from queues.lane l
    cross join lateral (
      select r.run_at from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
    where (l.queue = any (coalesce(next_due.queues, case when next_due.type_prefixes is null then array['default'] end))
        or exists (select from unnest(next_due.type_prefixes) prefix where starts_with(l.type, prefix)))
      and not exists (select from queues.paused_queue p where p.queue = l.queue));
end
$$;

comment on function queues.next_due(text[], text[]) is
  'How long until the next task is due that the worker subscribes to: zero or less if one is due now, null if none waits.';
