-- Whether tasks of a login wait in more lanes than one login may use.
create or replace function queues.hoards_lanes(login text)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from (values ('max_lanes', true), ('max_keyed_lanes', false)) kind(setting, without_key)
    join queues.setting s on s.name = kind.setting
    where (select count(*) from (
        select from queues.lane l where l.made_by = hoards_lanes.login and (l.concurrency_key is null) = kind.without_key
        limit s.value + 1) made) > s.value
      -- Those that are idle go by themselves.
      and (select count(*) from (
        select from queues.lane l where l.made_by = hoards_lanes.login and (l.concurrency_key is null) = kind.without_key
          and exists (select from queues.ready r where r.lane_id = l.lane_id)
        limit s.value + 1) waiting) > s.value)
$$;

comment on function queues.hoards_lanes(text) is 'Whether tasks of a login wait in more lanes than one login may use.';
