-- Run by the image of PostgreSQL when it creates the database: a login that may migrate it and create the others.
\getenv password MIGRATE_PASSWORD
create role shop_migrate login createrole password :'password';
alter database shop owner to shop_migrate;
