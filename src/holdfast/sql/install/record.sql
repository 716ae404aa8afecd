insert into queues.installation (version, installed_at, release, digest)
values (
  pg_catalog.current_setting('holdfast.version')::integer, queues.clock(),
  pg_catalog.current_setting('holdfast.release'), pg_catalog.current_setting('holdfast.digest'))
on conflict (version) do update set
  installed_at = excluded.installed_at, release = excluded.release, digest = excluded.digest;
