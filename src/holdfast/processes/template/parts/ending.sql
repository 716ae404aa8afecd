-- Ends one that has not ended: its supervisor does nothing any more. Returns the decision it ended with: cancelled, or how it had already ended.
-- To cancel the task of the supervisor ends nothing: the leader enqueues it again.
create or replace function @name@.cancel_@name@_task(@name@_task_id bigint, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _task constant @name@.@name@_task := @name@.lock_@name@_task(jsonb_build_object('@name@_task_id', @name@_task_id));
  _id constant bigint := _task.@name@_task_id;
  _reason constant text := format('cancelled by %s', queues.actor()) || coalesce(': ' || left(reason, 2000), '');
  _waiting constant uuid := @name@.waiting_@name@_supervisor(_id);
  _ended text;
begin
  if _id is null or not @name@.may_end_@name@_task(_task.namespace) then
    raise exception using errcode = 'QF404', message = format('there is no @name@_task %s', coalesce(@name@_task_id::text, 'null')),
      hint = 'One of another login reads as if it did not exist.';
  end if;
  select f.decision into _ended from @name@.@name@_task_supervised f where f.@name@_task_id = _id and f.next_task_id is null;
  if found then
    return _ended;
  end if;
  insert into @name@.@name@_task_supervised (@name@_task_id, run, supervised_at, decision, reason)
  values (_id, @name@.count_@name@_task_runs(_id) + 1, queues.clock(), 'cancelled', _reason);
  perform queues.nudge(_waiting);
  perform queues.note_supervision('@name@', _id, null, decision => 'cancelled', reason => _reason);
  return 'cancelled';
end
$$;

-- Enqueues the supervisor again of those that were found without one, at most as many as the payload's max_processes. The leader calls it.
create or replace function @name@.repair_@name@(payload jsonb)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _most constant integer := case when payload ->> 'max_processes' ~ '^[1-9][0-9]{0,3}$' then (payload ->> 'max_processes')::integer end;
  _id bigint;
  _ended text;
  _repaired integer := 0;
begin
  if _most is null then
    return jsonb_build_object('success', false, 'validation_failure_message', 'max_processes must be between 1 and 9999');
  end if;
  for _id in select o.process_id from queues.orphans('@name@', _most) o(process_id) loop
    perform from @name@.@name@_task t where t.@name@_task_id = _id for update skip locked;
    continue when not found and exists (select from @name@.@name@_task t where t.@name@_task_id = _id)
      or queues.is_supervised('@name@', _id);
    select f.decision into _ended from @name@.@name@_task_supervised f where f.@name@_task_id = _id and f.next_task_id is null;
    if found then
      perform queues.note_supervision('@name@', _id, null, decision => _ended);
    elsif not exists (select from @name@.@name@_task t where t.@name@_task_id = _id) then
      perform queues.note_supervision('@name@', _id, null, decision => 'gave_up', reason => 'it was removed');
    else
@part restart@
      _repaired := _repaired + 1;
    end if;
  end loop;
  return jsonb_build_object('success', true, 'payload', jsonb_build_object('repaired', _repaired));
end
$$;

