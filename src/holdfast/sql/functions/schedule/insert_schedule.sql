-- Adds one schedule, or raises an error.
-- Internal: called by add_schedule_for_client and add_schedule_for_process. Locks: the schedule.
create or replace function queues.insert_schedule(schedule jsonb, for_process boolean)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _verdict text;
begin
  if jsonb_typeof(schedule) is distinct from 'object' then
    raise exception using errcode = 'QF400', message = 'schedule must be an object';
  elsif not queues.is_first_shard() then
    raise exception using errcode = 'QF412',
      message = format('schedule %s cannot be added to shard %s: schedules are on the first shard',
        to_json(schedule ->> 'name'), (select s.shard_name from queues.shard s)),
      hint = 'Add it through a front, or on the first shard.';
  end if;
  perform queues.check_schedule(schedule, for_process, '', _now);
  _verdict := queues.upsert_schedule(schedule, null, for_process, _now);
  if _verdict = 'taken' then
    raise exception using errcode = 'QF409',
      message = format('schedule %s already exists with another definition', to_json(schedule ->> 'name')),
      hint = 'Use another name, or remove that one first.';
  elsif _verdict = 'added' then
    perform queues.check_schedules(queues.namespace());
  end if;
  return _verdict;
end
$$;

comment on function queues.insert_schedule(jsonb, boolean) is 'Adds one schedule, or raises an error.';
