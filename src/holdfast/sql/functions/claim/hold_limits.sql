-- Lets one claim at a time count what runs under a limit: returns those of these rows of queues.limit_lock that are ours until the
-- transaction ends. Never waits long: a claim that does not get one finds nothing there and comes again soon. Behind lock_within_limits.
create or replace function queues.hold_limits(locks integer[])
returns integer[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _held integer[];
begin
  -- An older snapshot would not show what others have claimed since.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF412',
      message = format('limits can be kept only under read committed, and this transaction is %s', current_setting('transaction_isolation')),
      hint = 'Claim in a transaction of its own, with the default isolation level.';
  end if;
  for _try in 1..10 loop
    _held := array(select k.number from queues.limit_lock k where k.number = any (locks) for update skip locked);
    exit when cardinality(_held) = cardinality(locks);
    perform pg_sleep(0.001);
  end loop;
  return _held;
end
$$;

comment on function queues.hold_limits(integer[]) is
  'Lets one claim at a time count what runs under a limit: returns those of these rows of queues.limit_lock that are ours.';
