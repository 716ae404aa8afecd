-- The advisory lock that whoever keeps the door of a queue holds.
create or replace function queues.door_of(queue text)
returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
return hashtextextended('holdfast door ' || queue, 0);

comment on function queues.door_of(text) is 'The advisory lock that whoever keeps the door of a queue holds.';
