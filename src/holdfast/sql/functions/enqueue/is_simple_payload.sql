-- Returns true if a payload is certainly valid: a document that Python and JavaScript can read, that is not too long
-- and that names no executor. Others get the full check (check_task). The tests of the text are chosen to be cheap. No
-- pinned path, so that PostgreSQL can inline it.
create or replace function queues.is_simple_payload(written text, payload jsonb, max_bytes bigint)
returns boolean
language sql stable parallel safe
as $$
  select (pg_catalog.starts_with(written, '{') or pg_catalog.starts_with(written, '[')) and not payload ? 'task_type'
    -- 65 levels take 130 bytes.
    and (pg_catalog.octet_length(written) < 130
      or not pg_catalog.jsonb_path_exists(payload, 'strict $.**{65 to last}'))
    and case when pg_catalog.octet_length(written) <= 300
      -- PostgreSQL writes an unreadable number with more than 308 digits.
      then pg_catalog.octet_length(payload::text) <= 308
      -- Without exponents, the spaces that PostgreSQL adds make a text longer by half at most.
      else pg_catalog.octet_length(written) <= max_bytes * 2 / 3
        and written !~ '[[,:\s][-0-9.]{25}|[[,:\s][-0-9.]+[eE]' end
$$;

comment on function queues.is_simple_payload(text, jsonb, bigint) is
  'Returns true if a payload is certainly valid and names no executor.';
