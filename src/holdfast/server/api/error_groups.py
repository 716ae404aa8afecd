"""Errors, grouped by type and by message without values."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request

from holdfast._engine import error_groups
from holdfast._engine.error_groups import ErrorGroup
from holdfast.server.api.tasks import TEXT
from holdfast.server.auth import MayRead
from holdfast.server.openapi import problems
from holdfast.server.schemas import ResponseModel
from holdfast.server.site import site_of

router = APIRouter(tags=["status"])


class ErrorGroups(ResponseModel):
    """The most frequent first."""

    groups: list[ErrorGroup]


@router.get("/errors", summary="List groups of errors", responses=problems(422))
async def list_errors(
    request: Request,
    caller: MayRead,
    *,
    type: Annotated[  # noqa: A002 - the name of the query parameter
        str | None, Query(max_length=200, pattern=TEXT, description="Types that begin with this.")
    ] = None,
    since: Annotated[datetime | None, Query(description="Errors since this time; default: a day.")] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of groups.")] = 50,
) -> ErrorGroups:
    """Titles are messages without numbers, ids and quoted values. They are empty where values are hidden."""
    del caller
    if since is not None and since.tzinfo is None:
        since = since.astimezone()
    found = await site_of(request).read(error_groups.list_error_groups(since, type, limit))
    shown = site_of(request).options.shows_values
    return ErrorGroups(groups=[group if shown else hide_group(group) for group in found])


def hide_group(group: ErrorGroup) -> ErrorGroup:
    return replace(group, title="")
