-- Merges counts per minute that are older than a day into counts per hour, and forgets counts and groups of which
-- nothing was seen for 30 days.
-- Internal: called by count_errors, which holds the row of queues.error_progress.
create or replace function queues.thin_error_counts(max_rows integer, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _hours constant timestamptz := date_trunc('hour', now - interval '1 day');
begin
  delete from queues.error_count c using (
    select c.bucket_at, c.error_group from queues.error_count c where c.bucket_at < now - interval '30 days'
    order by c.bucket_at limit max_rows) old
  where c.bucket_at = old.bucket_at and c.error_group = old.error_group;
  delete from queues.error_group g using (
    select g.error_group from queues.error_group g where g.last_seen < now - interval '30 days'
    order by g.last_seen limit max_rows) old
  where g.error_group = old.error_group;
  -- Two days are enough: what was not merged by then stays as it is.
  with minutes as (
    delete from queues.error_count c using (
      select c.bucket_at, c.error_group from queues.error_count c
      where c.bucket_at >= _hours - interval '2 days' and c.bucket_at < _hours
        and c.bucket_at <> date_trunc('hour', c.bucket_at)
      order by c.bucket_at limit max_rows) old
    where c.bucket_at = old.bucket_at and c.error_group = old.error_group
    returning c.*)
  insert into queues.error_count as c (bucket_at, error_group, errors, ended)
  select date_trunc('hour', m.bucket_at), m.error_group, sum(m.errors), sum(m.ended)
  from minutes m group by 1, 2 order by 1, 2
  on conflict (bucket_at, error_group) do update
  set errors = c.errors + excluded.errors, ended = c.ended + excluded.ended;
end
$$;

comment on function queues.thin_error_counts(integer, timestamptz) is
  'Merges counts per minute that are older than a day into counts per hour, and forgets those of 30 days ago.';
