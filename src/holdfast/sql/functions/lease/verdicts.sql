-- Returns the verdict for each element of a finish of which not all were accepted. The verdicts are accepted,
-- already_done, cancelled, lost and busy. Looks for the rows that an accepted call with the same token leaves.
-- Internal.
create or replace function queues.verdicts(worker_id text, results jsonb, accepted integer[])
returns table (task_id uuid, verdict text)
language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _odd text;
begin
  select case
      when jsonb_typeof(r.element) <> 'object' then format('results[%s] must be an object', r.n - 1)
      when r.element ->> 'task_id' is null then format('results[%s].task_id must not be null', r.n - 1)
      when r.element ->> 'token' is null then format('results[%s].token must not be null', r.n - 1)
      else format('results[%s].status %s is not one of succeeded, failed, retry, snooze, suspend, continue, cancelled',
        r.n - 1, r.element -> 'status')
    end into _odd
  from jsonb_array_elements(results) with ordinality r(element, n)
  where jsonb_typeof(r.element) <> 'object' or r.element ->> 'task_id' is null or r.element ->> 'token' is null
     or coalesce(r.element ->> 'status', 'none') not in (
       'succeeded', 'failed', 'retry', 'snooze', 'suspend', 'continue', 'cancelled')
  order by r.n limit 1;
  if _odd is not null then
    raise exception using errcode = 'QF400', message = _odd;
  end if;

  return query
  -- "select true … limit 1" instead of exists, which the planner may implement by reading a whole table once.
  select r.task_id, case
      when r.n = any (accepted) then 'accepted'
      when (select true from queues.act a
        where a.task_id = r.task_id and a.token = r.token and a.act = 'cancelled' limit 1) then 'cancelled'
      when (select true from queues.outcome o where o.task_id = r.task_id and o.token = r.token limit 1)
        or (select true from queues.error e
          where e.task_id = r.task_id and e.token = r.token and not e.recovered and e.step is null limit 1)
        or (select true from queues.act a
          where a.task_id = r.task_id and a.token = r.token
            and a.act in ('snoozed', 'suspended', 'continued', 'retried')
          limit 1) then 'already_done'
      when (select true from queues.lease l
        where l.task_id = r.task_id and l.token = r.token and l.worker_id = verdicts.worker_id limit 1) then 'busy'
      else 'lost' end
  from rows from (jsonb_to_recordset(results) as (task_id uuid, token bigint)) with ordinality r(task_id, token, n)
  order by r.n;
end
$$;

comment on function queues.verdicts(text, jsonb, integer[]) is
  'Returns the verdict for each element of a finish of which not all were accepted.';
