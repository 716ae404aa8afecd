-- Who has which role of Holdfast on this server. Roles of Holdfast themselves are the same everywhere.
select m.rolname as login, r.rolname as role
from pg_catalog.pg_auth_members a
join pg_catalog.pg_roles r on r.oid = a.roleid
join pg_catalog.pg_roles m on m.oid = a.member
where r.rolname ~ '^holdfast_(client|process|worker|dispatcher|operator|reader)$' and m.rolname !~ '^holdfast_[a-z]+$'
group by 1, 2 order by 1, 2;
