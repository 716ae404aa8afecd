"""Workers: who works, on what, and who leads."""

from dataclasses import asdict

from fastapi import APIRouter, Request

from holdfast.engine import workers
from holdfast.http.api import schemas
from holdfast.http.api.openapi_parts import problems
from holdfast.http.auth import MayRead
from holdfast.http.site import site_of

router = APIRouter(tags=["workers"])


@router.get("/workers", response_model=schemas.Workers, summary="List workers", responses=problems())
async def list_workers(request: Request, caller: MayRead) -> schemas.Workers:
    del caller
    found = await site_of(request).read(lambda engine: engine.run(workers.worker_status()))
    return schemas.Workers.model_validate({"workers": [asdict(worker) for worker in found]})
