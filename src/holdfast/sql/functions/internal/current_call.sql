-- Returns the call of a function of a process that this transaction is in, or null. internal.call_checked writes the
-- row before such a call and deletes it afterwards, and no role has a right on the table, so the function can neither
-- remove nor forge it. A transaction without an id has written nothing, so it is in none: this also holds on a standby.
-- Internal. Locks: nothing.
create or replace function internal.current_call()
returns internal.call
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
  _transaction_id constant xid8 := pg_current_xact_id_if_assigned();
  _call internal.call;
begin
  if _transaction_id is not null then
    select c.* into _call from internal.call c where c.transaction_id = _transaction_id;
  end if;
  return _call;
end
$$;

comment on function internal.current_call() is
  'Returns the call of a function of a process that this transaction is in, or null.';
