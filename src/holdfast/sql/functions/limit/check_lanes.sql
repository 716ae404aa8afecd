-- Refuses more lanes than one namespace may use at once. Every claim of a queue reads each of its lanes. Counting takes
-- time, so it is done for one in 64 new lanes, and for each once a namespace has too many.
-- Internal: called by enqueue after it has inserted lanes.
create or replace function queues.check_lanes(namespace text, made integer, keyed boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _known constant boolean := exists (
    select from queues.lane_hoarder h where h.namespace = check_lanes.namespace and h.keyed = check_lanes.keyed);
begin
  if not _known and random() * 64 >= made or not queues.hoards_lanes(namespace, keyed) then
    return;
  elsif made < 64 and not _known then
    insert into queues.lane_hoarder (namespace, keyed, noticed_at) values (namespace, keyed, queues.clock());
    return;
  end if;
  raise exception using errcode = 'QF429',
    message = format('tasks of namespace %s wait in too many combinations of queue, type%s', namespace,
      case when keyed then ', priority and concurrency key' else ' and priority' end),
    hint = format('Use fewer %s at once, enqueue later, or raise %s in queues.setting.',
      case when keyed then 'concurrency keys' else 'types and priorities' end,
      case when keyed then 'max_keyed_lanes' else 'max_lanes' end);
end
$$;

comment on function queues.check_lanes(text, integer, boolean) is
  'Refuses more lanes than one namespace may use at once.';
