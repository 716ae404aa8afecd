-- Returns the value below which this share of the counted values lies, estimated within the limits of its count. Null
-- if nothing was counted.
-- Internal: called by list_activity_of.
create or replace function queues.percentile_of(counts bigint[], share double precision)
returns double precision
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  with counted as (
    select u.n, u.amount, sum(u.amount) over (order by u.n) as up_to, sum(u.amount) over () * share as wanted,
      coalesce((queues.activity_limits())[u.n - 1], 0) as low, (queues.activity_limits())[u.n] as high
    from unnest(counts) with ordinality u(amount, n))
  select c.low + coalesce((c.high - c.low) * ((c.wanted - c.up_to + c.amount) / c.amount)::double precision, 0)
  from counted c where c.amount > 0 and c.up_to >= c.wanted order by c.n limit 1
$$;

comment on function queues.percentile_of(bigint[], double precision) is
  'Returns the value below which this share of the counted values lies, estimated within the limits of its count.';
