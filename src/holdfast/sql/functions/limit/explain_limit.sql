-- Which limit keeps a waiting task from running now, in plain words; null if none does.
create or replace function queues.explain_limit(task_id uuid, now timestamptz)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _gate record;
begin
  for _gate in
    select g.gate, g.max_running, g.may_start, (
        select count(*) from queues.slot s
        where s.gate = g.gate and exists (select from queues.lease l where l.task_id = s.task_id and l.token = s.token)) as running
    from queues.ready r cross join lateral queues.gates_of(array[r.lane_id], explain_limit.now) g
    where r.task_id = explain_limit.task_id
    order by g.gate
  loop
    if _gate.running >= _gate.max_running then
      return format('It is due, but %s, and that many run now. It starts when one of them ends.', case
        when _gate.gate like 'key:%' then format('of its concurrency key at most %s may run at once', _gate.max_running)
        else format('of %s at most %s may run at once', replace(_gate.gate, ':', ' '), _gate.max_running) end);
    elsif _gate.may_start < 1 then
      return format('It is due, but %s has used up its rate. It starts when the rate allows.', replace(_gate.gate, ':', ' '));
    end if;
  end loop;
  return null;
end
$$;

comment on function queues.explain_limit(uuid, timestamptz) is
  'Which limit keeps a waiting task from running now, in plain words; null if none does.';
