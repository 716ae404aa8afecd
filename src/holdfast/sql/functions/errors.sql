-- Groups of errors: the leader counts the errors of each type that differ only in numbers, ids and quoted values, so
-- that finish only has to write the error.
-- Invariant: an error is examined at most once. All errors up to queues.error_progress have been, except those of
-- queues.error_gap, whose numbers were not visible then.
-- Lock order: the row of queues.error_progress, without waiting; then groups and counts. Only the holder of that row
-- writes these, so nothing else needs an order.
-- At the same time: a second call finds the row locked and does nothing. Numbers are drawn before the commit, so an
-- error may become visible after one with a higher number. Such a gap is kept until all transactions that were open
-- when it was noticed have ended: then the number was rolled back. Retention may remove errors before they are counted;
-- those are not counted.

-- Counts errors that were written since the last call in their groups, and returns how many it has examined. A type has
-- at most 100 groups; further errors are counted in one group with an empty title. Also merges counts older than a day
-- into hours and forgets those older than 30 days. Another call that runs at the same time does nothing.
-- For holdfast_worker and holdfast_operator. Locks: the row of queues.error_progress, then groups and counts.
create or replace function queues.count_errors(max_errors integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _snapshot constant pg_snapshot := pg_current_snapshot();
  _from bigint;
  _last bigint;
  _late bigint[];
  _new bigint[];
begin
  if max_errors is null or max_errors not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_errors must be between 1 and 10000';
  end if;
  select p.counted_to into _from from queues.error_progress p for update skip locked;
  if not found then
    return 0;
  end if;
  -- Numbers are drawn before the commit, so an error may become visible after one with a higher number.
  _late := array(
    select e.error_id from queues.error_gap g join queues.error e on e.error_id = g.error_id
    order by e.error_id limit max_errors);
  _new := array(
    select e.error_id from queues.error e where e.error_id > _from order by e.error_id limit max_errors);
  _last := coalesce(_new[cardinality(_new)], _from);

  delete from queues.error_gap g
  where g.error_id = any (_late) or g.noticed_before <= pg_snapshot_xmin(_snapshot);
  insert into queues.error_gap (error_id, noticed_before)
  select n, pg_snapshot_xmax(pg_current_snapshot())
  from generate_series(greatest(_from, _last - 10000) + 1, _last) n
  except select unnest(_new), pg_snapshot_xmax(pg_current_snapshot());
  update queues.error_progress p set counted_to = _last where p.counted_to < _last;

  if cardinality(_late) + cardinality(_new) > 0 then
    perform queues.add_to_groups(_late || _new);
  end if;
  perform queues.thin_error_counts(max_errors, _now);
  return cardinality(_late) + cardinality(_new);
end
$$;

-- Adds errors to their groups. Those of runs that were ended by an action on the task, not by an error, do not count.
-- Internal: called by count_errors, which holds the row of queues.error_progress.
create or replace function queues.add_to_groups(error_ids bigint[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with seen as materialized (
    select e.error_id, e.task_id, e.occurred_at, e.retry_at, e.kind, e.detail ->> 'exception' as exception, e.step,
      t.type, queues.title_of_error(e.message) as title, queues.group_of_error(t.type, e) as error_group
    from unnest(error_ids) i(error_id)
    join queues.error e on e.error_id = i.error_id
    cross join lateral (select t.type from queues.task t where t.task_id = e.task_id offset 0) t
    where not starts_with(e.kind, 'killed_on_') and e.kind <> 'cancelled_by_handler'),
  -- Messages that have a different text each time must not fill the table.
  added as materialized (
    select n.error_group, row_number() over (partition by n.type order by n.first_id) + (
      select count(*) from (
        select from queues.error_group g where g.type = n.type limit 100) known) > 100 as surplus
    from (
      select s.error_group, s.type, min(s.error_id) as first_id from seen s
      where not exists (select from queues.error_group g where g.error_group = s.error_group)
      group by s.error_group, s.type) n),
  placed as materialized (
    select s.error_id, s.task_id, s.occurred_at, s.retry_at, s.type, s.step,
      case when a.surplus then md5(s.type) else s.error_group end as error_group,
      case when a.surplus then 'other' else s.kind end as kind,
      case when not coalesce(a.surplus, false) then left(s.exception, 200) end as exception,
      case when a.surplus then '' else s.title end as title
    from seen s left join added a on a.error_group = s.error_group),
  grouped as (
    insert into queues.error_group as g (error_group, type, kind, exception, title, first_seen, last_seen, errors,
      example_id, example_error_id, step)
    select p.error_group, min(p.type), min(p.kind), min(p.exception), min(p.title), min(p.occurred_at),
      max(p.occurred_at), count(*), (array_agg(p.task_id order by p.error_id desc))[1], max(p.error_id),
      (array_agg(p.step order by p.error_id desc))[1]
    from placed p group by p.error_group order by p.error_group
    on conflict (error_group) do update
    set first_seen = least(g.first_seen, excluded.first_seen), last_seen = greatest(g.last_seen, excluded.last_seen),
      errors = g.errors + excluded.errors, example_id = excluded.example_id,
      example_error_id = excluded.example_error_id, step = excluded.step)
  insert into queues.error_count as c (bucket_at, error_group, errors, ended)
  select date_trunc('minute', p.occurred_at), p.error_group, count(*), count(*) filter (where p.retry_at is null)
  from placed p group by 1, 2 order by 1, 2
  on conflict (bucket_at, error_group) do update
  set errors = c.errors + excluded.errors, ended = c.ended + excluded.ended
$$;

-- Returns the first line of an error message without what differs from task to task: quoted values, e-mail addresses,
-- and every word that contains a digit, such as a number, an id, a date or an address.
-- Internal.
create or replace function queues.title_of_error(message text)
returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select left(btrim(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
    left(split_part(ltrim(message, e' \t\r\n'), e'\n', 1), 1000),
    '"(\\.|[^"\\])*"|`[^`]*`|(?<!\w)''(\\.|[^''\\])*''(?!\w)', '…', 'g'),
    '[^\s<>()\[\]{},;=…]+@[^\s<>()\[\]{},;=…]+', '#', 'g'),
    '[\w.:/+%&?@~-]*\d[\w.:/+%&?@~-]*', '#', 'g'),
    '#([\s,;]+#)+', '#', 'g'),
    '\s+', ' ', 'g')), 200)
$$;

-- Returns the group of an error: a hash of the type of its task, its kind, its exception and the title of its message.
-- Internal.
create or replace function queues.group_of_error(type text, error queues.error)
returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select md5(concat_ws(e'\x1f', type, error.kind, coalesce(error.detail ->> 'exception', ''),
    queues.title_of_error(error.message)))
$$;

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
