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

comment on function queues.add_to_groups(bigint[]) is 'Adds errors to their groups.';
