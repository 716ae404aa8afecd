-- Removes a retention policy and returns whether it existed. The policy of the next shorter prefix then applies;
-- without one, everything is kept.
-- For holdfast_operator. Locks: the policy's row.
create or replace function queues.drop_retention(status text, type_prefix text default '')
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_retention(status);
  delete from queues.retention r
  where r.status = drop_retention.status and r.type_prefix = drop_retention.type_prefix;
  return found;
end
$$;

comment on function queues.drop_retention(text, text) is 'Removes a retention policy and returns whether it existed.';
