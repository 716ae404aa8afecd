-- Returns how long until a claim may find a task, and whether a limit holds a due task back until another ends. Zero
-- or less if a task is due that no limit holds back, else the time until the first task is due or a rate allows one;
-- null if there is nothing to wait for.
-- For holdfast_worker. Locks: none.
create or replace function queues.next_due(
  queues text[] default null, type_prefixes text[] default null, out due interval, out held boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _types constant text[] := case when type_prefixes is not null then queues.types_in_use(type_prefixes) end;
  _queues constant text[] := coalesce(
    next_due.queues, case when next_due.type_prefixes is null then array['default'] end);
  _first timestamptz;
  _limited jsonb;
begin
  select min(first.run_at) filter (where not limits.apply or first.run_at > _now),
    jsonb_agg(distinct jsonb_build_object('queue', l.queue, 'type', l.type))
      filter (where limits.apply and first.run_at <= _now)
  into _first, _limited
  from queues.lanes_of(_queues, _types) l
  cross join lateral (
    select r.run_at from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
  cross join lateral (
    select exists (
      select from queues.task_limit t
      where (t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type)
        and (t.max_running is not null or t.rate is not null)) as apply) limits
  where not exists (select from queues.paused_queue p where p.queue = l.queue);
  due := _first - _now;
  if _limited is not null then
    select least(due, min(lane.wait)), bool_or(lane.is_full) into due, held
    from (
      -- Null while as many run as may, because the time at which one ends is unknown.
      select case when not coalesce(bool_or(k.running >= k.max_running), false)
          then coalesce(max(k.refills_in), interval '0') end as wait,
        coalesce(bool_or(k.running >= k.max_running), false) as is_full
      from jsonb_to_recordset(_limited) as l(queue text, type text)
      cross join lateral queues.limits_of(l.queue, l.type, null, null, _now) k group by l.queue, l.type) lane;
  end if;
  -- Tasks in the lane of a concurrency key wait for the end of another one.
  held := coalesce(held, false) or exists (
    select from queues.lane l
    where l.concurrency_key > '' and (l.queue = any (_queues) or l.type = any (_types))
      and exists (select from queues.ready r where r.lane_id = l.lane_id));
end
$$;

comment on function queues.next_due(text[], text[]) is
  'Returns how long until a claim may find a task, and whether a limit holds a due task back until another ends.';
