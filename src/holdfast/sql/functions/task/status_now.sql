-- Returns the status of one task; raises an error if retention has removed it meanwhile.
-- Internal.
create or replace function queues.status_now(task_id uuid)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _status text;
begin
  select queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
    coalesce(r.run_at, d.parked_run_at), queues.clock(),
    (select true from queues.wait w where w.task_id = t.task_id limit 1))
  into _status
  from queues.task t
  left join queues.ready r on r.task_id = t.task_id
  left join queues.lease l on l.task_id = t.task_id
  left join queues.outcome o on o.task_id = t.task_id
  left join queues.deletion d on d.task_id = t.task_id
  where t.task_id = status_now.task_id;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no task %s', task_id),
      hint = 'It has just been removed by retention.';
  end if;
  return _status;
end
$$;

comment on function queues.status_now(uuid) is
  'Returns the status of one task; raises an error if retention has removed it meanwhile.';
