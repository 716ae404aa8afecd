-- Refuses secrets of an unknown form. A secret is whsec_ with 24 to 64 bytes in base64, or env:HOLDFAST_SINK_NAME for a
-- variable of the dispatcher. The errors do not repeat the value.
create or replace function queues.check_secrets(secrets text[])
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if secrets is null or cardinality(secrets) > 5 then
    raise exception using errcode = 'QF400', message = 'there may be at most five secrets';
  elsif exists (
    select from unnest(secrets) secret
    where secret is null or secret !~ '^(whsec_[A-Za-z0-9+/]{32,86}={0,2}|env:HOLDFAST_SINK_[A-Za-z0-9_]{1,80})$')
  then
    raise exception using errcode = 'QF400',
      message = 'a secret is neither whsec_ with 24 to 64 bytes in base64 nor env:HOLDFAST_SINK_NAME';
  end if;
end
$$;

comment on function queues.check_secrets(text[]) is 'Refuses secrets of an unknown form.';
