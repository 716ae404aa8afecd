-- Extends a valid token and returns whether it is still valid. This allows tokens with a short life that their holder
-- renews. A login can only renew tokens that it could create.
-- For holdfast_operator. Locks: the token's row.
create or replace function queues.renew_token(token_id bigint, ttl interval)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  if ttl is null or ttl not between interval '1 minute' and interval '10 years' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 minute and 10 years';
  end if;
  update queues.access_token t set expires_at = greatest(t.expires_at, _now + ttl)
  where t.token_id = renew_token.token_id and t.revoked_at is null and t.expires_at > _now
    and (not t.scopes && array['enqueue', 'admin'] or queues.has_role('client'));
  return found;
end
$$;

comment on function queues.renew_token(bigint, interval) is
  'Extends a valid token and returns whether it is still valid.';
