-- Locks the subscription of that name and returns its id; raises an error if there is none.
create or replace function queues.find_subscription(name text)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _subscription_id integer;
begin
  select s.subscription_id into _subscription_id from queues.subscription s
  where s.name = find_subscription.name and s.removed_at is null for update;
  if not found then
    raise exception using errcode = 'QF404',
      message = format('there is no subscription %s', coalesce(to_json(name)::text, 'null')),
      hint = 'holdfast events list shows the existing ones.';
  end if;
  return _subscription_id;
end
$$;

comment on function queues.find_subscription(text) is
  'Locks the subscription of that name and returns its id; raises an error if there is none.';
