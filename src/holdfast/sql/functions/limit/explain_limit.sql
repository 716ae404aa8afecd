-- Explains which limit, or open transaction that holds it, delays a waiting task; null if none does.
-- Internal.
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
    select g.* from queues.ready r cross join lateral queues.gates_in_use(array[r.lane_id], explain_limit.now) g
    where r.task_id = explain_limit.task_id
    order by g.concurrency_key = '', g.subject, g.name
  loop
    if _gate.is_full then
      return format('It is due, but %s, and that many run now. It starts when one of them ends.',
        queues.limit_in_words(_gate.subject, _gate.name, _gate.concurrency_key, _gate.max_running));
    elsif _gate.refills_in is not null then
      return format('It is due, but %s %s has used up its rate, which lets the next one start in %s.', _gate.subject, _gate.name,
        queues.in_words(extract(epoch from _gate.refills_in)::double precision));
    end if;
  end loop;
  return (
    select format('It is due, but %s.', string_agg(distinct held.words, '; '))
    from queues.ready r
    cross join lateral queues.gates_of(array[r.lane_id], explain_limit.now) g
    cross join lateral queues.explain_limit_lock(g.lock, explain_limit.now) held(words)
    where r.task_id = explain_limit.task_id and held.words is not null having count(*) > 0);
end
$$;

comment on function queues.explain_limit(uuid, timestamptz) is
  'Explains which limit, or open transaction that holds it, delays a waiting task; null if none does.';
