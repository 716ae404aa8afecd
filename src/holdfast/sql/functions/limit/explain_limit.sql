-- Explains which limit, or open transaction that holds it, delays a waiting task; null if none does.
-- Internal.
create or replace function queues.explain_limit(task_id uuid, now timestamptz)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _limit record;
  _held text;
begin
  for _limit in
    select l.* from queues.task t
    cross join lateral queues.limits_of(t.queue, t.type, t.namespace, t.concurrency_key, explain_limit.now) l
    where t.task_id = explain_limit.task_id
    order by l.concurrency_key = '', l.subject, l.name
  loop
    if _limit.running >= _limit.max_running then
      return format('It is due, but %s, and that many run now. It starts when one of them ends.',
        queues.limit_in_words(_limit.subject, _limit.name, _limit.concurrency_key, _limit.max_running));
    elsif _limit.refills_in is not null then
      return format('It is due, but %s %s has used up its rate, which lets the next one start in %s.', _limit.subject,
        _limit.name, queues.format_duration(extract(epoch from _limit.refills_in)::double precision));
    end if;
    _held := coalesce(_held, queues.explain_limit_lock(_limit.lock, explain_limit.now));
  end loop;
  return 'It is due, but ' || _held || '.';
end
$$;

comment on function queues.explain_limit(uuid, timestamptz) is
  'Explains which limit, or open transaction that holds it, delays a waiting task; null if none does.';
