-- Returns one row per health check, the worst first: its level, a number, a description, and what to do. The level is
-- green, amber or red. The cost depends neither on finished tasks nor on backlogs.
-- For holdfast_reader and holdfast_operator. Locks: none.
create or replace function queues.health()
returns setof queues.health_line
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now constant timestamptz := queues.clock();
begin
  return query
  select h.* from (
    select q.* from queues.health_of_queues(_now) q
    union all select t.* from queues.health_of_tasks(_now) t
    union all select f.* from queues.health_of_steps(_now) f
    union all select r.* from queues.health_of_runs(_now) r
    union all select w.* from queues.health_of_workers(_now) w
    union all select s.* from queues.health_of_schedules(_now) s
    union all select o.* from queues.health_of_outbox(_now) o
    union all select p.* from queues.health_of_processes(_now) p
    union all select d.* from queues.health_of_retention(_now) d
    union all select g.* from queues.health_of_roles() g
    union all select v.* from queues.health_of_server(_now) v) h
  order by array_position(array['red', 'amber', 'green'], h.level), h.check_name, h.value desc nulls last, h.subject;
end
$$;

comment on function queues.health() is
  'Returns one row per health check, the worst first: its level, a number, a description, and what to do.';
