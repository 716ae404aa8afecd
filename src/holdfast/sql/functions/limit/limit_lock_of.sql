-- Which row of queues.limit_lock stands for a queue or a type. Two that share a row wait for each other, and that is all.
create or replace function queues.limit_lock_of(subject text, name text)
returns integer
language sql immutable
as $$ select (pg_catalog.hashtextextended(name, pg_catalog.length(subject)) & 1023)::integer $$;

comment on function queues.limit_lock_of(text, text) is 'Which row of queues.limit_lock stands for a queue or a type.';
