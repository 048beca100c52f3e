"""What people see in a browser: the page at ``/``, and the documentation at ``/docs``."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from mail.db.memory import MemoryStore
from mail.server.app import create_app
from mail.server.routes.pages import prefers_html
from tests.server.kit import TOKENS, Server, Template, bearer, config, running_server, serving
from tests.support.browser import Page, opened

pytestmark = pytest.mark.timeout(600)  # the first one may have to install Chromium

CHROMIUM = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,"
    "*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
)


@pytest.fixture
async def server(app: FastAPI) -> AsyncIterator[Server]:
    """The served application."""
    async with running_server(app) as running:
        yield running


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    """A tab of Chromium without a network."""
    async with opened(tmp_path) as tab:
        yield tab


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/html", False),
        ("text/html", True),
        ("TEXT/HTML;charset=utf-8", True),
        (CHROMIUM, True),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        (",;,q=1,text/plain", False),
    ],
)
async def test_html_is_for_those_who_rank_it_above_json(
    client: httpx.AsyncClient, accept: str, html: bool
) -> None:
    assert prefers_html(accept) is html
    answer = await client.get("/", headers={"Accept": accept})
    assert answer.status_code == 200
    assert answer.headers["vary"] == "Accept"
    if html:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "<h1>test-swarm</h1>" in answer.text
    else:
        assert answer.json()["swarm"]["name"] == "test-swarm"


async def test_what_a_swarm_says_of_itself_is_text_and_never_markup(
    store: MemoryStore, template: Template
) -> None:
    template.name = 'x"><script>alert(1)</script>'
    template.description = "<img src=x onerror=alert(1)> $name & co"
    settings = config().model_copy(update={"host": "0.0.0.0"})  # noqa: S104
    app = create_app(settings, template=template, store=store)  # type: ignore[arg-type]
    headers = {"Accept": CHROMIUM, "Host": "a<b>'\"&.example"}
    async with serving(app) as client:
        answer = await client.get("/", headers=headers)
    assert "<script" not in answer.text
    assert "<img" not in answer.text
    assert "&lt;img src=x onerror=alert(1)&gt; $name &amp; co" in answer.text
    assert "a<b>" not in answer.text


async def test_the_pages_allow_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    for path in ("/", "/docs"):
        answer = await client.get(path, headers={"Accept": CHROMIUM})
        policy = dict(
            part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
        )
        assert policy["default-src"] == "'none'"
        assert not re.search(r"https?:|\*", answer.headers["content-security-policy"])
        assert "'unsafe" not in policy.get("script-src", "")
        assert policy["frame-ancestors"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_docs_have_their_parts_and_no_others(client: httpx.AsyncClient) -> None:
    html = (await client.get("/docs")).text
    named = re.findall(r'(?:src|href)="docs/([^"]+)"', html)
    assert len(set(named)) == 5
    for name in named:
        answer = await client.get(f"/docs/{name}")
        assert answer.status_code == 200
        assert answer.headers["cache-control"].startswith("public")
    for name in ("nothing.js", "..%2Fapp.py", "LICENSE", ""):
        assert (await client.get(f"/docs/{name}")).status_code == 404


def test_the_mark_is_that_of_the_repository() -> None:
    root = Path(__file__).parents[2]
    mark = root / "src" / "mail" / "server" / "pages" / "mark.svg"
    assert mark.read_bytes() == (root / "assets" / "mark.svg").read_bytes()


async def test_docs_can_be_switched_off(store: MemoryStore, template: Template) -> None:
    quiet = config().model_copy(update={"docs": False})
    app = create_app(quiet, template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        for path in ("/docs", "/docs/docs.js"):
            answer = await client.get(path, headers=bearer("admin"))
            assert (answer.status_code, answer.json()["detail"]) == (404, "not found")
        landing = await client.get("/", headers={"Accept": CHROMIUM})
        assert 'href="docs"' not in landing.text
        assert (await client.get("/openapi.yaml")).status_code == 200


def _is_drawn(picture: bytes) -> bool:
    """Tell whether a PNG shows something: a page of one colour compresses to almost nothing."""
    return picture.startswith(b"\x89PNG") and len(picture) > 15_000


async def test_a_browser_shows_what_runs_here_and_leads_on(server: Server, page: Page) -> None:
    await page.look(1000, 900)
    await page.visit(server.url)
    assert await page.until("document.querySelector('h1')?.textContent") == "test-swarm"
    style = "getComputedStyle(document.querySelector('main')).borderTopLeftRadius"
    assert await page.run(style) != "0px", "the style is not applied"
    assert server.url in await page.run("document.querySelector('main').innerText")
    links = await page.run("[...document.querySelectorAll('nav a')].map(a => a.href)")
    paths = ("console", "docs", "openapi.yaml", "health")
    assert links == [f"{server.url}/{path}" for path in paths]
    assert _is_drawn(await page.picture())
    assert set(page.requests) <= {f"{server.url}/", f"{server.url}/favicon.ico"}
    assert [text for text in page.problems if "404" not in text] == []


async def test_a_narrow_and_dark_window_is_served_as_well(server: Server, page: Page) -> None:
    await page.look(360, 800, dark=True)
    await page.visit(server.url)
    await page.until("!!document.querySelector('h1')")
    assert await page.run("document.documentElement.scrollWidth") <= 360
    ground = await page.run("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in re.findall(r"\d+", ground)) < 80


async def test_docs_show_every_operation_and_load_nothing_from_elsewhere(
    server: Server, page: Page, client: httpx.AsyncClient
) -> None:
    await page.look(1200, 1000)
    await page.visit(f"{server.url}/docs")
    document = (await client.get("/openapi.json")).json()
    operations = sum(len(item) for item in document["paths"].values())
    await page.until(f"document.querySelectorAll('.opblock').length === {operations}")
    assert await page.run("document.querySelector('.info .title').textContent.startsWith('MAIL')")
    assert _is_drawn(await page.picture())
    assert [url for url in page.requests if not url.startswith(f"{server.url}/")] == []
    assert page.problems == []


async def test_docs_send_a_request_with_the_token_that_was_entered(
    server: Server, page: Page
) -> None:
    await page.visit(f"{server.url}/docs")
    await page.until("!!document.querySelector('.btn.authorize')")
    await page.run("document.querySelector('.btn.authorize').click()")
    await page.until("!!document.querySelector('.auth-container input')")
    await page.run(f"""(() => {{
        const field = document.querySelector('.auth-container input');
        const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
        set.call(field, '{TOKENS["alice"]}');
        field.dispatchEvent(new Event('input', {{bubbles: true}}));
        document.querySelector('.auth-btn-wrapper .authorize').click();
        document.querySelector('.auth-btn-wrapper .btn-done').click();
    }})()""")
    block = "document.querySelector('#operations-tokens-whoami')"
    await page.run(f"{block}.querySelector('.opblock-summary-control').click()")
    await page.until(f"!!{block}.querySelector('.try-out__btn')")
    await page.run(f"{block}.querySelector('.try-out__btn').click()")
    await page.until(f"!!{block}.querySelector('.execute')")
    await page.run(f"{block}.querySelector('.execute').click()")
    answer = await page.until(f"{block}.querySelector('.live-responses-table')?.innerText")
    assert '"id": "alice"' in answer
    assert f"{server.url}/whoami" in page.requests
    assert page.problems == []
