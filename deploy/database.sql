-- Run by the image of PostgreSQL when it creates the database: one login for each service. None is a superuser.
\getenv migrate MIGRATE_PASSWORD
\getenv worker WORKER_PASSWORD
\getenv dispatcher DISPATCHER_PASSWORD
\getenv web WEB_PASSWORD
create role shop_migrate login createrole password :'migrate';
create role shop_worker login password :'worker';
create role shop_dispatcher login password :'dispatcher';
create role shop_web login password :'web';
alter database shop owner to shop_migrate;
