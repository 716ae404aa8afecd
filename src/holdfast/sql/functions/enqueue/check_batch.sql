-- Raises QF400 or QF413 unless the argument is an array of objects of an allowed length. Returns true, so that a
-- declaration can call it without a query.
create or replace function queues.check_batch(field text, batch jsonb)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if batch is null or jsonb_typeof(batch) <> 'array' then
    raise exception using errcode = 'QF400', message = format('%s must be an array of objects', field);
  elsif jsonb_path_exists(batch, 'strict $[*] ? (@.type() != "object")') then
    raise exception using errcode = 'QF400', message = (
      select format('%s[%s] must be an object', field, e.n - 1)
      from jsonb_array_elements(batch) with ordinality e(element, n)
      where jsonb_typeof(e.element) <> 'object' order by e.n limit 1);
  elsif jsonb_array_length(batch) > 1000 then
    return queues.check_batch_size(field, jsonb_array_length(batch));
  end if;
  return true;
end
$$;

comment on function queues.check_batch(text, jsonb) is
  'Raises QF400 or QF413 unless the argument is an array of objects of an allowed length.';
