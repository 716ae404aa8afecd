-- Locks rows of queues.limit_lock until the transaction ends, and returns those that it got. One claim at a time may
-- count the tasks under a limit or of a concurrency key. Tries as often as given, a millisecond apart; a claim that
-- does not get a lock skips the tasks and tries again soon.
-- Internal: called by lock_within_limits.
create or replace function queues.hold_limits(locks integer[], tries integer)
returns integer[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _held integer[];
begin
  -- An older snapshot would not show what other sessions have claimed since.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF412',
      message = format('limits can be enforced only under read committed, but this transaction is %s',
        current_setting('transaction_isolation')),
      hint = 'Claim in a separate transaction, with the default isolation level.';
  end if;
  for _try in 1..tries loop
    _held := array(select k.number from queues.limit_lock k where k.number = any (locks) for update skip locked);
    exit when cardinality(_held) = cardinality(locks) or _try = tries;
    perform pg_sleep(0.001);
  end loop;
  return _held;
end
$$;

comment on function queues.hold_limits(integer[], integer) is
  'Locks rows of queues.limit_lock until the transaction ends, and returns those that it got.';
