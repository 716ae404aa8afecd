-- Waits until no claim counts this limit, for five seconds at most, and keeps claims from it until the transaction ends.
-- Behind set_limit and drop_limit. Locks: the row of queues.limit_lock.
create or replace function queues.hold_limit(subject text, name text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  _lock constant integer := queues.limit_lock_of(subject, name);
begin
  perform from queues.limit_lock k where k.number = _lock for update;
exception when lock_not_available then
  raise exception using errcode = 'QF503',
    message = format('the limit of %s %s cannot be changed now: %s', subject, name,
      coalesce(queues.explain_limit_lock(_lock, queues.clock()), 'others claim under it')),
    hint = 'Try again once that transaction has ended.';
end
$$;

comment on function queues.hold_limit(text, text) is 'Waits until no claim counts this limit, and keeps claims from it until the transaction ends.';
