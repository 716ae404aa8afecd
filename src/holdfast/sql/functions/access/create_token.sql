-- Stores an access token for HTTP by its hash and returns its number. A login cannot grant more than it has: enqueue
-- requires holdfast_client, admin requires both roles. Tasks that are enqueued with the token belong to its namespace:
-- by default its own, which tokens of the same name share. With shards, a front creates the token on the first one and
-- gives its number to the others, so that it can be checked and revoked on all of them.
-- For holdfast_operator. Locks: none.
create or replace function queues.create_token(name text, scopes text[], token_hash bytea,
  ttl interval default '90 days', namespace text default null, token_id bigint default null)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _token_id bigint;
  _is_first constant boolean := queues.is_first_shard();
begin
  if _is_first <> (token_id is null) then
    raise exception using errcode = 'QF400',
      message = 'token_id is given on every shard but the first, which gives the token its number',
      hint = 'Create the token through a front.';
  end if;
  if name is null or length(name) not between 1 and 100 or name ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' then
    raise exception using errcode = 'QF400', message = 'name must be 1 to 100 characters on one line';
  elsif scopes is null or scopes = '{}' or not scopes <@ array['enqueue', 'read', 'operate', 'admin'] then
    raise exception using errcode = 'QF400',
      message = format('scopes %s is empty or contains an unknown scope', coalesce(to_json(scopes)::text, 'null')),
      hint = 'Allowed: enqueue, read, operate, admin.';
  elsif token_hash is null or length(token_hash) <> 32 then
    raise exception using errcode = 'QF400', message = 'token_hash must be a SHA-256 of 32 bytes';
  elsif ttl is null or ttl not between interval '1 minute' and interval '10 years' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 minute and 10 years';
  elsif scopes && array['enqueue', 'admin'] and not queues.has_role('client') then
    raise exception using errcode = 'QF403',
      message = format('login %s may not enqueue, so it cannot create a token that may', session_user),
      hint = 'Grant it holdfast_client, or omit the scope.';
  end if;
  -- Only its members and administrators may give away a namespace of logins: the holder of the token enqueues in it.
  namespace := coalesce(namespace, 'token:' || name);
  perform queues.check_namespace(namespace);
  if namespace <> queues.namespace() and not queues.has_role('owner')
    and (not starts_with(namespace, 'token:')
      or exists (select from queues.namespace_login n where n.namespace = create_token.namespace))
  then
    raise exception using errcode = 'QF403',
      message = format('login %s may not create a token for namespace %s, because it does not use that namespace',
        session_user, to_json(namespace)),
      hint = 'Omit the namespace, or ask an administrator (a member of holdfast_owner) to create the token.';
  end if;
  insert into queues.access_token as t (
    token_id, name, namespace, token_hash, scopes, created_at, created_by, expires_at)
  overriding system value
  values (coalesce(create_token.token_id, nextval(pg_get_serial_sequence('queues.access_token', 'token_id'))), name,
    namespace, token_hash, array(select distinct s from unnest(scopes) s order by s), _now, queues.actor(), _now + ttl)
  on conflict do nothing
  returning t.token_id into _token_id;
  if not found then
    raise exception using errcode = 'QF409', message = 'this token already exists';
  end if;
  insert into queues.access_act (act, occurred_at, actor, token_id)
  values ('token_created', _now, queues.actor(), _token_id);
  return _token_id;
end
$$;

comment on function queues.create_token(text, text[], bytea, interval, text, bigint) is
  'Stores an access token for HTTP by its hash and returns its number.';
