-- Whether a subscription asks for an event: its type is one of the patterns, and if there are prefixes, the event is about a task whose
-- type begins with one. Both as likes makes them. No pinned path, so that it is inlined.
create or replace function queues.wants(event_likes text[], prefix_likes text[], event_type text, task_type text)
returns boolean
language sql immutable parallel safe
as $$ select event_type like any (event_likes) and (prefix_likes = '{}' or coalesce(task_type like any (prefix_likes), false)) $$;

comment on function queues.wants(text[], text[], text, text) is 'Whether a subscription asks for an event.';
