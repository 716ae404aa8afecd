-- Revokes a token, ends its sessions, and returns whether it was valid until now.
-- For holdfast_operator. Locks: the token's row, then its sessions.
create or replace function queues.revoke_token(token_id bigint, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  update queues.access_token t set revoked_at = _now, revoked_by = queues.actor()
  where t.token_id = revoke_token.token_id and t.revoked_at is null;
  if not found then
    if not exists (select from queues.access_token t where t.token_id = revoke_token.token_id) then
      raise exception using errcode = 'QF404',
        message = format('there is no access token %s', coalesce(token_id::text, 'null')),
        hint = 'holdfast tokens list shows the existing ones.';
    end if;
    return false;
  end if;
  delete from queues.access_session s where s.token_id = revoke_token.token_id;
  insert into queues.access_act (act, occurred_at, actor, token_id, reason)
  values ('token_revoked', _now, queues.actor(), token_id, left(reason, 2000));
  return true;
end
$$;

comment on function queues.revoke_token(bigint, text) is
  'Revokes a token, ends its sessions, and returns whether it was valid until now.';
