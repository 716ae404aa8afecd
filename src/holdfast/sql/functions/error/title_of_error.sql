-- Returns the first line of an error message without what differs from task to task: quoted values, e-mail addresses,
-- and every word that contains a digit, such as a number, an id, a date or an address.
-- Internal.
create or replace function queues.title_of_error(message text)
returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select left(btrim(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
    left(split_part(ltrim(message, e' \t\r\n'), e'\n', 1), 1000),
    '"(\\.|[^"\\])*"|`[^`]*`|(?<!\w)''(\\.|[^''\\])*''(?!\w)', '…', 'g'),
    '[^\s<>()\[\]{},;=…]+@[^\s<>()\[\]{},;=…]+', '#', 'g'),
    '[\w.:/+%&?@~-]*\d[\w.:/+%&?@~-]*', '#', 'g'),
    '#([\s,;]+#)+', '#', 'g'),
    '\s+', ' ', 'g')), 200)
$$;

comment on function queues.title_of_error(text) is
  'Returns the first line of an error message without what differs from task to task.';
