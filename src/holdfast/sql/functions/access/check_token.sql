-- Returns the owner and the scopes of a token; no row if it is unknown, expired or revoked.
-- For holdfast_operator. Locks: the token's row, at most once a minute, without waiting.
create or replace function queues.check_token(token_hash bytea)
returns table (token_id bigint, name text, scopes text[], expires_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  update queues.access_token t set last_used_at = _now
  where t.token_id in (
    select u.token_id from queues.access_token u
    where u.token_hash = check_token.token_hash and coalesce(u.last_used_at, '-infinity') < _now - interval '1 minute'
      and u.revoked_at is null and u.expires_at > _now
    for no key update skip locked);
  return query
  select t.token_id, t.name, t.scopes, t.expires_at from queues.access_token t
  where t.token_hash = check_token.token_hash and t.revoked_at is null and t.expires_at > _now;
end
$$;

comment on function queues.check_token(bytea) is
  'Returns the owner and the scopes of a token; no row if it is unknown, expired or revoked.';
