-- Lets one claim at a time count what runs under these limits; says whether it is ours until the transaction ends. Never waits long:
-- a claim that does not get it finds nothing there and comes again soon. Behind lock_within_limits.
create or replace function queues.hold_limits(covers text[])
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _cover text;
  _tries integer := 0;
begin
  -- An older snapshot would not show what others have claimed since.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF412',
      message = format('limits can be kept only under read committed, and this transaction is %s', current_setting('transaction_isolation')),
      hint = 'Claim in a transaction of its own, with the default isolation level.';
  end if;
  foreach _cover in array covers loop
    while not pg_try_advisory_xact_lock(hashtextextended('holdfast limit ' || _cover, 0)) loop
      _tries := _tries + 1;
      if _tries > 10 then
        return false;
      end if;
      perform pg_sleep(0.001);
    end loop;
  end loop;
  return true;
end
$$;

comment on function queues.hold_limits(text[]) is
  'Lets one claim at a time count what runs under these limits; says whether it is ours until the transaction ends.';
