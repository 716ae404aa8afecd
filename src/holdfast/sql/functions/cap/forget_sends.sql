-- Removes a few expired counts and reservations. Skips rows that another session holds; the next call removes them.
create or replace function comms.forget_sends(now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  delete from comms.send_reservation r where r.idempotency_key in (
    select old.idempotency_key from comms.send_reservation old where old.reserved_at < forget_sends.now - interval '2 days'
    order by old.reserved_at limit 10 for update skip locked);
  delete from comms.send_count k where (k.channel, k.scope, k.period, k.subject) in (
    select old.channel, old.scope, old.period, old.subject from comms.send_count old where old.ends_at < forget_sends.now
    order by old.ends_at limit 10 for update skip locked);
end
$$;

comment on function comms.forget_sends(timestamptz) is 'Removes a few expired counts and reservations.';
