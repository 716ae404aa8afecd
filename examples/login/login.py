"""Log in with a mailed code. The transaction that notes the login starts the mail, and the page waits for it.

To run it, in this directory:

    export HOLDFAST_WEB_SECRET=$(openssl rand -hex 32) HOLDFAST_WEB_URL=http://127.0.0.1:8000/holdfast
    holdfast worker login:tasks
    uvicorn login:web
    holdfast mailbox list                  # unless HOLDFAST_EMAIL_PROVIDER says otherwise
"""

import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import Cookie, Depends, FastAPI, Form, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import DateTime

from holdfast import App, messages
from holdfast.errors import InvalidArgument
from holdfast.server import create_app
from holdfast.settings import Settings

HERE = Path(__file__).parent
VALID = timedelta(minutes=10)
MAX_GUESSES = 5

tasks = App(settings=Settings.load(templates=HERE / "templates"), sends_messages=True)
house = create_app(tasks)


class Base(DeclarativeBase):
    pass


class Login(Base):
    """Somebody who wants to log in, and what they have to know for it."""

    __tablename__ = "login"
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    email: Mapped[str]
    code_hash: Mapped[str]
    guesses: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    session_hash: Mapped[str | None] = mapped_column(unique=True)


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(tasks.database_url.replace("postgresql:", "postgresql+psycopg:", 1))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    web.state.sessions = async_sessionmaker(engine)
    # A server runs the lifespan of the outer application only.
    async with house.router.lifespan_context(house):
        yield
    await engine.dispose()
    tasks.close()


web = FastAPI(lifespan=lifespan)
web.mount("/holdfast", house)


async def open_transaction(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session, session.begin():
        yield session


Transaction = Annotated[AsyncSession, Depends(open_transaction, scope="function")]


@web.get("/")
async def page() -> Response:
    return FileResponse(HERE / "page.html")


@web.post("/logins")
async def begin_login(email: Annotated[str, Form()], tx: Transaction) -> dict[str, str]:
    """The code goes out if this transaction is committed, and the page waits for that at `wait`."""
    code = f"{secrets.randbelow(1_000_000):06}"
    login_id = uuid4()
    try:
        mail = await messages.asend_email(
            to=email,
            template="login_code",
            values={"code": code, "minutes": VALID // timedelta(minutes=1)},
            tx=tx,
            app=tasks,
        )
    except InvalidArgument as error:
        raise HTTPException(422, error.message) from error
    tx.add(Login(id=login_id, email=email, code_hash=_hash(f"{login_id}{code}")))
    return {"login": str(login_id), "wait": mail.wait_url(ttl=VALID)}


@web.post("/logins/{login_id}/code")
async def finish_login(login_id: UUID, code: Annotated[str, Form()], tx: Transaction) -> Response:
    """A code is good once, for some minutes, and for a few guesses."""
    login = await tx.scalar(
        select(Login)
        .where(Login.id == login_id, Login.session_hash.is_(None), Login.guesses < MAX_GUESSES)
        .where(Login.created_at > func.now() - VALID)
        .with_for_update()
    )
    if login is None:
        return JSONResponse({"detail": "ask for a new code"}, 403)
    login.guesses += 1
    if not secrets.compare_digest(login.code_hash, _hash(f"{login_id}{code.strip()}")):
        return JSONResponse({"detail": "that is not the code"}, 403)
    session = secrets.token_urlsafe()
    login.session_hash = _hash(session)
    answer = JSONResponse({"email": login.email})
    answer.set_cookie("session", session, httponly=True, samesite="strict", max_age=86400)
    return answer


@web.get("/me")
async def who_am_i(tx: Transaction, session: Annotated[str | None, Cookie()] = None) -> str:
    login = await tx.scalar(select(Login).where(Login.session_hash == _hash(session or "")))
    if login is None:
        raise HTTPException(401, "log in first")
    return login.email


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
