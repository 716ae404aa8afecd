-- Returns a document as text if it is certainly safe to convert and to read, else null. Safe means small, or of
-- moderate size with no number out of range and no deep nesting. Stable, because pg_column_size is, and without a
-- pinned path, so that PostgreSQL can inline it: it runs once per task.
create or replace function queues.safe_text(document jsonb)
returns text
language sql stable parallel safe
as $$
  select case
    -- At most 30 levels fit into 250 bytes, and an unreadable number takes more than 308 digits.
    when pg_catalog.pg_column_size(document) <= 250 then
      case when pg_catalog.octet_length(document::text) <= 308 then document::text end
    when pg_catalog.pg_column_size(document) <= 8192
      and not pg_catalog.jsonb_path_exists(document, '$.**{65 to last}')
      and not pg_catalog.jsonb_path_exists(document, '$.** ? (@.type() == "number" && (@ > 1.7976931348623157e308
        || @ < -1.7976931348623157e308 || (@ > 0 && @ < 4.9e-324) || (@ < 0 && @ > -4.9e-324)))')
    then document::text end
$$;

comment on function queues.safe_text(jsonb) is
  'Returns a document as text if it is certainly safe to convert and to read, else null.';
