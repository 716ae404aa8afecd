-- Returns the types with the most activity, or the slowest, or those that fail most: how many attempts ended how, and
-- how long they ran on average.
-- For holdfast_reader. Locks: none.
create or replace function queues.rank_types(
  by text default 'busiest', since interval default '1 hour', of_queue text default null, max_types integer default 10)
returns table (
  queue text, type text, succeeded bigint, failed bigint, retrying bigint, cancelled bigint,
  mean_seconds double precision)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  _period constant integer := case when since > interval '2 hours' then 15 else 1 end;
begin
  if rank_types.by is null or rank_types.by not in ('busiest', 'slowest', 'failing') then
    raise exception using errcode = 'QF400', message = 'by must be busiest, slowest or failing';
  elsif since is null or since not between interval '1 minute' and interval '2 days' then
    raise exception using errcode = 'QF400', message = 'since must be between 1 minute and 2 days';
  elsif max_types is null or max_types not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_types must be between 1 and 1000';
  end if;
  return query
  select t.queue, t.type, t.succeeded, t.failed, t.retrying, t.cancelled, t.run_seconds / nullif(t.ended, 0)
  from (
    select a.queue, a.type, sum(a.succeeded)::bigint as succeeded, sum(a.failed + a.dead_letter)::bigint as failed,
      sum(a.retrying)::bigint as retrying, sum(a.cancelled)::bigint as cancelled, sum(a.run_seconds) as run_seconds,
      sum(a.succeeded + a.failed + a.dead_letter + a.retrying + a.cancelled)::bigint as ended
    from queues.activity a
    where a.period = _period and a.at > queues.clock() - since - make_interval(mins => _period) and a.type <> ''
      and (of_queue is null or a.queue = of_queue)
    group by 1, 2) t
  where t.ended > 0 and (rank_types.by <> 'failing' or t.failed + t.retrying > 0)
  order by case rank_types.by when 'busiest' then t.ended::double precision when 'slowest' then t.run_seconds / t.ended
    else (t.failed + t.retrying)::double precision end desc, t.queue, t.type
  limit max_types;
end
$$;

comment on function queues.rank_types(text, interval, text, integer) is
  'Returns the types with the most activity, or the slowest, or those that fail most.';
