-- Refuses lanes beyond what one login may use at once: every claim of a queue looks at each of its lanes. To count them takes time, so it
-- is done for one new lane in 64, and for each once a login has too many. Behind enqueue, after it has made lanes.
create or replace function queues.check_lanes(made integer, login text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _known constant boolean := exists (select from queues.lane_hoarder h where h.login = check_lanes.login);
begin
  if not _known and random() * 64 >= made or not queues.hoards_lanes(login) then
    return;
  elsif made < 64 and not _known then
    insert into queues.lane_hoarder (login, noticed_at) values (login, queues.clock());
    return;
  end if;
  raise exception using errcode = 'QF429',
    message = format('tasks of login %s wait in too many combinations of queue, type, priority and concurrency key', login),
    hint = 'Use fewer types and priorities, enqueue later, or raise max_lanes or max_keyed_lanes in queues.setting.';
end
$$;

comment on function queues.check_lanes(integer, text) is 'Refuses lanes beyond what one login may use at once.';
