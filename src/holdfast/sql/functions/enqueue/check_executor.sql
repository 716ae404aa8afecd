-- Refuses an executor that does not exist, or that the caller may not use.
create or replace function queues.check_executor(executor text, for_process boolean, place text)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _needs_process boolean;
begin
  select e.needs_process into _needs_process from queues.executor e where e.executor = check_executor.executor;
  if not found then
    raise exception using errcode = 'QF400', message = format('%sexecutor %s is unknown', place, to_json(check_executor.executor)),
      hint = (select 'Allowed: ' || string_agg(e.executor, ', ' order by e.executor) || '.' from queues.executor e);
  elsif _needs_process and not for_process then
    raise exception using errcode = 'QF403',
      message = format('%sexecutor %s may be used by members of holdfast_process only', place, check_executor.executor),
      hint = 'Call a function of the business process that enqueues it; its owner has holdfast_process.';
  end if;
end
$$;

comment on function queues.check_executor(text, boolean, text) is
  'Refuses an executor that does not exist, or that the caller may not use.';
