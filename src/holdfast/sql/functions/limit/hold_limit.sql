-- Locks a limit against claims until the transaction ends, waiting for at most about five seconds.
-- Internal: called by set_limit and drop_limit. Locks: the row of queues.limit_lock.
create or replace function queues.hold_limit(subject text, name text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lock constant integer := queues.limit_lock_of(subject, name);
begin
  for _try in 1..500 loop
    perform from queues.limit_lock k where k.number = _lock for update skip locked;
    if found then
      return;
    end if;
    perform pg_sleep(0.01);
  end loop;
  raise exception using errcode = 'QF503',
    message = format('the limit of %s %s cannot be changed now: %s', subject, name,
      coalesce(queues.explain_limit_lock(_lock, queues.clock()), 'others claim under it')),
    hint = 'Try again once that transaction has ended.';
end
$$;

comment on function queues.hold_limit(text, text) is
  'Locks a limit against claims until the transaction ends, waiting for at most about five seconds.';
