"""Workers: who works, on what, and who leads."""

from dataclasses import asdict

from fastapi import APIRouter, Request

from holdfast.http.api import shapes
from holdfast.http.api.answers import problems
from holdfast.http.auth import MayRead
from holdfast.http.site import site_of

router = APIRouter(tags=["workers"])


@router.get("/workers", response_model=shapes.Workers, summary="List workers", responses=problems())
async def list_workers(request: Request, caller: MayRead) -> shapes.Workers:
    del caller
    found = await site_of(request).read(lambda engine: engine.worker_status())
    return shapes.Workers.model_validate({"workers": [asdict(worker) for worker in found]})
