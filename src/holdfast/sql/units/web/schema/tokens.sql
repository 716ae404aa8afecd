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
