-- Explains why a waiting task waits: its time, its queue, its workers, or the tasks before it.
-- Internal: called by explain.
create or replace function queues.explain_wait(
  task_id uuid, queue text, type text, run_at timestamptz, attempt integer, max_attempts integer, last_error text,
  now timestamptz)
returns table (why text, error text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _pause queues.paused_queue;
  _last queues.act;
  _live integer;
  _held text;
  _ahead integer;
begin
  if explain_wait.run_at > now then
    if exists (select from queues.wait w where w.task_id = explain_wait.task_id) then
      return query select queues.explain_waits(task_id), null::text;
      return;
    end if;
    select a.* into _last from queues.act a where a.task_id = explain_wait.task_id order by a.act_id desc limit 1;
    return query
    select case when _last.act = 'snoozed' and _last.reason is not null
      then format('Worker %s has postponed it until %s.', _last.worker_id, date_trunc('second', explain_wait.run_at))
      when attempt > 0
      then format('Attempt %s of %s failed; it is retried at %s.', attempt, max_attempts,
        date_trunc('second', explain_wait.run_at))
      else format('It is scheduled for %s.', date_trunc('second', explain_wait.run_at)) end,
      case when _last.act = 'snoozed' and _last.reason is not null then _last.reason
        when attempt > 0 then last_error end;
    return;
  end if;

  select p.* into _pause from queues.paused_queue p where p.queue = explain_wait.queue;
  if found then
    return query select format('Queue %s was paused at %s by %s%s. Resume it to let its tasks run.',
      _pause.queue, date_trunc('second', _pause.paused_at), _pause.paused_by,
      coalesce(' because: ' || _pause.reason, '')), null::text;
    return;
  end if;

  select count(*) into _live from queues.worker w
  where w.last_heartbeat > now - w.timeout
    and (explain_wait.queue = any (w.queues)
      or exists (select from unnest(w.type_prefixes) p where starts_with(explain_wait.type, p)));
  if _live = 0 then
    return query select format('It is due, but no live worker subscribes to queue %s or to a prefix of type %s. Start '
      'one.', explain_wait.queue, explain_wait.type), null::text;
    return;
  end if;

  _held := coalesce(queues.explain_limit(task_id, now), queues.explain_lock(task_id, now));
  if _held is not null then
    return query select _held, null::text;
    return;
  end if;

  select count(*) into _ahead from (
    select from queues.ready mine
    join queues.lane my_lane on my_lane.lane_id = mine.lane_id
    join queues.lane other on other.queue = my_lane.queue and other.priority >= my_lane.priority
    join queues.ready ahead on ahead.lane_id = other.lane_id and ahead.run_at <= now
    where mine.task_id = explain_wait.task_id
      and (other.priority > my_lane.priority or (ahead.run_at, ahead.task_id) < (mine.run_at, mine.task_id))
    limit 10000) those;
  return query select format('It is due and waits for one of %s live worker%s; %s.%s', _live,
    case when _live > 1 then 's' else '' end,
    case _ahead when 0 then 'it is the next of its queue'
      when 10000 then '10000 or more of its queue come before it'
      else format('%s of its queue come%s before it', _ahead, case _ahead when 1 then 's' else '' end) end,
    coalesce(' ' || queues.explain_slowness(explain_wait.run_at, now), '')), null::text;
end
$$;

comment on function queues.explain_wait(uuid, text, text, timestamptz, integer, integer, text, timestamptz) is
  'Explains why a waiting task waits: its time, its queue, its workers, or the tasks before it.';
