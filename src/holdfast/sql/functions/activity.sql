-- The figures of the charts: what workers report about the attempts that they have run, samples of the whole database,
-- and groups of errors: those of one type that differ only in numbers, ids and quoted values.
-- Invariant: a report counts in one statement for its type, its queue and the total, so these agree. The end of a task
-- counts nothing, so that charts cost tasks nothing: what a worker has counted when it is killed is lost. Histograms
-- are in the metrics of workers. The group of an error is a function of the error and the type of its task: it is
-- written with the error, and counted when somebody reads it.
-- Lock order: rows of queues.activity by queue and type; then the sample; then the row of queues.event_order. What is
-- too old is deleted without waiting.
-- At the same time: reports of several workers add to the same rows and wait for each other for a moment. Two samples
-- of the same ten seconds are one, by their key; only a sample that counts tasks may complete one that did not. An
-- error counts from the commit of the transaction that wrote it, until retention removes it.

-- Returns the samples in steps: waiting and running tasks, rates per second, and how long tasks waited. The rates are
-- those of enqueued and ended tasks and of errors. A step without samples has no row.
-- For holdfast_reader. Locks: none.
create or replace function queues.list_activity(since interval default '1 hour', step interval default '1 minute')
returns table (
  at timestamptz, due double precision, scheduled double precision, running double precision,
  enqueued_per_second double precision, finished_per_second double precision, errors_per_second double precision,
  delay_p50 double precision, delay_p99 double precision)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  -- A variable, because the clock is volatile and no index is used for it.
  _now constant timestamptz := queues.clock();
begin
  if since is null or since not between interval '1 minute' and interval '2 days' then
    raise exception using errcode = 'QF400', message = 'since must be between 1 minute and 2 days';
  elsif step is null or step not between interval '10 seconds' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'step must be between 10 seconds and 1 day';
  end if;
  return query
  with pace as (
    select s.*, lag(s.taken_at) over w as before,
      -- Statistics restart at zero after a crash; the first sample after that gives no rate.
      case when s.enqueued_total >= lag(s.enqueued_total) over w
        then s.enqueued_total - lag(s.enqueued_total) over w end as enqueued,
      case when s.finished_total >= lag(s.finished_total) over w
        then s.finished_total - lag(s.finished_total) over w end as finished,
      case when s.errors_total >= lag(s.errors_total) over w
        then s.errors_total - lag(s.errors_total) over w end as errors
    from queues.sample s where s.taken_at > _now - since - interval '1 minute'
    window w as (order by s.taken_at)),
  timed as (
    select p.*, nullif(extract(epoch from p.taken_at - p.before), 0)::double precision as seconds
    from pace p where p.taken_at > _now - since)
  select date_bin(step, t.taken_at, '2000-01-01 00:00:00+00') as at,
    avg(t.due)::double precision, avg(t.scheduled)::double precision, avg(t.running)::double precision,
    sum(t.enqueued) / sum(t.seconds) filter (where t.enqueued is not null),
    sum(t.finished) / sum(t.seconds) filter (where t.finished is not null),
    sum(t.errors) / sum(t.seconds) filter (where t.errors is not null),
    avg(t.delay_p50), max(t.delay_p99)
  from timed t group by 1 order by 1;
end
$$;

-- Returns the activity of a queue, of a type, or of all, in steps: attempts by how they ended, how long they waited
-- until their start and how long they ran on average, in seconds, and the waiting and running tasks. A step without
-- activity has no row. A step is at least five minutes.
-- For holdfast_reader. Locks: none.
create or replace function queues.list_activity_of(
  queue text default null, type text default null, since interval default '1 hour', step interval default '5 minutes')
returns table (
  at timestamptz, seconds double precision, succeeded bigint, failed bigint, retrying bigint, cancelled bigint,
  mean_delay double precision, mean_run double precision, due bigint, running bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _step interval;
  _from timestamptz;
  _queues text[] := array[coalesce(list_activity_of.queue, '')];
begin
  if since is null or since not between interval '1 minute' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'since must be between 1 minute and 1 day';
  elsif step is null or step not between interval '1 minute' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'step must be between 1 minute and 1 day';
  end if;
  -- In seconds: date_bin refuses months, also those that negative days outweigh.
  _step := greatest(make_interval(secs => extract(epoch from step)), interval '5 minutes');
  _from := date_bin(_step, queues.clock() - since, '2000-01-01 00:00:00+00');
  if list_activity_of.queue is null and list_activity_of.type is not null then
    -- All queues in which tasks of the type ran, found with one look into the index for each queue.
    _queues := array(
      with recursive known(queue) as (
        select min(a.queue) from queues.activity a where a.queue > ''
        union all
        select (select min(a.queue) from queues.activity a where a.queue > k.queue) from known k
        where k.queue is not null)
      select k.queue from known k where k.queue is not null);
  end if;
  return query
  select date_bin(_step, c.at, '2000-01-01 00:00:00+00'),
    greatest(1, extract(epoch from least(date_bin(_step, c.at, '2000-01-01 00:00:00+00') + _step, queues.clock())
      - date_bin(_step, c.at, '2000-01-01 00:00:00+00')))::double precision,
    sum(c.succeeded)::bigint, sum(c.failed)::bigint, sum(c.retrying)::bigint, sum(c.cancelled)::bigint,
    sum(c.delay_seconds) / nullif(sum(c.succeeded + c.failed + c.retrying + c.cancelled), 0)::double precision,
    sum(c.run_seconds) / nullif(sum(c.succeeded + c.failed + c.retrying + c.cancelled), 0)::double precision,
    (array_agg(c.due order by c.at desc) filter (where c.due is not null))[1],
    (array_agg(c.running order by c.at desc) filter (where c.running is not null))[1]
  from unnest(_queues) q(queue)
  cross join lateral (
    select a.* from queues.activity a
    where a.queue = q.queue and a.type = coalesce(list_activity_of.type, '') and a.at >= _from offset 0) c
  group by 1 order by 1;
end
$$;

-- Returns the types with the most activity ("busiest"), with the longest run time ("slowest") and with the most failed
-- attempts ("failing"), up to max_types of each, the first first: how many attempts ended how, and how long they ran on
-- average. Reads at most 200,000 rows of queues.activity, the newest first, so with thousands of types that are always
-- active it counts a shorter time.
-- For holdfast_reader. Locks: none.
create or replace function queues.rank_types(
  since interval default '1 hour', of_queue text default null, max_types integer default 10)
returns table (
  ranking text, queue text, type text, succeeded bigint, failed bigint, retrying bigint, cancelled bigint,
  mean_seconds double precision)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _from timestamptz;
begin
  if since is null or since not between interval '1 minute' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'since must be between 1 minute and 1 day';
  end if;
  perform queues.check_number('max_types', max_types, 1, 1000);
  _from := date_bin('5 minutes', queues.clock() - since, '2000-01-01 00:00:00+00');
  return query
  with types as materialized (
    select a.queue, a.type, sum(a.succeeded)::bigint as succeeded, sum(a.failed)::bigint as failed,
      sum(a.retrying)::bigint as retrying, sum(a.cancelled)::bigint as cancelled, sum(a.run_seconds) as run_seconds,
      sum(a.succeeded + a.failed + a.retrying + a.cancelled)::bigint as ended
    from (select * from queues.activity a where a.at >= _from order by a.at desc limit 200000) a
    where a.type > '' and (of_queue is null or a.queue = of_queue)
    group by 1, 2)
  select r.ranking, r.queue, r.type, r.succeeded, r.failed, r.retrying, r.cancelled, r.run_seconds / r.ended
  from (values (1, 'busiest'), (2, 'slowest'), (3, 'failing')) k(place, ranking)
  cross join lateral (
    select k.ranking, t.*, row_number() over (order by o.rank desc, t.queue, t.type) as n
    from types t
    cross join lateral (
      select case k.place when 1 then t.ended::double precision when 2 then t.run_seconds / nullif(t.ended, 0)
        else (t.failed + t.retrying)::double precision end as rank) o
    where t.ended > 0 and (k.place <> 3 or t.failed + t.retrying > 0)) r
  where r.n <= max_types
  order by k.place, r.n;
end
$$;

-- Adds what a worker has counted since its last report: [{"queue", "type", "succeeded", "failed", "cancelled",
-- "retrying", "run_seconds", "delay_seconds"}]. The time is that of the report. A type that no worker has declared
-- counts for its queue only, and a queue without lanes and declared types for the total only, so that a worker cannot
-- make the table grow without bound.
-- For holdfast_worker. Locks: the rows of these five minutes, in the order of their key; other reports hold them for a
-- moment.
create or replace function queues.record_activity(activity jsonb)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('activity', activity);
begin
  if exists (
    select from jsonb_to_recordset(activity) as g(succeeded bigint, failed bigint, cancelled bigint, retrying bigint,
      run_seconds double precision, delay_seconds double precision)
    where least(g.succeeded, g.failed, g.cancelled, g.retrying) < 0
      or greatest(g.succeeded, g.failed, g.cancelled, g.retrying) > 1000000000
      or not coalesce(g.run_seconds, 0) between 0 and 1e12 or not coalesce(g.delay_seconds, 0) between 0 and 1e12)
  then
    raise exception using errcode = 'QF400',
      message = 'an element of activity has counts that are not numbers between 0 and a billion';
  end if;

  insert into queues.activity as a (at, queue, type, succeeded, failed, cancelled, retrying, run_seconds,
    delay_seconds)
  with given as (
    select g.*, exists (select from queues.lane l where l.queue = g.queue)
        or exists (select from queues.task_type d where d.queue = g.queue) as known_queue,
      exists (select from queues.task_type d where d.type = g.type) as known_type
    from jsonb_to_recordset(activity) as g(queue text, type text, succeeded bigint, failed bigint, cancelled bigint,
      retrying bigint, run_seconds double precision, delay_seconds double precision))
  select date_bin('5 minutes', queues.clock(), '2000-01-01 00:00:00+00'), k.queue, k.type,
    coalesce(sum(g.succeeded), 0), coalesce(sum(g.failed), 0), coalesce(sum(g.cancelled), 0),
    coalesce(sum(g.retrying), 0), coalesce(sum(g.run_seconds), 0), coalesce(sum(g.delay_seconds), 0)
  from given g
  cross join lateral (
    select g.queue, g.type where g.known_queue and g.known_type
    union all select g.queue, '' where g.known_queue
    union all select '', '') k(queue, type)
  group by k.queue, k.type order by k.queue, k.type
  on conflict (queue, type, at) do update
  set succeeded = a.succeeded + excluded.succeeded, failed = a.failed + excluded.failed,
    cancelled = a.cancelled + excluded.cancelled, retrying = a.retrying + excluded.retrying,
    run_seconds = a.run_seconds + excluded.run_seconds, delay_seconds = a.delay_seconds + excluded.delay_seconds;
end
$$;

-- Takes a sample, unless there is one of the same ten seconds, and returns whether it did. Counts the waiting and the
-- running tasks, in all and per queue and type, only if asked, because that reads all of them, and for at most a
-- fiftieth of the time: after a count that took a second, the next one is fifty seconds later. Deletes samples older
-- than two days and activity older than 25 hours. Corrects ids of transactions that another cluster has given, from
-- which the database was restored.
-- For holdfast_worker and holdfast_operator. Locks: activity of these five minutes, in the order of its key; the row of
-- queues.event_order; old samples and activity, skipping those that other transactions hold.
create or replace function queues.take_sample(count_tasks boolean default true)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _taken_at constant timestamptz := date_bin('10 seconds', _now, '2000-01-01 00:00:00+00');
  _counts boolean := coalesce(count_tasks, true);
  _counting_since timestamptz;
  _counting interval;
  _due bigint;
  _scheduled bigint;
  _running bigint;
  _delays double precision[];
  _next constant bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  if _counts then
    _counts := coalesce((
      select s.taken_at + 50 * s.counting <= _taken_at
      from queues.sample s where s.counting is not null order by s.taken_at desc limit 1), true);
  end if;
  if exists (select from queues.sample s where s.taken_at = _taken_at and (s.due is not null or not _counts)) then
    return false;
  end if;
  if _counts then
    _counting_since := clock_timestamp();
    -- One pass over the waiting and one over the running tasks.
    with counted as (
      select r.lane_id, count(*) filter (where r.run_at <= _now) as due, count(*) as waiting, 0::bigint as running
      from queues.ready r group by r.lane_id
      union all
      select l.lane_id, 0, 0, count(*) from queues.lease l group by l.lane_id),
    per_lane as (
      select l.queue, l.type, c.due, c.waiting, c.running from counted c left join queues.lane l using (lane_id)),
    kept as (
      insert into queues.activity as a (at, queue, type, due, running)
      select date_bin('5 minutes', _now, '2000-01-01 00:00:00+00'), k.queue, k.type, k.due, k.running
      from (
        select c.queue, case grouping(c.type) when 0 then c.type else '' end as type, sum(c.due) as due,
          sum(c.running) as running
        from per_lane c where c.queue is not null
        group by grouping sets ((c.queue, c.type), (c.queue)) having grouping(c.type) = 1 or c.type <> '') k
      where k.due > 0 or k.running > 0
      order by k.queue, k.type
      on conflict (queue, type, at) do update set due = excluded.due, running = excluded.running)
    select coalesce(sum(c.due), 0), coalesce(sum(c.waiting - c.due), 0), coalesce(sum(c.running), 0)
    into _due, _scheduled, _running from counted c;
    -- Only the newest tasks: there is no index by the time of a claim, because every claim would have to maintain it.
    select percentile_disc(array[0.5, 0.99])
      within group (order by extract(epoch from held.claimed_at - newest.run_at))
    into _delays
    from (select t.task_id, t.run_at from queues.task t order by t.task_id desc limit 1000) newest
    cross join lateral (
      select l.claimed_at from queues.lease l where l.task_id = newest.task_id and l.attempt = 1
      union all
      select o.claimed_at from queues.outcome o where o.task_id = newest.task_id and o.attempt = 1) held
    where held.claimed_at > _now - interval '5 minutes' and held.claimed_at >= newest.run_at;
    _counting := clock_timestamp() - _counting_since;
  end if;

  insert into queues.sample as s (taken_at, transaction_id, bytes, enqueued_total, finished_total, errors_total,
    due, scheduled, running, delay_p50, delay_p99, counting)
  values (_taken_at, pg_current_xact_id(), queues.total_bytes(), queues.count_inserted('queues.task'),
    queues.count_inserted('queues.outcome'), queues.count_inserted('queues.error'),
    _due, _scheduled, _running, _delays[1], _delays[2], _counting)
  on conflict (taken_at) do update
  set due = excluded.due, scheduled = excluded.scheduled, running = excluded.running,
    delay_p50 = excluded.delay_p50, delay_p99 = excluded.delay_p99, counting = excluded.counting
  where s.due is null and excluded.due is not null;
  if not found then
    return false;
  end if;
  perform queues.record_event_order();
  -- Clearly in the future: a lane may name a transaction that is about to begin.
  update queues.sample s set transaction_id = '3' where s.transaction_id > (_next + 1000)::text::xid8;
  update queues.lane l set leaving = null where abs(l.leaving) > _next + 1000;
  delete from queues.sample s
  where s.taken_at in (
    select o.taken_at from queues.sample o where o.taken_at < _now - interval '2 days'
    order by o.taken_at limit 100 for update skip locked);
  delete from queues.activity a
  where (a.queue, a.type, a.at) in (
    select o.queue, o.type, o.at from queues.activity o where o.at < _now - interval '25 hours'
    order by o.at limit 10000 for update skip locked);
  return true;
end
$$;

-- Returns how many rows were inserted into a table, including partitions, since the statistics began. Costs almost
-- nothing.
create or replace function queues.count_inserted(name regclass)
returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(sum(pg_stat_get_tuples_inserted(part.relid)), 0)::bigint
  from (select name::oid as relid union select tree.relid from pg_partition_tree(name) tree) part
$$;

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
  perform queues.check_number('max_groups', max_groups, 1, 1000);
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
