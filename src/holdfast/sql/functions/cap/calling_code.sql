-- Returns the calling code of a telephone number in E.164 form: +49 for +4915112345678. Codes have one, two or three
-- digits, and none is a prefix of another.
create or replace function comms.calling_code(number text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when number ~ '^\+[17]' then left(number, 2)
    when number ~ '^\+(2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58])' then left(number, 3)
    else left(number, 4) end
$$;

comment on function comms.calling_code(text) is
  'Returns the calling code of a telephone number in E.164 form: +49 for +4915112345678.';
