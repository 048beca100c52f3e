"""An external token service for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from mail.auth.remote import RemoteAuth


class Service:
    """An external token service on a real socket, as documented."""

    def __init__(self) -> None:
        self.login: Any = {"token": "temporary"}
        self.info: Any = {"role": "user", "id": "alice", "api_key": "key"}
        self.status = 200
        self.hangs = False
        self.calls: list[tuple[str, str]] = []

    async def _answer(self, request: web.Request) -> web.Response:
        kind = request.path.strip("/")
        self.calls.append((kind, request.headers.get("Authorization", "")))
        if self.hangs:
            await asyncio.sleep(60)
        await asyncio.sleep(0.02)
        answer = self.login if kind == "login" else self.info
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=self.status)
        return web.json_response(answer, status=self.status)

    @asynccontextmanager
    async def serve(self, **options: Any) -> AsyncIterator[RemoteAuth]:
        """Serve, and yield the backend that asks this service."""
        app = web.Application()
        app.router.add_post("/login", self._answer)
        app.router.add_get("/info", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        base = f"http://127.0.0.1:{port}"
        auth = RemoteAuth(f"{base}/login", f"{base}/info", **options)
        try:
            yield auth
        finally:
            await auth.close()
            await runner.cleanup()
