"""What the catalog has of our functions."""

from support.engine import Connection, Row, rows


def our_functions(admin: Connection, where: str = "true") -> list[Row]:
    return rows(
        admin,
        f"""select p.proname as name, p.oid, pg_get_userbyid(p.proowner) as owner, p.prosecdef as definer,
              coalesce(p.proconfig, '{{}}') as config, p.provolatile::text as volatility, p.prosrc as body,
              obj_description(p.oid, 'pg_proc') as comment, n.nspname as schema
            from pg_proc p join pg_namespace n on n.oid = p.pronamespace
            where n.nspname in ('queues', 'internal', 'comms') and {where} order by 1""",
    )


def names_of(found: list[Row]) -> set[str]:
    return {row["name"] for row in found}
