-- Records that the code of this type asks ctx.since for these names. Only the first time counts.
-- For holdfast_worker. Locks: none; waits for a transaction that records the same name.
create or replace function queues.record_changes(type text, names text[])
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if type is null or cardinality(names) > 1000 or exists (select from unnest(names) n(name)
    where length(n.name) > 200) then
    raise exception using errcode = 'QF400',
      message = 'names must be at most 1000 texts of at most 200 characters, of one type';
  end if;
  insert into queues.change (type, name, first_seen_at)
  select record_changes.type, n.name, queues.clock() from unnest(names) n(name) where n.name is not null order by n.name
  on conflict do nothing;
end
$$;

comment on function queues.record_changes(text, text[]) is
  'Records that the code of this type asks ctx.since for these names. Only the first time counts.';
