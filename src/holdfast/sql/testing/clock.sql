-- A clock that tests set and advance. It replaces queues.clock() as the owner, and is never part of an installation.
create table if not exists queues.test_clock (
  only_one boolean primary key default true check (only_one),
  stands_at timestamptz,
  shifted_by interval not null default '0'
);
insert into queues.test_clock default values on conflict do nothing;

create or replace function queues.clock()
returns timestamptz
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select coalesce(c.stands_at, clock_timestamp()) + c.shifted_by from queues.test_clock c where c.only_one $$;
grant select, update on queues.test_clock to public;
grant usage on schema queues to public;
