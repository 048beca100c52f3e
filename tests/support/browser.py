"""Chromium without a network, driven over DevTools: what a page loads, says and shows."""

import asyncio
import base64
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.debian import install

__all__ = ["Page", "Unavailable", "find_chromium", "opened"]

_SECONDS: Final = 30.0
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
    "about:blank",
)

_PAINTED: Final = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Unavailable(Exception):
    """There is no Chromium here, and none can be installed; the text says why."""


class Page:
    """A tab.

    Attributes:
        requests: The URLs that it asked for, except those of data.
        problems: What its console complained about.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def visit(self, url: str) -> None:
        """Open an address."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self._call(f"{domain}.enable")
        found = await self._call("Page.navigate", url=url)
        assert "errorText" not in found, found

    @contextlib.asynccontextmanager
    async def beginning_with(self, script: str) -> AsyncIterator[None]:
        """Run a script at the beginning of every document that is opened meanwhile."""
        await self._call("Page.enable")
        name = "Page.{}ScriptToEvaluateOnNewDocument"
        added = await self._call(name.format("add"), source=script)
        yield
        await self._call(name.format("remove"), identifier=added["identifier"])

    async def run(self, script: str) -> Any:
        """Return what an expression is; promises are waited for."""
        found = await self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true, and return it."""
        async with asyncio.timeout(_SECONDS):
            while not (found := await self.run(script)):
                await asyncio.sleep(0.05)
        return found

    async def write(self, text: str) -> None:
        """Enter text where the focus is."""
        await self._call("Input.insertText", text=text)

    async def press(self, key: str, *, ctrl: bool = False) -> None:
        """Press a key, named as in ``KeyboardEvent.key``."""
        codes = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40}
        pressed: dict[str, Any] = {
            "key": key, "modifiers": 2 if ctrl else 0, "windowsVirtualKeyCode": codes.get(key, 0),
        }  # fmt: skip
        text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        await self.run(_PAINTED)  # until then Chromium drops keys
        await self._call("Input.dispatchKeyEvent", type="keyDown", **pressed, **text)
        await self._call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the tab another size, and another colour scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self._call("Emulation.setEmulatedMedia", features=[scheme, still])
        await self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    async def picture(self, quality: int | None = None) -> bytes:
        """Return what the tab shows, as a PNG; with a quality (0 to 100) as WebP."""
        kind: dict[str, Any] = {"format": "png"}
        if quality is not None:
            kind = {"format": "webp", "quality": quality}
        found = await self._call("Page.captureScreenshot", **kind)
        return base64.b64decode(found["data"])

    async def listen(self) -> None:
        """Take what the browser says, until it is closed."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            else:
                self._note(said["method"], said["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("data:", "blob:")):
                self.requests.append(url)
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(_SECONDS):
            said = await answer
        assert "result" in said, said
        result: dict[str, Any] = said["result"]
        return result


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Page]:
    """Start Chromium with a profile of its own in a folder, and yield a tab."""
    program = await asyncio.to_thread(find_chromium)
    process = await asyncio.create_subprocess_exec(
        program,
        f"--user-data-dir={folder}",
        *_OPTIONS,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr
    try:
        port = await _port(process.stderr)
        draining = asyncio.create_task(process.stderr.read())  # or its pipe fills up
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/json/list") as answer:
                tab = next(one for one in await answer.json() if one["type"] == "page")
            address = tab["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                yield page
                listening.cancel()
        draining.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _port(stderr: asyncio.StreamReader) -> int:
    async with asyncio.timeout(_SECONDS):
        while line := await stderr.readline():
            if line.startswith(b"DevTools listening on "):
                return int(line.rpartition(b":")[2].partition(b"/")[0])
    raise Unavailable("Chromium does not start")


def find_chromium() -> str:
    """Return the program; install Debian's package if need be.

    Raises:
        Unavailable: there is none, and it cannot be installed.
    """
    found = _found()
    if found is None:
        reason = install("chromium", _found)
        found = _found()
        if found is None:
            raise Unavailable(
                "these tests need Chromium: install it (Debian: apt-get install chromium) or put "
                f"it on the PATH; {reason}"
            )
    return found


def _found() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)
