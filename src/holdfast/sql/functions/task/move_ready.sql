-- Moves the ready rows at these places: each gets another time, another lane, or both; a null keeps what it has.
-- A move is a new row instead of an update, because claims rely on ready rows never moving. Whoever waits for the old
-- row finds it deleted: see lock_task.
-- Internal: called by every function that moves a waiting task; the caller has locked the rows.
create or replace function queues.move_ready(places tid[], run_ats timestamptz[], lanes bigint[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  with gone as (
    delete from queues.ready r where r.ctid = any (places)
    returning r.ctid as place, r.task_id, r.run_at, r.lane_id, r.attempt)
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  select g.task_id, coalesce(m.run_at, g.run_at), coalesce(m.lane_id, g.lane_id), g.attempt
  from gone g join unnest(places, run_ats, lanes) m(place, run_at, lane_id) on m.place = g.place;
end
$$;

comment on function queues.move_ready(tid[], timestamptz[], bigint[]) is
  'Moves the ready rows at these places to another time, another lane, or both.';
