-- Refuses more lanes than one namespace may use at once. A claim of a queue reads each of its lanes. Counting takes
-- time, so it is done for one in 64 new lanes, and for each once a namespace has too many.
-- Internal: called by enqueue after it has inserted lanes.
create or replace function queues.check_lanes(namespace text, made integer)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _known constant boolean := exists (select from queues.lane_hoarder h where h.namespace = check_lanes.namespace);
begin
  if not _known and random() * 64 >= made or not queues.hoards_lanes(namespace) then
    return;
  elsif made < 64 and not _known then
    insert into queues.lane_hoarder (namespace, noticed_at) values (namespace, queues.clock());
    return;
  end if;
  raise exception using errcode = 'QF429',
    message = format('tasks of namespace %s wait in too many combinations of queue, type and priority', namespace),
    hint = 'Use fewer queues, types and priorities at once, enqueue later, or raise max_lanes in queues.setting.';
end
$$;

comment on function queues.check_lanes(text, integer) is 'Refuses more lanes than one namespace may use at once.';
