-- Returns the groups of errors that occurred since a time, by default within a day, the most frequent first: how many,
-- how many ended their task, how many its type has in all, and how they are distributed over 24 equal parts of that
-- time. Errors are counted some seconds after they occur. Reads at most 200,000 counts, the newest first.
-- For holdfast_reader. Locks: none.
create or replace function queues.list_error_groups(
  since timestamptz default null, type_prefix text default null, only_group text default null,
  max_groups integer default 50)
returns table (
  error_group text, type text, kind text, exception text, title text, errors bigint, ended bigint, type_errors bigint,
  first_seen timestamptz, last_seen timestamptz, example_id uuid, trend integer[], step text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _since constant timestamptz := coalesce(since, _now - interval '1 day');
  -- Counts that are older than a day are those of whole hours.
  _from constant timestamptz := date_trunc(
    case when _since < _now - interval '1 day' then 'hour' else 'minute' end, _since);
  _step constant double precision := greatest(extract(epoch from _now - _from), 60) / 24;
begin
  if max_groups is null or max_groups not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_groups must be between 1 and 1000';
  end if;
  return query
  with counted as materialized (
    select c.error_group, sum(c.errors)::bigint as errors, sum(c.ended)::bigint as ended
    from (
      select c.error_group, c.errors, c.ended from queues.error_count c
      where c.bucket_at >= _from order by c.bucket_at desc limit 200000) c
    where only_group is null or c.error_group = only_group
    group by c.error_group),
  top as materialized (
    select g.*, n.errors as recent, n.ended, sum(n.errors) over (partition by g.type)::bigint as type_errors
    from counted n join queues.error_group g on g.error_group = n.error_group
    where type_prefix is null or starts_with(g.type, type_prefix)
    order by n.errors desc, g.last_seen desc limit max_groups)
  select t.error_group, t.type, t.kind, t.exception, t.title, t.recent, t.ended, t.type_errors, t.first_seen,
    t.last_seen, t.example_id, array(
      select coalesce(sum(c.errors), 0)::integer
      from generate_series(0, 23) n
      left join (
        select least(23, floor(extract(epoch from c.bucket_at - _from) / _step))::integer as n, c.errors
        from queues.error_count c where c.error_group = t.error_group and c.bucket_at >= _from) c on c.n = n.n
      group by n.n order by n.n), t.step
  from top t order by t.recent desc, t.last_seen desc;
end
$$;

comment on function queues.list_error_groups(timestamptz, text, text, integer) is
  'Returns the groups of errors that occurred since a time, the most frequent first, with counts and a trend.';
