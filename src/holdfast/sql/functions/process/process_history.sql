-- Returns what happened to an instance of a process, in order and at most the last max_steps, as the history function
-- of the process tells it. The function runs with the rights of its owner, for the namespace of the instance, and what
-- it changes is undone.
-- For holdfast_reader. Locks: what the function locks.
create or replace function queues.process_history(process text, process_id bigint, max_steps integer default 1000)
returns table (at timestamptz, what text, reason text, task_id uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespace constant text := (select i.namespace from queues.process_instance i
    where i.process = process_history.process and i.process_id = process_history.process_id);
begin
  if max_steps is null or max_steps not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_steps must be between 1 and 10000';
  end if;
  return query
  select (s.step ->> 0)::timestamptz, s.step ->> 1, s.step ->> 2, (s.step ->> 3)::uuid
  from jsonb_array_elements(queues.call_process(process_history.process, 'history',
    jsonb_build_array(process_history.process_id, max_steps), _namespace)) with ordinality s(step, place)
  order by s.place;
end
$$;

comment on function queues.process_history(text, bigint, integer) is
  'Returns what happened to an instance of a process, as its history function tells it.';
