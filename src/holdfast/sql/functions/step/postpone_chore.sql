-- Puts the first chore of a kind, wake or cancel, behind the others, with the error that it raised. Call it if
-- do_chores fails for that one alone: then it does not keep the others from being done, and health reports it.
-- For holdfast_worker and holdfast_operator. Locks: the chore, without waiting.
create or replace function queues.postpone_chore(kind text, error text)
returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
  update queues.chore c set chore_id = default, error = left(postpone_chore.error, 2000)
  where (c.kind, c.chore_id) in (
    select first.kind, first.chore_id from queues.chore first
    where first.kind = case postpone_chore.kind when 'wake' then 'w'::"char" when 'cancel' then 'c' end
    order by first.chore_id limit 1 for update skip locked)
$$;

comment on function queues.postpone_chore(text, text) is
  'Puts the first chore of a kind behind the others, with the error that it raised.';
