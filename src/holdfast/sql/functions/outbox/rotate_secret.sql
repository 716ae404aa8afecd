-- Adds a new secret, keeps a number of older ones, and returns how many there are. Events are signed with all of them,
-- until receivers know the new one.
-- For holdfast_operator. Locks: the subscription.
create or replace function queues.rotate_secret(name text, secret text, keep integer default 1)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
  _secrets text[];
begin
  if keep is null or keep not between 0 and 4 then
    raise exception using errcode = 'QF400', message = 'keep must be between 0 and 4';
  end if;
  select array[secret] || (array_remove(s.secrets, secret))[1:keep] into _secrets
  from queues.subscription s where s.subscription_id = _subscription_id;
  perform queues.check_secrets(_secrets);
  update queues.subscription s set secrets = _secrets where s.subscription_id = _subscription_id;
  return cardinality(_secrets);
end
$$;

comment on function queues.rotate_secret(text, text, integer) is
  'Adds a new secret, keeps a number of older ones, and returns how many there are.';
