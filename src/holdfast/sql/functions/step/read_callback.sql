-- Returns what a callback link of a run asks, and whether it may still be answered: open, answered, expired or ended.
-- No row if the run has no such link. The caller has verified the signature of the link.
-- For holdfast_operator.
create or replace function queues.read_callback(task_id uuid, link text)
returns table (signal text, question text, labels text[], state text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select s.result->>'signal', s.result->>'question',
    array(select c.value->>0 from jsonb_array_elements(s.result->'choices') with ordinality c (value, number)
      order by c.number),
    case
      when exists (select from queues.signal m where m.task_id = s.task_id and m.name = s.result->>'signal'
          and m.key = 'callback ' || read_callback.link)
        then 'answered'
      when exists (select from queues.outcome o where o.task_id = s.task_id)
          or exists (select from queues.deletion d where d.task_id = s.task_id)
        then 'ended'
      when queues.clock() >= to_timestamp((s.result->>'expires_at')::double precision) then 'expired'
      else 'open'
    end
  from queues.step s
  where s.task_id = read_callback.task_id and starts_with(s.name, 'callback[') and s.kind = 's'
    and s.result->>'link' = read_callback.link;
$$;

comment on function queues.read_callback(uuid, text) is
  'Returns what a callback link of a run asks, and whether it may still be answered.';
