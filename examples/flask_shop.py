"""Flask: a request writes a sign-up and enqueues its welcome in the same psycopg transaction.

To run it:

    holdfast worker flask_shop:tasks
    flask --app flask_shop run
    curl -X POST 'localhost:5000/signups?email=ada@example.com'
"""

from uuid import UUID

import psycopg
from flask import Flask, request
from flask.typing import ResponseReturnValue

from holdfast import App

tasks = App()
web = Flask(__name__)


@tasks.task("mail.welcome", max_attempts=10)
def send_welcome(email: str) -> str:
    return f"Welcome, {email}!"


@web.post("/signups")
def sign_up() -> ResponseReturnValue:
    email = request.args["email"]
    with psycopg.connect(tasks.database_url) as connection:  # commits at its end
        connection.execute("create table if not exists signup (email text primary key)")
        connection.execute("insert into signup values (%s)", [email])
        handle = send_welcome.using(key=email, tx=connection).enqueue(email)
    return {"task_id": str(handle.task_id)}, 202


@web.get("/tasks/<uuid:task_id>")
def show_task(task_id: UUID) -> ResponseReturnValue:
    return {"status": tasks.handle(task_id).status()}
