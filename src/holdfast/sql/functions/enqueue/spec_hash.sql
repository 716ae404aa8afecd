-- SHA-256 of the canonical spec: the same from every client, because jsonb brings keys, white space and escapes
-- into one form. Stable, because to_json is, and without a pinned path, so that it is inlined.
create or replace function queues.spec_hash(type text, executor text, payload jsonb)
returns bytea
language sql stable parallel safe
as $$ select queues.spec_hash_of_text(type, executor, payload::text) $$;

comment on function queues.spec_hash(text, text, jsonb) is
  'SHA-256 of the canonical spec {type, executor, payload}: the same from every client.';
