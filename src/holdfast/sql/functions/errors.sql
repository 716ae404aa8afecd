-- Groups of errors: the errors of one type that differ only in numbers, ids and quoted values. Each error is written
-- with its group, and the groups are counted when somebody reads them.
-- Invariant: the group is a function of the error and the type of its task, so it is computed once, when the error is
-- written, and never again. Errors of runs that an action on the task has ended, and not an error, have no group.
-- Lock order: none.
-- At the same time: an error counts from the commit of the transaction that wrote it, until retention removes it.

-- Returns the groups of errors that occurred since a time, by default within a day, the most frequent first: how many,
-- how many ended their task, how many its type has in all, and how they are distributed over 24 equal parts of that
-- time. Counts the newest 50,000 errors: if there are more, counted_since is when the oldest of them occurred.
-- For holdfast_reader. Locks: none.
create or replace function queues.list_error_groups(
  since timestamptz default null, type_prefix text default null, max_groups integer default 50)
returns table (
  error_group text, type text, kind text, exception text, title text, errors bigint, ended bigint, type_errors bigint,
  first_seen timestamptz, last_seen timestamptz, example_id uuid, trend integer[], step text,
  counted_since timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _since constant timestamptz := coalesce(since, _now - interval '1 day');
  _part constant double precision := greatest(extract(epoch from _now - _since), 60) / 24;
  _most constant integer := 50000;
begin
  if max_groups is null or max_groups not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_groups must be between 1 and 1000';
  end if;
  return query
  with newest as materialized (
    select e.error_group, e.occurred_at, e.error_id, e.retry_at from queues.error e
    where e.error_group is not null and e.occurred_at >= _since order by e.occurred_at desc limit _most),
  counted as materialized (
    select n.error_group, count(*) as errors, count(*) filter (where n.retry_at is null) as ended,
      min(n.occurred_at) as first_seen, max(n.occurred_at) as last_seen, max(n.error_id) as example
    from newest n group by n.error_group),
  -- A type is read once, however many groups its errors have.
  types as (
    select left(c.error_group::text, 8) as part, sum(c.errors)::bigint as errors, max(c.example) as example
    from counted c group by 1),
  named as materialized (
    select y.part, y.errors, t.type from types y
    cross join lateral (select e.task_id from queues.error e where e.error_id = y.example offset 0) e
    cross join lateral (select t.type from queues.task t where t.task_id = e.task_id offset 0) t
    where type_prefix is null or starts_with(t.type, type_prefix)),
  top as materialized (
    select c.*, y.type, y.errors as type_errors
    from counted c join named y on y.part = left(c.error_group::text, 8)
    order by c.errors desc, c.last_seen desc, c.error_group limit max_groups),
  parts as (
    select p.error_group, array_agg(p.errors order by p.n) as trend
    from (
      select t.error_group, n.n, count(e.n)::integer as errors
      from top t cross join generate_series(0, 23) n(n)
      left join (
        select e.error_group, least(23, floor(extract(epoch from e.occurred_at - _since) / _part))::integer as n
        from newest e where e.error_group = any (array(select t.error_group from top t))) e
        on e.error_group = t.error_group and e.n = n.n
      group by t.error_group, n.n) p
    group by p.error_group)
  select replace(t.error_group::text, '-', ''), t.type, e.kind, left(e.detail ->> 'exception', 200),
    queues.title_of_error(e.message), t.errors, t.ended, t.type_errors, t.first_seen, t.last_seen, e.task_id, p.trend,
    e.step, (select min(n.occurred_at) from newest n having count(*) = _most)
  from top t
  join parts p on p.error_group = t.error_group
  cross join lateral (select * from queues.error e where e.error_id = t.example offset 0) e
  order by t.errors desc, t.last_seen desc, t.error_group;
end
$$;

-- Returns the group of an error, of which the first four bytes belong to the type of its task, or null if an action on
-- the task has ended the run: then it is no error.
-- Internal: called where errors are written. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.group_of_error(type text, kind text, detail jsonb, message text)
returns uuid
language sql immutable parallel safe
as $$
  select (case when not pg_catalog.starts_with(kind, 'killed_on_') and kind <> 'cancelled_by_handler'
    then pg_catalog.left(pg_catalog.md5(type), 8) || pg_catalog.left(pg_catalog.md5(pg_catalog.concat_ws(e'\x1f', kind,
      coalesce(detail ->> 'exception', ''), queues.title_of_error(message))), 24) end)::uuid
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
