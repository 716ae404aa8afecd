-- What core reads in a database without web access: a view of the same name, without rows.

-- No tokens, because there is no web access.
create or replace view queues.namespace_token as
select null::text collate "C" as namespace, null::text as name, null::timestamptz as added_at, null::text as added_by
where false;

comment on view queues.namespace_token is 'No tokens, because there is no web access.';
