"""The description of the server's routes, for programs: ``/openapi.yaml`` and ``/openapi.json``."""

import asyncio

from fastapi import Depends, FastAPI
from starlette.responses import Response

from mail.server.deps import PUBLIC

__all__ = ["add_routes"]


def add_routes(app: FastAPI) -> None:
    """Add the routes of this module."""
    app.get("/openapi.yaml", dependencies=[Depends(PUBLIC)])(openapi_yaml)
    app.get("/openapi.json", dependencies=[Depends(PUBLIC)])(openapi_json)


async def openapi_yaml() -> Response:
    """Answer with the document that is ``spec/openapi.yaml``, byte for byte."""
    from mail.server.openapi.document import as_yaml

    # In a thread: it is made at the first call, which takes a moment.
    return Response(await asyncio.to_thread(as_yaml), media_type="application/yaml")


async def openapi_json() -> Response:
    """Answer with the same document as JSON."""
    from mail.server.openapi.document import as_json

    return Response(await asyncio.to_thread(as_json), media_type="application/json")
