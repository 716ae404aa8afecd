-- Returns the SHA-256 of the canonical spec {type, executor, payload}: the same from every client. jsonb normalizes
-- keys, white space and escapes. Writes the text of jsonb_build_object('type', …, 'executor', …, 'payload', …) in a
-- quarter of the time. Not stored, because it is rarely needed. Stable, because to_json is, and without a pinned path,
-- so that PostgreSQL can inline it.
create or replace function queues.spec_hash(type text, executor text, payload jsonb)
returns bytea
language sql stable parallel safe
as $$
  select pg_catalog.sha256(pg_catalog.convert_to(
    '{"type": ' || pg_catalog.to_json(type)::text || ', "payload": ' || payload::text
    || ', "executor": ' || pg_catalog.to_json(executor)::text || '}', 'UTF8'))
$$;

comment on function queues.spec_hash(text, text, jsonb) is
  'Returns the SHA-256 of the canonical spec {type, executor, payload}: the same from every client.';
