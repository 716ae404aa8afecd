-- Returns how many due tasks of its queue precede a waiting task, up to 10,000.
-- Internal.
create or replace function queues.count_ahead(task_id uuid, now timestamptz)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*)::integer from (
    select from queues.ready mine
    join queues.lane my_lane on my_lane.lane_id = mine.lane_id
    join queues.lane other on other.queue = my_lane.queue and other.priority >= my_lane.priority
    join queues.ready ahead on ahead.lane_id = other.lane_id and ahead.run_at <= now
    where mine.task_id = count_ahead.task_id
      and (other.priority > my_lane.priority or (ahead.run_at, ahead.task_id) < (mine.run_at, mine.task_id))
    limit 10000) those
$$;

comment on function queues.count_ahead(uuid, timestamptz) is
  'Returns how many due tasks of its queue precede a waiting task, up to 10,000.';
