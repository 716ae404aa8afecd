-- Returns true if type and payload are certainly valid: an ordinary name, and a document that Python and JavaScript can
-- read, that is not too long and that names no executor. Other tasks get the full check (check_task). The text is that
-- of the payload, or null if it may be too long to render. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.is_simple_task(type text, payload jsonb, payload_text text, max_bytes bigint)
returns boolean
language sql stable parallel safe
as $$
  select type ~ '^[A-Za-z0-9_-]+(?:[.:][A-Za-z0-9_-]+)*$' and pg_catalog.octet_length(type) <= 200
    and payload_text <> 'null' and not payload ? 'task_type' and pg_catalog.octet_length(payload_text) <= max_bytes
    -- 65 levels take more than 500 bytes, and an unreadable number more than 308 digits.
    and (pg_catalog.pg_column_size(payload) <= 500
      or not pg_catalog.jsonb_path_exists(payload, 'strict $.**{65 to last}'))
    and (pg_catalog.octet_length(payload_text) <= 308 or payload_text !~ '[0-9]{60}')
$$;

comment on function queues.is_simple_task(text, jsonb, text, bigint) is
  'Returns true if the type and the payload of a task are certainly valid, and the payload names no executor.';
