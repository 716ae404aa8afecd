insert into queues.installation (version, installed_at, release, digest)
values (
  pg_catalog.current_setting('holdfast.version')::integer, queues.clock(),
  pg_catalog.current_setting('holdfast.release'), pg_catalog.current_setting('holdfast.digest'))
on conflict (version) do update set
  installed_at = excluded.installed_at, release = excluded.release, digest = excluded.digest;

insert into queues.unit (unit, installed, changed_at, digest)
select d.key, d.key = any (pg_catalog.current_setting('holdfast.units')::text[]), queues.clock(), d.value
from pg_catalog.jsonb_each_text(pg_catalog.current_setting('holdfast.digests')::jsonb) d
where true
on conflict (unit) do update set
  installed = excluded.installed, changed_at = excluded.changed_at, digest = excluded.digest
where unit.digest <> excluded.digest;
