-- Locks the limits of these lanes and returns how many more tasks may start under each, and which apply to each lane.
-- Returns positions in rooms, or null where no limit applies. Nothing may start under a limit that another claim
-- counts.
-- Internal: called by lock_within_limits. Locks: limits.
create or replace function queues.rooms_of_lanes(
  lanes bigint[], due timestamptz, out rooms integer[], out of_queue integer[], out of_type integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _held integer[];
begin
  -- Only limits under which a task is due are locked.
  _held := array(
    select distinct queues.limit_lock_of(t.subject, t.name)
    from queues.lane l
    join queues.task_limit t on t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type
    where l.lane_id = any (lanes) and (t.max_running is not null or t.rate is not null)
      and exists (select from queues.ready r where r.lane_id = l.lane_id and r.run_at <= due));
  if _held = '{}' then
    -- A task that is committed from now on waits for the next claim, because its limit is not locked: there is no room.
    rooms := '{0}';
    select array_agg(q.room order by u.n), array_agg(y.room order by u.n)
    into of_queue, of_type
    from unnest(lanes) with ordinality u(lane_id, n)
    left join queues.lane l on l.lane_id = u.lane_id
    left join lateral (
      select 1 as room from queues.task_limit t where t.subject = 'queue' and t.name = l.queue
        and (t.max_running is not null or t.rate is not null)) q on true
    left join lateral (
      select 1 as room from queues.task_limit t where t.subject = 'type' and t.name = l.type
        and (t.max_running is not null or t.rate is not null)) y on true;
    return;
  end if;
  _held := queues.hold_limits(_held, 10);
  -- A claim that was running when a limit was set did not know it.
  perform queues.count_running(t.subject, t.name) from queues.task_limit t
  where t.set_at > due - interval '10 seconds' and t.max_running is not null;

  -- Limits are read after they were locked.
  with room as materialized (
    select t.subject, t.name, row_number() over ()::integer as n,
      case when queues.limit_lock_of(t.subject, t.name) = any (_held) then
        least(t.max_running - running.count, floor(queues.tokens_at(t, due))::integer) else 0 end as room
    from queues.task_limit t
    left join lateral (
      select count(*)::integer as count from queues.lease e
      where e.limited and e.lane_id = any (case t.subject
        when 'queue' then array(
          select l.lane_id from queues.lane l where l.queue = t.name and coalesce(l.concurrency_key, '') = '')
        else array(
          select l.lane_id from queues.lane l where l.type = t.name and coalesce(l.concurrency_key, '') = '') end)
      ) running on t.max_running is not null
    where (t.max_running is not null or t.rate is not null) and exists (
      select from queues.lane l where l.lane_id = any (lanes)
        and (t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type)))
  select array(select r.room from room r order by r.n), array_agg(q.n order by u.n), array_agg(y.n order by u.n)
  into rooms, of_queue, of_type
  from unnest(lanes) with ordinality u(lane_id, n)
  -- Not an inner join, which would shift the positions if a lane is removed meanwhile.
  left join queues.lane l on l.lane_id = u.lane_id and l.lane_id = any (lanes)
  left join room q on q.subject = 'queue' and q.name = l.queue
  left join room y on y.subject = 'type' and y.name = l.type;
end
$$;

comment on function queues.rooms_of_lanes(bigint[], timestamptz) is
  'Locks the limits of these lanes and returns how many more tasks may start under each, and which apply to each lane.';
