-- Web access: tokens, and sessions of the dashboard.

-- section: tables
-- Access to the HTTP server: tokens, and sessions of the dashboard.

-- Contains only hashes of secrets.
create table queues.access_token (
  token_id bigint generated always as identity constraint access_token_pkey primary key,
  name text not null,
  namespace text collate "C" not null,
  token_hash bytea not null constraint one_token_per_hash unique,
  scopes text[] not null constraint known_scopes check (
    scopes <> '{}' and scopes <@ array['enqueue', 'read', 'operate', 'admin']),
  created_at timestamptz not null,
  created_by text not null,
  expires_at timestamptz not null,
  last_used_at timestamptz,
  revoked_at timestamptz,
  revoked_by text
);
comment on table queues.access_token is
  'Access tokens of the HTTP server, with scopes and expiry. Never removed, so that acts keep a name.';
comment on column queues.access_token.namespace is 'The namespace of tasks that are enqueued with it.';
comment on column queues.access_token.token_hash is 'SHA-256 of the token; only its holder knows the token.';

create table queues.access_session (
  session_hash bytea constraint access_session_pkey primary key,
  token_id bigint not null,
  opened_at timestamptz not null,
  last_seen_at timestamptz not null,
  expires_at timestamptz not null
);
comment on table queues.access_session is
  'Sessions of the dashboard, each with its token. A session ends with its token.';

-- section: functions
-- Access tokens and sessions of the HTTP server, and what is done with them.
-- Invariant: only hashes of secrets are stored, and a session of the dashboard is valid no longer than its token. No
-- login can create or renew a token that allows what the login itself may not do.
-- Lock order: the row of a token, then its sessions. Checks write the time of the last use at most once a minute, and
-- skip the row if it is locked; only the acts on one token or session wait.
-- At the same time: a session may be opened while its token is revoked, and outlive the deletion of the others. That is
-- harmless, because each check of a session reads the token as well.

-- Returns the owner and the scopes of a session; no row if it is unknown or expired, or if its token is.
-- For holdfast_operator. Locks: the session's row, at most once a minute, without waiting.
create or replace function queues.check_session(session_hash bytea)
returns table (token_id bigint, name text, scopes text[], expires_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  update queues.access_session s set last_seen_at = _now
  where s.session_hash in (
    select e.session_hash from queues.access_session e
    where e.session_hash = check_session.session_hash and e.last_seen_at < _now - interval '1 minute'
    for no key update skip locked);
  return query
  select t.token_id, t.name, t.scopes, least(s.expires_at, t.expires_at)
  from queues.access_session s join queues.access_token t on t.token_id = s.token_id
  where s.session_hash = check_session.session_hash and s.expires_at > _now and t.revoked_at is null
    and t.expires_at > _now;
end
$$;

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

-- Ends a session and returns whether it existed.
-- For holdfast_operator. Locks: the session's row.
create or replace function queues.close_session(session_hash bytea)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _token_id bigint;
begin
  delete from queues.access_session s where s.session_hash = close_session.session_hash
  returning s.token_id into _token_id;
  if not found then
    return false;
  end if;
  insert into queues.access_act (act, occurred_at, actor, token_id)
  select 'logged_out', queues.clock(), session_user || ' for ' || t.name, _token_id
  from queues.access_token t where t.token_id = _token_id;
  return true;
end
$$;

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

-- Opens a session with a token, by the hash of the session. Returns the same row as check_token; no row if the token is
-- invalid. A session ends with its token.
-- For holdfast_operator. Locks: expired sessions, skipping those that other transactions remove.
create or replace function queues.open_session(
  token_hash bytea, session_hash bytea, ttl interval default '12 hours', address text default null)
returns table (token_id bigint, name text, scopes text[], expires_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _token record;
begin
  if session_hash is null or length(session_hash) <> 32 then
    raise exception using errcode = 'QF400', message = 'session_hash must be a SHA-256 of 32 bytes';
  elsif ttl is null or ttl not between interval '1 minute' and interval '30 days' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 minute and 30 days';
  end if;
  delete from queues.access_session s
  where s.session_hash in (
    select e.session_hash from queues.access_session e where e.expires_at < _now limit 100 for update skip locked);
  select c.* into _token from queues.check_token(token_hash) c;
  if not found then
    insert into queues.access_act (act, occurred_at, actor, address)
    values ('login_refused', _now, queues.actor(), left(address, 200));
    return;
  end if;
  insert into queues.access_session (session_hash, token_id, opened_at, last_seen_at, expires_at)
  values (session_hash, _token.token_id, _now, _now, _now + ttl);  -- check_session also checks the token's expiry
  insert into queues.access_act (act, occurred_at, actor, token_id, address)
  values ('logged_in', _now, session_user || ' for ' || _token.name, _token.token_id, left(address, 200));
  return query select _token.token_id, _token.name, _token.scopes, least(_now + ttl, _token.expires_at);
end
$$;

-- Records who is about to see the hidden values of a task or of a message of the mailbox; without either, those of all
-- tasks, for a while. The reason is required.
-- For holdfast_operator. Locks: none.
create or replace function queues.record_reveal(
  task_id uuid default null, reason text default null, address text default null,
  mailbox_message_id bigint default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if coalesce(btrim(reason), '') = '' then
    raise exception using errcode = 'QF400', message = 'a reason is required to see hidden values',
      hint = 'It is recorded with the name of the caller.';
  elsif num_nonnulls(task_id, mailbox_message_id) > 1 then
    raise exception using errcode = 'QF400', message = 'give either task_id or mailbox_message_id, not both';
  elsif task_id is not null then
    perform queues.check_task_owner(task_id);
  elsif mailbox_message_id is not null and not queues.is_in_mailbox(mailbox_message_id) then
    raise exception using errcode = 'QF404',
      message = format('there is no message %s in the mailbox', mailbox_message_id),
      hint = 'The mailbox keeps the newest messages only.';
  end if;
  insert into queues.access_act (act, occurred_at, actor, task_id, mailbox_message_id, address, reason)
  values ('revealed', queues.clock(), queues.actor(), task_id, mailbox_message_id, left(address, 200),
    left(reason, 2000));
end
$$;

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

-- Enqueues a batch in the namespace of an access token. For a server that acts for the holders of many tokens. The hash
-- proves that the token was presented: no role can read it. As in enqueue_for_client, only executors that act with the
-- rights of the worker are allowed.
-- For holdfast_client. Locks: the keys.
create or replace function queues.enqueue_for_token(token_hash bytea, tasks jsonb)
returns table (task_id uuid, created boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespace text;
begin
  select t.namespace into _namespace from queues.access_token t
  where t.token_hash = enqueue_for_token.token_hash and t.scopes && array['enqueue', 'admin']
    and t.revoked_at is null and t.expires_at > queues.clock();
  if not found then
    raise exception using errcode = 'QF403',
      message = 'this access token may not enqueue: it is unknown, expired or revoked, or it lacks the scope enqueue',
      hint = 'holdfast tokens create NAME --scope enqueue';
  end if;
  return query
  select i.task_id, i.created from queues.insert_tasks(tasks, for_process => false, namespace => _namespace) i;
end
$$;

-- Returns the tokens, as a document for take_shard_tokens.
-- Internal: called by shard_settings.
create or replace function queues.shard_tokens()
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select coalesce(jsonb_agg(to_jsonb(t)), '[]') from queues.access_token t $$;

-- Replaces the tokens by those of the first shard, which numbers tokens for all of them.
-- Internal: called by take_shard_settings. Locks: the tokens.
create or replace function queues.take_shard_tokens(tokens jsonb)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from queues.access_token;
  insert into queues.access_token overriding system value
  select t.* from jsonb_populate_recordset(null::queues.access_token, tokens) t;
end
$$;

-- section: views
-- What people read about access to the HTTP server.

-- The access tokens of the HTTP server, without their hashes.
create or replace view queues.access_token_status with (security_barrier) as
select t.token_id, t.name, t.namespace, t.scopes, t.created_at, t.created_by, t.expires_at, t.last_used_at,
  t.revoked_at, t.revoked_by, t.revoked_at is null and t.expires_at > queues.clock() as good,
  (select pg_catalog.count(*) from queues.access_session s
   where s.token_id = t.token_id and least(s.expires_at, t.expires_at) > queues.clock()) as sessions
from queues.access_token t;

-- The valid tokens of each namespace. Internal: part of namespace_member.
create or replace view queues.namespace_token as
select t.namespace, t.name, t.created_at as added_at, t.created_by as added_by
from queues.access_token t where t.revoked_at is null and t.expires_at > queues.clock();

-- section: grants
-- The HTTP server. Its login is a member of holdfast_operator, and of holdfast_client if it enqueues tasks.
grant execute on function
  queues.create_token, queues.renew_token, queues.revoke_token, queues.check_token, queues.open_session,
  queues.check_session, queues.close_session, queues.record_reveal
to holdfast_operator;
grant execute on function queues.enqueue_for_token to holdfast_client;
grant select on queues.access_token_status to holdfast_operator;

-- section: facts
-- What should be the same on every shard, as text. Tokens are compared by what they allow.
select 'access token' as what, pg_catalog.format('token %s %s', t.token_id, t.name) as fact
from queues.access_token_status t where t.good;

-- section: functions if absent
-- What core calls in a database without web access: functions with the names of those in the unit. They find
-- nothing and do nothing.
-- Invariant: their parameters and results are those of the unit, so that each takes the place of the other.
-- Lock order: none.
-- At the same time: nothing is read or written.

-- Returns an empty document: there are no tokens.
-- Internal: called by shard_settings.
create or replace function queues.shard_tokens()
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select '[]'::jsonb $$;

-- Does nothing: there can be no tokens.
-- Internal: called by take_shard_settings.
create or replace function queues.take_shard_tokens(tokens jsonb)
returns void
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select $$;

-- section: views if absent
-- What core reads in a database without web access: a view of the same name, without rows.

-- No tokens, because there is no web access.
create or replace view queues.namespace_token as
select null::text collate "C" as namespace, null::text as name, null::timestamptz as added_at, null::text as added_by
where false;
