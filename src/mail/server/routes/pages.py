"""Pages for browsers: the one at ``/``, the console, and the documentation of the API.

Everything that the pages load is in the package, and their ``Content-Security-Policy`` keeps a
browser from loading anything else.
"""

import base64
import hashlib
import html
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Final

from fastapi import Depends
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from mail.net.types import GetRootResponse
from mail.server.deps import PUBLIC
from mail.server.routing import MAILRouter

_FOLDER: Final = Path(__file__).parent.parent / "pages"
_ASSETS: Final[Mapping[str, tuple[str, str]]] = {
    "swagger-ui-bundle.js": ("swagger-ui/swagger-ui-bundle.js", "text/javascript"),
    "swagger-ui.css": ("swagger-ui/swagger-ui.css", "text/css"),
    "docs.js": ("docs.js", "text/javascript"),
    "docs.css": ("docs.css", "text/css"),
    "mark.svg": ("mark.svg", "image/svg+xml"),
}
"""Name of an asset to its file in the package and its media type."""
_CONSOLE: Final[Mapping[str, tuple[str, str]]] = {
    **{
        f"{name}.js": (f"console/{name}.js", "text/javascript")
        for name in (
            *("admin", "api", "app", "approvals", "events", "graph", "log", "mail", "memories"),
            *("parts", "swarm", "task", "tasks", "timeline"),
        )
    },
    **{
        f"{name}.mjs": (f"console/vendor/{name}.mjs", "text/javascript")
        for name in ("htm", "hooks", "preact")
    },
    "console.css": ("console/console.css", "text/css"),
    "mark.svg": ("mark.svg", "image/svg+xml"),
}
"""The same for the console."""

_CONSOLE_LINK: Final = '<a href="console">Console</a>'

_DOCS_LINK: Final = '<a href="docs">API documentation</a>'
_LINKS: Final = '<a href="openapi.yaml">openapi.yaml</a><a href="health">Health</a>'
_OWN_TOKENS: Final = (
    "<p>In the folder where the server runs, create a token:</p>"
    "<pre><code>export TOKEN=$(mail token create --role user --id alice)</code></pre>"
)
_OTHER_TOKENS: Final = (
    "<p>Get a token from the token service of this server:</p>"
    "<pre><code>export TOKEN=…</code></pre>"
)
_HOUR: Final = 3600
_NOTHING_ELSE: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_DOCS_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    f"img-src 'self' data:; connect-src 'self'; {_NOTHING_ELSE}"
)
_CONSOLE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    f"connect-src 'self'; {_NOTHING_ELSE}"
)

router = MAILRouter(include_in_schema=False)
"""The documentation of the API; ``[server] docs`` switches it off."""
console = MAILRouter(include_in_schema=False)
"""The console; ``[server] console`` switches it off."""


@router.get("/docs", dependencies=[Depends(PUBLIC)])
async def docs(request: Request) -> Response:
    """Show the API and try it out."""
    headers = {"Content-Security-Policy": _DOCS_POLICY, "Cache-Control": "no-cache"}
    return _part(request, "docs.html", "text/html", headers)


@router.get("/docs/{name}", dependencies=[Depends(PUBLIC)])
async def docs_asset(request: Request, name: str) -> Response:
    """Load a part of that page."""
    if name not in _ASSETS:
        raise HTTPException(404)
    return _part(request, *_ASSETS[name], {"Cache-Control": f"public, max-age={_HOUR}"})


@console.get("/console", dependencies=[Depends(PUBLIC)])
async def console_page(request: Request) -> Response:
    """Show the console: who uses it has to enter a token."""
    headers = {"Content-Security-Policy": _CONSOLE_POLICY, "Cache-Control": "no-cache"}
    headers["Referrer-Policy"] = "no-referrer"
    return _part(request, "console/console.html", "text/html", headers)


@console.get("/console/", dependencies=[Depends(PUBLIC)])
async def console_with_slash() -> Response:
    """Lead to the console; the parts of the page are named relative to its address."""
    return RedirectResponse("../console", 308)


@console.get("/console/{name}", dependencies=[Depends(PUBLIC)])
async def console_asset(request: Request, name: str) -> Response:
    """Load a part of the console; asked for each time, so that all parts are of one version."""
    if name not in _CONSOLE:
        raise HTTPException(404)
    return _part(request, *_CONSOLE[name], {"Cache-Control": "no-cache"})


def _part(request: Request, file: str, media_type: str, headers: dict[str, str]) -> Response:
    """Answer with a file of the package, or 304 if the browser has it."""
    content = _bytes(file)
    headers["ETag"] = tag = f'"{_base64(hashlib.sha256(content).digest())[:27]}"'
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*" or tag in known:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def prefers_html(accept: str) -> bool:
    """Tell whether an ``Accept`` header names HTML before JSON, as those of browsers do.

    >>> prefers_html("text/html,application/xml;q=0.9,*/*;q=0.8"), prefers_html("*/*")
    (True, False)
    """
    html, _, _ = accept.lower().partition("application/json")
    return "text/html" in html


def landing_page(
    root: GetRootResponse, url: str, *, console: bool, docs: bool, own_tokens: bool
) -> Response:
    """Make the page at ``/`` for people.

    Args:
        root: The answer for programs.
        url: The address that the browser used.
        console: There is a console.
        docs: There is a page with the documentation of the API.
        own_tokens: This server makes the tokens itself.
    """
    swarm = root["swarm"]
    texts = {
        "name": swarm["name"],
        "description": swarm["description"] or "A swarm of agents.",
        "entrypoint": swarm["entrypoint"],
        "swarm_version": swarm["version"],
        "version": root.get("version", ""),
        "protocol_version": root["protocol_version"],
        "status": root["status"],
        "url": url.rstrip("/"),
    }
    style, mark = _file("landing.css"), _file("mark.svg")
    digest = _base64(hashlib.sha256(style.encode()).digest())
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; {_NOTHING_ELSE}"
    page = Template(_file("landing.html")).substitute(
        {name: html.escape(text) for name, text in texts.items()},
        style=style,
        mark=mark,
        icon=_base64(mark.encode()),
        links=f"{_CONSOLE_LINK if console else ''}{_DOCS_LINK if docs else ''}{_LINKS}",
        token=_OWN_TOKENS if own_tokens else _OTHER_TOKENS,
    )
    return HTMLResponse(page, headers={"Content-Security-Policy": policy, "Vary": "Accept"})


@cache
def _bytes(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


@cache
def _file(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
