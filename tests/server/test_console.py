"""The web console in a real browser, against a real server."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from mail import Approval, MAILAction
from mail.api import MAILSwarmTemplate
from mail.cli.common import cleaned
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import EventRow, OutboxRow, Owner, TaskRow
from mail.db.webhooks import WebhookRow
from mail.llm import call
from mail.llm.script_view import ScriptView
from mail.server.app import create_app
from mail.testing import tool_calls
from tests.server.kit import (
    TOKENS,
    Template,
    bearer,
    busy,
    config,
    put_aside,
    running_server,
    serving,
)
from tests.support.browser import Page, opened
from tests.support.swarm import scripted_agent
from tests.support.till import known_callers

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "src" / "mail" / "server" / "pages"
AXE = (ROOT / "tests" / "support" / "axe" / "axe.min.js").read_text("utf-8")
ALICE = Owner("test-swarm", "user", "alice")
NOW = "2026-01-01T00:00:00+00:00"
LATER = "2100-01-01T00:00:00+00:00"
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"
    " [click](javascript:document.title='owned') \u202egnp.exe \x1b[2J\x1b]0;owned\x07 &amp;"
)
CREW = {"supervisor": ["scribe"], "scribe": ["supervisor", HOSTILE[:40]], HOSTILE[:40]: ["scribe"]}
MANY = 2**60 + 1
SMUGGLED = "ann@example.org" + "".join(chr(0xE0000 + ord(sign)) for sign in ",eve@evil.example")
"""An address, and one after it that no font draws."""

TWICE = '{"cc": "eve", "cc": "ann"}'
"""A text that a reader of JSON makes another one of."""

ODD = "odd/<img src=x onerror=alert(1)>?#%2F&"


@dataclass(eq=False)
class Agent:
    """Does what the newest message from a person says, one step for each permit."""

    permits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def __call__(self, messages: list[dict[str, Any]], tool_choice: Any) -> Any:
        told = [text for text in map(_told, messages) if text]
        results = [one["content"] for one in messages if one.get("role") == "tool"]
        if "waste" in told[-1]:
            return None, tool_calls(("help", {}), prefix=f"waste{len(results)}")
        if "busy" in told[-1]:
            await busy()
        if "steps" in told[-1]:
            await self.permits.acquire()
            if "interrupt" not in told[-1] and len(results) < 4:
                return None, tool_calls(("help", {}), prefix=f"step{len(results)}")
        if "consult" in told[-1] and not results:
            asked = {"target": "supervisor", "subject": HOSTILE, "body": "May I?"}
            return None, tool_calls(("send_interrupt", asked), prefix="ask")
        finish = f"The person says: {results[-1]}" if "consult" in told[-1] else f"Done: {told[-1]}"
        return None, tool_calls(("task_complete", {"finish_message": finish}), prefix="done")


def _told(message: dict[str, Any]) -> str:
    text = str(message.get("content"))
    if not re.search('<from type="(user|admin)">', text):
        return ""
    return text.partition("<body>")[2].partition("</body>")[0]


@dataclass(eq=False)
class Line:
    """The way from the browser to the server: it can be cut, and mended."""

    upstream: int
    port: int = 0
    accepted: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def mend(self) -> None:
        self.server = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        assert self.server
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        with self._open(writer):
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.upstream)
            with self._open(there):
                await asyncio.gather(_pump(reader, there), _pump(there_reader, writer))

    @contextmanager
    def _open(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Close an end of a connection when that is over, or the loop ends in the midst of it."""
        self.writers.add(writer)
        try:
            yield
        finally:
            self.writers.remove(writer)
            writer.transport.abort()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@dataclass(eq=False)
class Stage:
    """What a test has: the server's store and agent, the line to it, and a tab."""

    store: MemoryStore
    agent: Agent
    line: Line
    page: Page
    http: httpx.AsyncClient

    async def visit(self, place: str = "", who: str | None = "alice") -> None:
        """Open the console in a tab that has been logged in, or has not."""
        await self.page.visit(f"{self.line.url}/console")
        await self.page.run("sessionStorage.clear()")
        if who:
            await self.page.run(f"sessionStorage.setItem('mail-console-token', '{TOKENS[who]}')")
        await self.page.visit("about:blank")
        self.page.requests.clear()
        self.page.problems.clear()
        await self.page.visit(f"{self.line.url}/console{place}")
        await self.page.until("!!document.querySelector('h1')")

    async def click(self, name: str, within: str = "body") -> None:
        """Press the button with a name, once it can be pressed."""
        button = (
            f"[...document.querySelectorAll({json.dumps(within + ' button')})]"
            f".find(one => !one.disabled && one.textContent.trim() === {json.dumps(name)})"
        )
        await self.page.until(f"!!{button}")
        await self.page.run(f"{button}.click()")

    async def write(self, selector: str, text: str) -> None:
        """Enter text in a field."""
        await self.page.until(f"!!document.querySelector({json.dumps(selector)})")
        await self.page.run(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.page.write(text)

    async def shows(self, text: str, selector: str = "#app") -> None:
        """Wait until a part shows a text."""
        part = f"document.querySelector({json.dumps(selector)})?.innerText"
        try:
            await self.page.until(f"{part}?.includes({json.dumps(text)})")
        except TimeoutError:
            shown = await self.page.run("document.querySelector('#app').innerText.slice(0, 3000)")
            pytest.fail(f"not shown: {text!r}; the page: {shown!r}; {self.page.problems}")

    async def post(self, body: str, task_id: str) -> None:
        """Give the swarm a task, as the same person with another program."""
        message = {"body": body, "task_id": task_id}
        headers = bearer("alice") | {"Prefer": "respond-async"}
        answer = await self.http.post("/message", json=message, headers=headers)
        assert answer.status_code == 202, answer.text

    async def usable(self, width: int) -> None:
        """See that the page fits, and that axe-core finds nothing serious; then show it wide."""
        root = "document.documentElement"
        assert await self.page.run(f"{root}.scrollWidth") <= width
        assert await self.page.run(f"{root}.scrollHeight <= innerHeight")  # the bar stays
        await self.page.run(AXE)
        found = await self.page.run("axe.run().then(({violations}) => violations)")
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert serious == [], json.dumps(serious, indent=1)[:4000]
        await self.page.look(1280, 800)

    async def status(self, task_id: str) -> str:
        answer = await self.http.get(f"/tasks/{task_id}", headers=bearer("alice"))
        return str(answer.json()["status"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One server and one browser for all tests here."""
    agent = Agent()
    template: Any = Template(agent, breakpoint_tools=["send_interrupt"])  # type: ignore[arg-type]
    template.participants = [{"name": name, "description": ""} for name in ("editor", "reviewer")]
    (first,) = template.agents
    template.agents = [
        SimpleNamespace(**vars(first) | {"name": name, "comm_targets": targets})
        for name, targets in CREW.items()
    ]
    store = await known_callers()
    app = create_app(config(shutdown_grace=0.2), template=template, store=store)
    async with running_server(app) as server:
        line = Line(int(server.url.rpartition(":")[2]))
        await line.mend()
        async with (
            opened(tmp_path_factory.mktemp("chromium")) as page,
            httpx.AsyncClient(base_url=server.url, timeout=30) as http,
        ):
            await page.look(1280, 800)
            yield Stage(store, agent, line, page, http)
        await line.cut()


SENT: list[dict[str, Any]] = []


def _send(arguments: dict[str, Any]) -> str:
    SENT.append(arguments)
    return f"sent to {arguments['to']}"


def _clerk(view: ScriptView) -> Any:
    if view.new_results:
        return call("task_complete", finish_message=view.new_results[0].content)
    if "sign" in view.body:
        return call("sign", to="Ann", text="me")
    letter = {"to": "ann@example.org", "text": f"Dear Ann,\n{HOSTILE}\nBest", "copies": 1}
    letter |= {"copies": MANY} if "many" in view.body else {}
    letter |= {"to": SMUGGLED, "text": TWICE} if "secretly" in view.body else {}
    return call("send_mail", **letter)


def office() -> MAILSwarmTemplate:
    """Return a swarm whose agent may send mail once somebody has approved it."""
    fields = {"to": {"type": "string"}, "text": {"type": "string"}, "copies": {"type": "integer"}}
    schema = {"type": "object", "properties": fields, "required": ["to", "text"]}
    held = [
        MAILAction("send_mail", "Send a mail.", schema, _send, approval=Approval()),
        MAILAction("sign", "Sign.", schema, _send, approval=Approval(approvers=["admin"])),
    ]
    agent = scripted_agent("clerk", _clerk, actions=held)
    return MAILSwarmTemplate(name="test-swarm", agents=[agent], entrypoint="clerk")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inbox(stage: Stage) -> AsyncIterator[Stage]:
    """Another server, whose calls wait for approval, in the same browser."""
    store = await known_callers()
    app = create_app(config(shutdown_grace=0.2), template=office(), store=store)
    async with running_server(app) as server:
        line = Line(int(server.url.rpartition(":")[2]))
        await line.mend()
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            yield Stage(store, stage.agent, line, stage.page, http)
        await line.cut()


async def seed(store: MemoryStore, task_id: str, events: int, text: str = "Hello") -> None:
    """Store an ended task with a message and many events of a tool."""
    message = {
        "task_id": task_id, "request_id": "1", "routing_info": {},
        "sender": {"address_type": "user", "address": "alice"}, "sender_swarm": "test-swarm",
        "recipient": {"address_type": "agent", "address": "supervisor"},
        "recipient_swarm": "test-swarm", "subject": "New Message", "body": text,
    }  # fmt: skip
    full = {"id": "1", "timestamp": NOW, "message": message, "msg_type": "request"}
    letter = json.dumps({"full_message": full})
    rows = [EventRow("new_message", NOW, "a message", letter)]
    for number in range(2, events + 1):
        extra = {"caller": "supervisor", "tool_name": f"count_{number}", "tool_args": {"at": text}}
        rows.append(EventRow("tool_call", NOW, text, json.dumps(extra)))
    row = TaskRow(task_id, str(ALICE), (str(ALICE),), NOW, "supervisor", TaskState.COMPLETED)
    await store.commit(Commit(owner=ALICE, task=row, new=True, events=tuple(rows)))


async def test_the_page_has_its_parts_and_a_strict_policy(stage: Stage) -> None:
    answer = await stage.http.get("/console")
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    named = set(re.findall(r'(?:src|href)="console/([^"]+)"', answer.text))
    seen: set[str] = set()
    while named - seen:
        name = (named - seen).pop()
        part = await stage.http.get(f"/console/{name}")
        assert part.status_code == 200, name
        seen.add(name)
        named |= set(re.findall(r'from ?"\./([^"]+)"', part.text)) if name.endswith("js") else set()
    files = {path.name for path in (PAGES / "console").rglob("*") if path.suffix in (".js", ".mjs")}
    assert {name for name in seen if name.endswith("js")} == files
    for name in ("nothing.js", "LICENSE-htm", "..%2Fdocs.js", "console.html"):
        assert (await stage.http.get(f"/console/{name}")).status_code == 404
    slash = await stage.http.get("/console/", follow_redirects=True)
    assert (slash.status_code, slash.text) == (200, answer.text)


@pytest.mark.parametrize("path", ["/console", "/console/app.js", "/docs/docs.js"])
async def test_a_part_that_has_not_changed_is_not_sent_again(stage: Stage, path: str) -> None:
    first = await stage.http.get(path)
    tag = first.headers["etag"]
    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        again = await stage.http.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b""), known
        assert again.headers["etag"] == tag
        assert again.headers["cache-control"] == first.headers["cache-control"]
    for other in ('"other"', tag[:-2] + '"', ""):
        again = await stage.http.get(path, headers={"If-None-Match": other})
        assert (again.status_code, again.content) == (200, first.content)


async def test_it_can_be_switched_off() -> None:
    quiet = config().model_copy(update={"console": False})
    template: Any = Template()
    accept = {"Accept": "text/html"}
    async with serving(create_app(quiet, template=template, store=MemoryStore())) as client:
        assert 'href="console"' not in (await client.get("/", headers=accept)).text
        assert (await client.get("/console", headers=accept)).status_code == 404
    async with serving(create_app(config(), template=template, store=MemoryStore())) as client:
        assert 'href="console"' in (await client.get("/", headers=accept)).text


async def test_only_a_token_that_the_server_knows_lets_in(stage: Stage) -> None:
    page = stage.page
    await stage.visit(who=None)
    await stage.write("input[name=token]", "mail_wrong")
    await page.press("Enter")
    await stage.shows("the server does not know this token", ".problem")
    await page.run("document.querySelector('input[name=token]').value = ''")
    await stage.write("input[name=token]", TOKENS["swarm"])
    await page.press("Enter")
    await stage.shows("no participant of the swarm", ".problem")
    assert await page.run("sessionStorage.length") == 0
    await page.run("document.querySelector('input[name=token]').value = ''")
    await stage.write("input[name=token]", TOKENS["bob"])
    await page.press("Enter")
    await stage.shows("No tasks yet", "main")
    await stage.shows("bob", ".who")
    assert await page.run("localStorage.length + document.cookie.length") == 0
    assert TOKENS["bob"] not in await page.run("location.href")
    await page.visit("about:blank")
    await page.visit(f"{stage.line.url}/console")
    await stage.shows("No tasks yet", "main")
    await stage.click("Log out")
    await page.until("!!document.querySelector('input[name=token]')")
    assert await page.run("sessionStorage.length") == 0
    assert {url for url in page.requests if not url.startswith(f"{stage.line.url}/")} == set()


async def test_a_token_that_is_refused_later_leads_back_to_the_login(stage: Stage) -> None:
    await stage.visit()
    token = json.dumps(f"{TOKENS['alice']}x")
    await stage.page.run(f"sessionStorage.setItem('mail-console-token', {token})")
    await stage.page.visit("about:blank")
    await stage.page.visit(f"{stage.line.url}/console")
    await stage.shows("your token is not valid any more", ".problem")
    assert await stage.page.run("sessionStorage.length") == 0


async def test_a_task_is_started_and_watched_while_the_line_is_cut(stage: Stage) -> None:
    page, line = stage.page, stage.line
    await stage.visit()
    await stage.click("New task")
    await stage.write("dialog textarea", "go five steps")
    await page.press("Enter", ctrl=True)
    await stage.shows("live", ".link")
    rows = "document.querySelectorAll('.row').length"
    assert await page.until(rows) == 1
    stage.agent.permits.release()
    grown = await page.until(f"{rows} > 1 && {rows}")
    await line.cut()
    await stage.shows("connection lost", ".link")
    stage.agent.permits.release()
    before = line.accepted
    await line.mend()
    await stage.shows("live", ".link")
    assert line.accepted > before
    assert await page.until(f"{rows} > {grown} && {rows}")
    for _ in range(4):
        stage.agent.permits.release()
    await stage.shows("Done: go five steps", ".side .answer")
    await stage.shows("completed", ".head .state")
    task_id = await page.run("decodeURIComponent(location.hash.split('/')[2])")
    task = (await stage.http.get(f"/tasks/{task_id}", headers=bearer("alice"))).json()
    count = task["event_count"]
    await page.until(f"document.querySelector('.row')?.getAttribute('aria-setsize') === '{count}'")
    assert [event["id"] for event in task["events"]] == [str(n + 1) for n in range(count)]
    await stage.write(".composer textarea", "and now")
    await page.press("Enter", ctrl=True)
    await stage.shows("Done: and now", ".side .answer")
    await page.run("location.hash = '#/tasks'")
    await stage.shows("go five steps", ".tasks a")


async def test_an_agent_is_interrupted_and_a_task_is_cancelled(stage: Stage) -> None:
    await stage.post("steps without end", "long")
    await stage.visit("#/tasks/long")
    await stage.click("Interrupt")
    await stage.write("dialog textarea", "interrupt and finish, in few steps")
    await stage.click("Interrupt", "dialog")
    await stage.shows("was interrupted", ".timeline")
    assert await stage.status("long") == "running"
    await stage.click("Cancel")
    await stage.click("Cancel the task", "dialog")
    await stage.shows("cancelled", ".head .state")
    assert await stage.status("long") == "cancelled"
    assert await stage.page.run("!document.querySelector('dialog')")


async def test_a_busy_model_is_shown_while_it_is_waited_for(stage: Stage) -> None:
    told = "429 from openai/gpt-5-mini, next attempt in 12 s"
    stage.agent.permits = asyncio.Semaphore(0)  # none is left of another test
    await stage.post("busy few steps, interrupt", "busy")
    await stage.visit("#/tasks/busy")
    await stage.shows(f"supervisor: {told}", ".head")
    await stage.shows(told, ".timeline")
    stage.agent.permits.release()
    await stage.shows("Done: busy few steps", ".side .answer")
    assert told not in await stage.page.run("document.querySelector('.head').innerText")
    await stage.shows("waits for its model", ".timeline")


async def test_a_run_that_the_step_limit_ended_says_so(stage: Stage) -> None:
    await stage.post("waste it", "cut")
    await stage.visit("#/tasks/cut")
    await stage.shows("The step limit (task_message_limit) ended the run.", ".side .answer")
    await stage.shows("step limit", ".timeline")


async def test_a_breakpoint_call_is_answered_by_keyboard(stage: Stage) -> None:
    page = stage.page
    await stage.post("consult somebody", "ask")
    await stage.visit("#/tasks/ask")
    await stage.shows("send_interrupt waits for you", ".open-call")
    await stage.shows("May I?", ".open-call")
    assert await page.run("document.querySelector('.composer textarea').disabled")
    await page.press("a")
    await page.until("document.activeElement.matches('.open-call textarea')")
    await page.write('"yes", but <b>gently</b>')
    await page.press("Enter", ctrl=True)
    await stage.shows('The person says: "yes", but <b>gently</b>', ".side .answer")
    assert await page.run("!document.querySelector('.open-call')")


async def _waits(inbox: Stage, task_id: str, body: str = "write to Ann") -> str:
    """Begin a task, and return the id of the approval that it waits for."""
    await inbox.post(body, task_id)
    async with asyncio.timeout(20):
        while True:
            query = {"task_id": task_id}
            answer = await inbox.http.get("/approvals", params=query, headers=bearer("alice"))
            if found := answer.json()["approvals"]:
                return str(found[0]["approval_id"])
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("how", "ctrl"),
    [("accept", False), ("ignore", False)]
    + [(how, True) for how in ("accept", "ignore", "edit", "response")],
)
async def test_a_held_call_is_answered_by_keyboard(inbox: Stage, how: str, ctrl: bool) -> None:
    page = inbox.page
    SENT.clear()
    task_id = f"{how} {ctrl}"
    approval = await _waits(inbox, task_id)
    await inbox.visit("#/approvals")
    await inbox.shows("send_mail waits for you", ".approval")
    await inbox.shows("1", "nav .count")
    await inbox.shows("<img src=x onerror", ".approval")
    await page.press({"accept": "a", "edit": "e", "response": "r", "ignore": "i"}[how])
    await page.until("!!document.activeElement.closest('.answer-form')")
    if how == "edit":
        await page.run("document.activeElement.select()")
        await page.write("ben@example.org")
        await inbox.shows("- ann@example.org", ".diff .gone")
        await inbox.shows("+ ben@example.org", ".diff .made")
        assert await page.run("document.querySelectorAll('.diff').length") == 1
    elif how == "response":
        await page.write("Ask <b>again</b> tomorrow")
    await page.press("Enter", ctrl=ctrl)
    await inbox.shows("Nothing waits for you", ".list-side")
    record = (await inbox.http.get(f"/approvals/{approval}", headers=bearer("alice"))).json()
    ends = {"accept": "accepted", "edit": "edited", "response": "responded", "ignore": "ignored"}
    assert (record["status"], record["answered_by"]) == (ends[how], "user:alice")
    await page.run(f"location.hash = '#/tasks/' + encodeURIComponent('{task_id}')")
    await inbox.shows("completed", ".head .state")
    to = {"accept": ["ann@example.org"], "edit": ["ben@example.org"]}.get(how, [])
    assert [one["to"] for one in SENT] == to
    assert all(one["text"] == f"Dear Ann,\n{HOSTILE}\nBest" and one["copies"] == 1 for one in SENT)
    if how == "response":
        await inbox.shows("Ask <b>again</b> tomorrow", ".side .answer")
    assert not set("\x1b\x07\u202e") & set(
        await page.run("document.querySelector('#app').innerHTML")
    )
    assert page.problems == []


async def test_an_address_that_no_font_draws_is_seen_before_it_is_approved(inbox: Stage) -> None:
    page = inbox.page
    SENT.clear()
    await _waits(inbox, "smuggled", "write to Ann secretly")
    escapes = cleaned(SMUGGLED)
    assert escapes.startswith("ann@example.org\\udb40\\udc2c\\udb40\\udc65")
    await inbox.visit("#/approvals")
    await inbox.shows(escapes, ".approval .details")
    await inbox.shows(TWICE, ".approval .details")
    await page.press("e")
    await inbox.shows(escapes, ".answer-form .passage")
    await page.press("Escape")
    await page.press("a")
    await page.until("!!document.activeElement.closest('.answer-form')")
    await inbox.shows(escapes, ".approval .details")
    await page.press("Enter")
    await inbox.shows("Nothing waits for you", ".list-side")
    await page.run("location.hash = '#/tasks/smuggled'")
    await inbox.shows("completed", ".head .state")
    assert [(one["to"], one["text"]) for one in SENT] == [(SMUGGLED, TWICE)]
    assert page.problems == []


AROUND = [("a", "b"), ("❤", "👍"), ("❤\ufe0f", "👍"), ("1", "\u20e3")]
"""What stands before and after a character."""

UNICODE = r"""(async () => {
  const {visible} = await import("/console/parts.js");
  const [blocks, hidden, shown] = [[], [], []];
  for (let first = 0; first < 0x110000; first += 0x1000) {
    const signs = Array.from({length: 0x1000}, (_, place) => String.fromCodePoint(first + place));
    const lines = signs.flatMap((sign) => AROUND.map(([one, two]) => one + sign + two));
    const text = new TextEncoder().encode(visible(lines.join("\n")));
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
    blocks.push([...hash].map((byte) => byte.toString(16).padStart(2, "0")).join(""));
    const differs = (sign) => visible(`a${sign}b`) !== `a${sign}b`;
    const unseen = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u;
    shown.push(...signs.filter((sign) => unseen.test(sign) && !differs(sign)));
    const seen = /[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}]/u;
    hidden.push(...signs.filter((sign) => seen.test(sign) && !unseen.test(sign) && differs(sign)));
  }
  return {blocks, hidden, shown};
})()"""


async def test_the_console_and_the_commands_show_the_same_characters(stage: Stage) -> None:
    await stage.visit()
    found = await stage.page.run(UNICODE.replace("AROUND", json.dumps(AROUND)))
    assert "".join(found["shown"]) == "\t\n"
    assert found["hidden"] == ["\u2800", "\U00016fe4", "\U0001d159"]  # they have no ink
    for place, told in enumerate(found["blocks"]):
        signs = map(chr, range(place * 0x1000, (place + 1) * 0x1000))
        lines = [f"{one}{sign}{two}" for sign in signs for one, two in AROUND]
        here = hashlib.sha256(cleaned("\n".join(lines)).encode()).hexdigest()
        assert told == here, f"U+{place:02X}000 and above"


async def test_the_server_tells_of_approvals_as_they_come_and_go(inbox: Stage) -> None:
    async with inbox.page.beginning_with("window.setInterval = () => 0"):
        await inbox.visit("#/approvals")  # nothing asks again and again there
    await inbox.shows("Nothing waits for you", ".list-side")
    approval = await _waits(inbox, "told")
    await inbox.shows("send_mail waits for you", ".approval")
    await inbox.shows("1", "nav .count")
    answer = {"type": "ignore", "args": None}
    headers = bearer("alice")
    done = await inbox.http.post(f"/approvals/{approval}", json=answer, headers=headers)
    assert done.status_code == 200
    await inbox.shows("Nothing waits for you", ".list-side")
    assert inbox.page.problems == []


async def test_a_call_says_whom_it_waits_for(inbox: Stage) -> None:
    await _waits(inbox, "signing", "sign it")
    await inbox.visit("#/tasks/signing")
    await inbox.shows("sign waits for an administrator", ".open-call")
    assert await inbox.page.run("!document.querySelector('.open-call button')")
    await inbox.visit("#/approvals", who="admin")
    await inbox.shows("sign waits for you", ".approval")
    await inbox.click("Ignore i", ".approval")
    await inbox.click("Ignore and end", ".approval")
    await inbox.shows("Nothing waits for you", ".list-side")


async def test_answers_that_are_wrong_or_late_are_told(inbox: Stage) -> None:
    page = inbox.page
    approval = await _waits(inbox, "late")
    await inbox.visit("#/tasks/late")
    await inbox.click("Edit", ".approval")
    copies = "[...document.querySelectorAll('.answer-form textarea')][2]"
    await page.until(f"!!{copies}?.closest('.answer-form').contains(document.activeElement)")
    await page.run(f"{copies}.focus(), {copies}.select()")
    await page.write("many")
    await page.press("Enter", ctrl=True)
    await inbox.shows("copies is not JSON", ".answer-form .problem")
    await page.run(f"{copies}.select()")
    await page.write('{"x": 1}')
    await page.press("Enter", ctrl=True)
    problem = "document.querySelector('.answer-form .problem')?.innerText"
    await page.until(f"{problem}?.includes('copies') && !{problem}.includes('is not JSON')")
    answer = {"type": "ignore", "args": None}
    headers = bearer("alice")
    done = await inbox.http.post(f"/approvals/{approval}", json=answer, headers=headers)
    assert done.status_code == 200
    await inbox.shows("completed", ".head .state")
    await page.until("!document.querySelector('.approval')")
    await page.run("location.hash = '#/approvals'")
    await inbox.click("all", ".list-side")
    await inbox.shows("ignored", ".page-side .approval")


async def _focus(page: Page, selector: str) -> None:
    await page.until(f"document.activeElement.matches({json.dumps(selector)})")


async def _help(stage: Stage, inbox: Stage) -> None:
    await stage.visit()
    await stage.page.press("?")
    await stage.shows("accept, edit, respond, ignore", "dialog .keys")


async def _new(stage: Stage, inbox: Stage) -> None:
    await stage.visit()
    await stage.page.press("n")
    await _focus(stage.page, "dialog textarea")


async def _places(stage: Stage, inbox: Stage) -> None:
    await stage.visit("#/approvals")
    for key, name in (("t", "Tasks"), ("s", "Swarm")):
        await stage.page.press(key)
        await stage.shows(name, "nav [aria-current]")


async def _search(stage: Stage, inbox: Stage) -> None:
    for who in ("alice", "editor"):
        await stage.visit(who=who)
        await stage.page.press("/")
        await _focus(stage.page, "input[type=search]")


async def _numbers(stage: Stage, inbox: Stage) -> None:
    await stage.visit()
    for key, name in (("2", "Approvals"), ("3", "Memories"), ("1", "Tasks")):
        await stage.page.press(key)
        await stage.shows(name, "nav [aria-current]")


async def _modes(stage: Stage, inbox: Stage) -> None:
    await stage.visit("#/tasks/keys")
    await stage.page.until("!!document.querySelector('.row')")
    for name in ("Sequence", "Waterfall", "Timeline"):
        await stage.page.press("v")
        await stage.shows(name, ".modes [aria-pressed=true]")


async def _steps(stage: Stage, inbox: Stage) -> None:
    page = stage.page
    await stage.visit()
    await page.until("document.querySelectorAll('.tasks li').length > 1")
    for key, place in (("j", 1), ("j", 2), ("k", 1)):
        await page.press(key)
        await _focus(page, f".tasks li:nth-child({place}) a")
    await stage.visit("#/tasks/keys")
    await page.until("!!document.querySelector('#event-8')")
    for key, number in (("k", 8), ("k", 7), ("j", 8)):
        await page.press(key)
        await stage.shows(f"Event {number}", ".side h2")
    for task_id in ("first", "second"):
        await _waits(inbox, task_id)
    await inbox.visit("#/approvals")
    for key, place in (("j", 2), ("k", 1)):
        await page.until("document.querySelectorAll('.letters li').length > 1")
        await page.press(key)
        await page.until(f"!!document.querySelector('li:nth-child({place}) [aria-current]')")


async def _timeline(stage: Stage, inbox: Stage) -> None:
    await stage.visit("#/tasks/keys")
    await stage.page.until("!!document.querySelector('#event-8')")
    await stage.page.run("document.querySelector('.scroller').focus()")
    for key, number in (("Home", 1), ("ArrowDown", 2), ("End", 8), ("ArrowUp", 7)):
        await stage.page.press(key)
        await stage.page.until(f"!!document.querySelector('#event-{number}[aria-selected=true]')")


async def _message(stage: Stage, inbox: Stage) -> None:
    await stage.visit("#/tasks/keys")
    await stage.page.until("!!document.querySelector('.composer')")
    await stage.page.press("m")
    await _focus(stage.page, ".composer textarea")


async def _mail(stage: Stage, inbox: Stage) -> None:
    letter = {"recipient_id": "reviewer", "content": "Keys?"}
    told = await stage.http.post("/messages", json=letter, headers=bearer("editor"))
    await stage.visit(f"#/mail/letter/{told.json()['message_id']}", who="reviewer")
    await stage.shows("Keys?", ".letter")
    for key, title in (("c", "New message"), ("r", "Reply")):
        await stage.page.press(key)
        await stage.shows(title, "dialog h2")
        await stage.page.press("Escape")
        await stage.page.until("!document.querySelector('dialog')")


async def _answers(stage: Stage, inbox: Stage) -> None:
    """What comes of each answer is seen above; here one is changed for another."""
    await _waits(inbox, "keys")
    await inbox.visit("#/approvals")
    await inbox.shows("waits for you", ".approval")
    for key, place in (("e", "textarea"), ("r", "textarea"), ("i", ".main"), ("a", ".main")):
        await inbox.page.press(key)
        await _focus(inbox.page, f".answer-form {place}")
        await inbox.page.press("Escape")
    await inbox.page.press("Enter")
    await inbox.shows("send_mail is answered", "[role=status]")


async def _first_call(stage: Stage, inbox: Stage) -> None:
    await _waits(inbox, "call")
    await inbox.visit("#/tasks/call")
    await inbox.shows("waits for you", ".open-call")
    await inbox.page.press("k")  # an event is looked at meanwhile
    await inbox.shows("Event", ".side h2")
    await inbox.page.press("a")
    for place in (".open-call .actions button", ".answer-form .main"):
        await _focus(inbox.page, place)
        await inbox.page.press("Enter")
    await inbox.shows("completed", ".head .state")


async def _escape(stage: Stage, inbox: Stage) -> None:
    page = stage.page
    await stage.visit("#/tasks/keys")
    await page.until("!!document.querySelector('.composer')")
    await page.press("j")
    await stage.shows("Event", ".side h2")
    await page.press("m")
    await page.press("Escape")
    await page.until("document.activeElement === document.body")
    await stage.shows("Event", ".side h2")
    await page.press("Escape")
    await page.until("!document.querySelector('.side-head')")
    await page.press("Escape")
    await page.until("location.hash === '#/tasks'")


async def _send_key(stage: Stage, inbox: Stage) -> None:
    await stage.visit("#/tasks/keys")
    await stage.write(".composer textarea", "by keyboard")
    await stage.page.press("Enter", ctrl=True)
    await stage.shows("Done: by keyboard", ".side .answer")


KEYS: dict[str, Callable[[Stage, Stage], Awaitable[None]]] = {
    "`?`": _help,
    "`n`": _new,
    "`t`, `s`": _places,
    "`/`": _search,
    "`1`, `2`, `3` …": _numbers,
    "`v`": _modes,
    "`j`, `k`": _steps,
    "`Home`, `End`, arrows": _timeline,
    "`m`": _message,
    "`c`, `r`": _mail,
    "`a`, `e`, `r`, `i`": _answers,
    "`a`": _first_call,
    "`Esc`": _escape,
    "`Ctrl`+`Enter`": _send_key,
}


async def test_the_documented_keys_are_those_that_are_pressed_here() -> None:
    text = (ROOT / "docs" / "console.md").read_text("utf-8").partition("## Keyboard")[2]
    assert re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) == list(KEYS)


@pytest.mark.parametrize("keys", KEYS)
async def test_a_key_does_what_the_documentation_says(
    stage: Stage, inbox: Stage, keys: str
) -> None:
    if await stage.store.load_task(ALICE, "keys") is None:
        for task_id in ("other", "keys"):
            await seed(stage.store, task_id, 8)
    await KEYS[keys](stage, inbox)
    assert stage.page.problems == []


async def test_a_number_that_a_browser_rounds_is_not_sent_back(inbox: Stage) -> None:
    SENT.clear()
    await _waits(inbox, "rounded", "write to Ann many times")
    await inbox.visit("#/tasks/rounded")
    await inbox.shows("more digits than a browser keeps", ".approval .problem")
    await inbox.click("Edit", ".approval")
    await inbox.write(".answer-form textarea", "ben@example.org")
    await inbox.page.press("Enter", ctrl=True)
    await inbox.shows("too large for a browser", ".answer-form .problem")
    await inbox.click("Accept", ".approval")
    await inbox.click("Accept and run", ".approval")
    await inbox.shows("completed", ".head .state")
    assert [one["copies"] for one in SENT] == [MANY]


async def test_mail_that_was_set_aside_is_tried_again_and_discarded(stage: Stage) -> None:
    await stage.post(f"go {HOSTILE}", "aside")
    numbers = [await put_aside(stage.store, ALICE, "aside") for _ in range(2)]
    await stage.visit("#/tasks/aside")
    await stage.shows("is set aside", ".set-aside h2")
    await stage.shows("crashed 5 times", ".set-aside .problem")
    await stage.shows("<img src=x onerror", ".set-aside .passage")
    await stage.page.look(390, 800)
    await stage.usable(390)
    await stage.click("Discard", ".set-aside")
    await stage.page.until("document.querySelectorAll('.set-aside').length === 1")
    await stage.click("Try again", ".set-aside")
    await stage.page.until("!document.querySelector('.set-aside')")
    await stage.shows("completed", ".head .state")
    events = (await stage.http.get("/tasks/aside", headers=bearer("alice"))).json()["events"]
    told = [event["event"] for event in events]
    assert (told.count("mail_retried"), told.count("mail_discarded")) == (1, 1)
    assert told.count("task_complete") == 2
    assert await stage.store.mail_aside(ALICE, "aside") == []
    assert len(numbers) == 2
    assert stage.page.problems == []


async def test_hostile_text_is_text(stage: Stage) -> None:
    page = stage.page
    await seed(stage.store, ODD, 3, HOSTILE)
    await seed(stage.store, "mega", 2, "x" * 1_000_000 + HOSTILE)
    await stage.post(f"consult {HOSTILE}", "hostile")
    await stage.visit()
    await page.until("document.querySelectorAll('.tasks a').length >= 3")
    await stage.shows("<img src=x onerror", ".tasks")
    for place, number in (("hostile", 2), (ODD, 2), ("mega", 1)):
        await page.run(f"location.hash = '#/tasks/' + encodeURIComponent({json.dumps(place)})")
        await page.until(f"!!document.querySelector('#event-{number} .text')")
        await page.run(f"document.querySelector('#event-{number}').click()")
        await page.until("!!document.querySelector('.details .passage')")
        assert await page.run("document.querySelectorAll('.passage').length < 20")
        await page.run("document.querySelector('.side details summary').click()")
        await page.until("document.querySelectorAll('.side details .passage').length === 1")
        assert (
            await page.run(
                "document.querySelectorAll('#app script, #app img[src=x], a[href^=j]').length"
            )
            == 0
        )
        shown = await page.run("document.querySelector('#app').textContent.slice(0, 400000)")
        assert not set("\x1b\x07\u202e") & set(shown)
    assert (
        await page.run("document.querySelector('.details .passage').textContent.length") == 20_000
    )
    await stage.click("Show all 1,000,205 characters".replace("205", str(len(HOSTILE)).zfill(3)))
    await page.until("document.querySelector('.details .passage').textContent.length > 1000000")
    assert await page.run("document.title") == "MAIL console"
    assert await page.run("document.documentElement.scrollWidth") <= 1280
    assert {url for url in page.requests if not url.startswith(f"{stage.line.url}/")} == set()
    assert page.problems == []


async def test_a_log_of_20000_events_is_shown_at_once_in_little_memory(stage: Stage) -> None:
    page = stage.page
    await seed(stage.store, "huge", 20_000, "some text of a call " * 10)
    await stage.visit("#/tasks/huge")
    await page.until("!!document.querySelector('#event-20000 .text')")
    painted = await page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert painted < 5_000  # milliseconds; it is a tenth of a second on a machine that does nothing
    await page.run("document.querySelector('.scroller').focus()")
    await page.press("Home")
    await page.until("!!document.querySelector('#event-1 .text')")
    for place in range(0, 20_000, 1_000):
        await page.run(f"document.querySelector('.scroller').scrollTop = {place * 56}")
        await page.until(f"!!document.querySelector('#event-{place + 5} .text')")
    assert await page.run("document.querySelectorAll('.row').length") < 80
    assert await page.run("performance.memory.usedJSHeapSize") < 64 * 1024 * 1024
    assert page.problems == []
    read = [url for url in page.requests if "/task?" in url]
    assert len(read) < 80


async def test_the_swarm_is_shown_with_what_one_stores_in_it(stage: Stage) -> None:
    await seed(stage.store, "stored", 2)
    await stage.visit()
    await stage.page.until("!!document.querySelector('.bar')")
    await stage.page.press("s")
    await stage.shows("a swarm for tests", ".swarm")
    status = (await stage.http.get("/status", headers=bearer("alice"))).json()
    await stage.shows(f"Tasks\n{status['storage']['tasks']}", ".swarm")
    await stage.page.press("t")
    await stage.page.until("!!document.querySelector('.tasks a')")


async def test_the_graph_shows_who_works_and_who_writes_to_whom(stage: Stage) -> None:
    page = stage.page
    await stage.post("steps for the graph", "graph")
    await stage.visit("#/swarm")
    await page.until("document.querySelector('.node.busy')?.textContent.includes('in a turn')")
    name = HOSTILE[:40]
    await page.until(f"document.querySelectorAll('.node.agent').length === {len(CREW)}")
    label = (
        "[...document.querySelectorAll('.node')].find(one => one.textContent.includes('scribe'))"
    )
    await page.until(f"!!{label}")
    await page.run(f"{label}.focus()")
    await page.press("Enter")
    await stage.shows("scribe, idle, 0 messages waiting", "section.chosen")
    await stage.shows(name[:20], "section.chosen dd")
    assert await page.run("document.querySelectorAll('.edge.out').length") == 2
    assert await page.run("document.querySelectorAll('#app img[src=x], #app script').length") == 0
    await page.press("Escape")
    await page.until("!document.querySelector('section.chosen')")
    assert page.problems == []
    answer = await stage.http.post("/tasks/graph/cancel", headers=bearer("alice"))
    assert answer.status_code == 200


async def test_a_task_is_a_sequence_of_agents_and_a_waterfall(stage: Stage) -> None:
    page = stage.page
    await seed(stage.store, "drawn", 400, HOSTILE)
    await stage.visit("#/tasks/drawn")
    await page.until("!!document.querySelector('#event-400 .text')")
    await page.press("v")
    await page.until("document.querySelectorAll('.sequence .box').length > 5")
    assert await page.run("document.querySelectorAll('.row').length") < 80
    assert "alice" in await page.run("document.querySelector('.head-row').textContent")
    await page.run("document.querySelector('.scroller').focus()")
    await page.press("Home")
    await page.until("!!document.querySelector('.sequence line[marker-end]')")
    label = await page.run("document.querySelector('#event-1').textContent")
    assert "<img src=x onerror" in label
    await stage.shows("Event 1", ".side h2")
    await page.press("v")
    await page.until("document.querySelectorAll('.Waterfall .bar-of').length > 5")
    await page.until("!!document.querySelector('#event-1[aria-selected=true]')")
    shown = await page.run("document.querySelector('#app').innerHTML")
    assert not set("\x1b\x07\u202e") & set(shown)
    assert await page.run("document.querySelectorAll('#app script, #app img[src=x]').length") == 0
    assert page.problems == []


async def test_an_administrator_sees_everybodys_tasks(stage: Stage) -> None:
    await stage.post("hers alone", "hers")
    await stage.post("consult somebody else", "waiting")
    own = {"body": "the administrator's", "task_id": "own"}
    told = await stage.http.post("/message", json=own, headers=bearer("admin"))
    assert told.status_code == 200, told.text
    await stage.visit(who="admin")
    await stage.shows("user:alice", ".tasks")
    await stage.page.run("document.querySelector('.tasks a[href*=\"tasks/own/\"]').click()")
    await stage.shows("Done: the administrator's", ".side .answer")
    assert await stage.page.run("!!document.querySelector('.composer')")
    await stage.page.press("Escape")
    await stage.write("input[type=search]", "hers alone")
    await stage.page.until("document.querySelectorAll('.tasks a').length === 1")
    await stage.page.run("document.querySelector('.tasks a').click()")
    await stage.shows("Done: hers alone", ".side .answer")
    await stage.shows("user:alice", ".side")
    assert not await stage.page.run("!!document.querySelector('.composer')")
    await stage.page.run("location.hash = '#/tasks/waiting/user%3Aalice'")
    await stage.click("Cancel")
    await stage.click("Cancel the task", "dialog")
    await stage.shows("cancelled", ".head .state")
    assert await stage.status("waiting") == "cancelled"
    await stage.visit("#/tasks/hers/user%3Aalice", "bob")
    await stage.shows("only administrators see the tasks of other callers", ".problem")


async def test_an_administrator_makes_and_revokes_a_token(stage: Stage) -> None:
    page = stage.page
    await stage.visit("#/tokens", "admin")
    await stage.click("New token")
    await stage.write("dialog input[name=id]", "dora")
    await stage.write("dialog input[name=label]", ODD)
    await stage.click("Create", "dialog")
    await page.until("!!document.querySelector('.secret')")
    token = await page.run("document.querySelector('.secret').value")
    headers = {"Authorization": f"Bearer {token}"}
    assert (await stage.http.get("/whoami", headers=headers)).json()["id"] == "dora"
    await stage.click("Done", "dialog")
    row = "[...document.querySelectorAll('tbody tr')].find(one => one.textContent.includes('dora'))"
    await page.until(f"!!{row}")
    assert token not in await page.run("document.documentElement.outerHTML")
    await page.run(f"{row}.querySelector('button').click()")
    await stage.click("Revoke", "dialog")
    await page.until(f"{row}.textContent.includes('revoked')")
    rows = (await stage.http.get("/tokens", headers=bearer("admin"))).json()["tokens"]
    assert [one["state"] for one in rows if one["id"] == "dora"] == ["revoked"]
    assert await page.run("document.querySelectorAll('#app img[src=x], #app script').length") == 0
    for view in ("tokens", "outbox", "registry"):
        await stage.visit(f"#/{view}", "alice")
        await stage.shows("Tasks", "main h1")
        assert [url for url in page.requests if url.endswith(("/tokens", "/outbox"))] == []


async def test_mail_for_other_swarms_is_tried_again_and_discarded(stage: Stage) -> None:
    row = TaskRow("lost", str(ALICE), (str(ALICE),), NOW, "supervisor")
    gone = OutboxRow("lost", HOSTILE, "m1", HOSTILE, "response", "r1", "{}", NOW, "dead")
    await stage.store.commit(
        Commit(owner=ALICE, task=row, new=True, outbox=(gone._replace(last_error=HOSTILE),))
    )
    await stage.visit("#/outbox", "admin")
    await stage.shows("given up", ".cards")
    await stage.shows("<img src=x", ".cards .problem-text")
    await stage.click("Discard", ".cards")
    await stage.click("Discard", "dialog")
    await stage.shows("Nothing waits", "main")
    assert await stage.store.list_outbox("test-swarm") == []
    await stage.visit("#/registry", "admin")
    await stage.shows("test-swarm", ".cards")
    assert stage.page.problems == []


async def test_what_the_webhook_has_not_taken_is_sent_again_and_discarded(stage: Stage) -> None:
    row = TaskRow(ODD, str(ALICE), (str(ALICE),), NOW, "supervisor", TaskState.COMPLETED)
    lost = WebhookRow("w1", "ended", ODD, str(ALICE), "{}", NOW, "dead", 9, "", HOSTILE)
    waits = lost._replace(message_id="w2", state="waiting", next_at=LATER, last_error="")
    new = await stage.store.load_task(ALICE, ODD) is None  # other tests of this server make it
    await stage.store.commit(Commit(owner=ALICE, task=row, new=new, webhooks=(lost, waits)))
    await stage.visit("#/outbox", "admin")
    await stage.shows("None is set up", ".webhook")
    await stage.shows("given up", ".webhook .cards")
    await stage.shows("<img src=x", ".webhook .problem-text")
    await stage.click("Send now", ".webhook")
    await stage.page.until("!document.querySelector('.webhook .dead')")
    rows = await stage.store.list_webhooks("test-swarm", 0, 10)
    assert [(one.state, one.attempts) for one in rows] == [("waiting", 0), ("waiting", 9)]
    for left in (1, 0):
        await stage.click("Discard", ".webhook")
        await stage.click("Discard", "dialog")
        await stage.page.until(f"document.querySelectorAll('.webhook li').length === {left}")
    assert await stage.store.list_webhooks("test-swarm", 0, 10) == []
    shown = await stage.page.run("document.querySelector('#app').innerHTML")
    assert not set("\x1b\x07\u202e") & set(shown)
    assert await stage.page.run("document.querySelectorAll('#app img[src=x]').length") == 0
    assert stage.page.problems == []


async def test_a_participant_writes_reads_and_answers_mail(stage: Stage, tmp_path: Path) -> None:
    page, http = stage.page, stage.http
    await stage.visit(who="editor")
    await stage.shows("No messages yet", "main")
    await page.press("c")
    await page.until("!!document.querySelector('dialog option')")
    await page.run("document.querySelector('dialog option').selected = true")
    await stage.write("dialog input[name=subject]", ODD)
    await page.run("document.querySelector('dialog input[name=ack]').click()")
    await stage.write("dialog textarea", HOSTILE.replace("\x1b", "").replace("\x07", ""))
    await page.press("Enter", ctrl=True)
    await page.until("!document.querySelector('dialog')")
    sent, *_ = (await http.get("/messages?mark_read=false", headers=bearer("reviewer"))).json()[
        "messages"
    ]
    assert (sent["subject"], sent["wants_ack"]) == (ODD, True)
    await stage.visit(who="reviewer")
    await stage.shows("new", ".letters .unread")
    await page.run("document.querySelector('.letters a').click()")
    await stage.shows("<img src=x onerror", ".letter .passage")
    await page.until("!document.querySelector('.letters .unread')")
    await stage.write(".letter .actions input", "By five.")
    await stage.click("Acknowledge", ".letter")
    await stage.shows("acknowledged", ".letter [role=status]")
    await page.press("r")
    await stage.write("dialog textarea", "All good.")
    await stage.click("Send", "dialog")
    await page.until("!document.querySelector('dialog')")
    await stage.visit(f"#/mail/letter/{sent['id']}", "editor")
    await stage.shows("By five.", "table")
    await stage.shows("answered", "table")
    shown = await page.run("document.querySelector('#app').innerHTML")
    assert not set("\x1b\x07\u202e") & set(shown)
    assert await page.run("document.querySelectorAll('#app script, #app img[src=x]').length") == 0
    assert page.problems == []


async def test_threads_and_files_of_a_participant(stage: Stage) -> None:
    page, http = stage.page, stage.http
    await stage.visit("#/mail/threads", "editor")
    await stage.click("New thread")
    await stage.write("dialog input[name=title]", HOSTILE[:60])
    await page.until("!!document.querySelector('dialog option')")
    await page.run("document.querySelector('dialog option').selected = true")
    await stage.click("Create", "dialog")
    await stage.shows("<img src=x onerror", ".thread h2")
    await stage.write(".post textarea", "First <b>post</b>")
    await page.press("Enter", ctrl=True)
    await stage.shows("First <b>post</b>", ".posts .mine")
    name = quote("<img src=x onerror=alert(1)>\u202egnp.exe")
    put = await http.post(f"/files?filename={name}", content=b"A file.", headers=bearer("editor"))
    sent = {"recipient_id": "reviewer", "description": "the file"}
    path = f"/files/{put.json()['id']}/transfer"
    told = await http.post(path, json=sent, headers=bearer("editor"))
    await page.run("location.hash = '#/mail/files'")
    await stage.shows("img src=x onerror=alert(1)_", ".cards")
    await stage.visit(f"#/mail/letter/{told.json()['message_id']}", "reviewer")
    await stage.shows("7 bytes ·", ".letter")
    await stage.shows("Download", ".letter")
    assert page.problems == []
    await stage.visit("#/mail/files", "editor")
    await stage.click("Delete", ".cards")
    await stage.shows("You have uploaded no files", "main")
    assert not set("\u202e") & set(await page.run("document.querySelector('#app').innerHTML"))


async def test_a_memory_is_read_edited_and_undone(inbox: Stage) -> None:
    page = inbox.page
    first = {"value": f"Be brief.\n{ODD}"}
    path = "/memories/response_preferences"
    put = await inbox.http.put(path, json=first, headers=bearer("alice"))
    assert put.status_code == 200, put.text
    await inbox.visit("#/memories")
    await inbox.shows("response_preferences", ".letters")
    await page.run("document.querySelector('.letters a').click()")
    await inbox.shows("<img src=x onerror", ".letter .passage")
    await inbox.click("Edit", ".letter")
    await page.until("document.activeElement.matches('.letter textarea')")
    await page.run("document.activeElement.select()")
    await page.write("Be <b>kind</b>.")
    await page.press("Enter", ctrl=True)
    await inbox.shows("Saved.", ".letter")
    read = (await inbox.http.get(path, headers=bearer("alice"))).json()
    assert read["value"] == "Be <b>kind</b>."
    await page.run("[...document.querySelectorAll('.letter summary')].at(-1).click()")
    await inbox.click("Use this text again", ".letter details[open]")
    await inbox.shows("again.", ".letter [role=status]")
    read = (await inbox.http.get(path, headers=bearer("alice"))).json()
    assert read["value"] == first["value"]
    assert page.problems == []
    await inbox.page.look(390, 800, dark=True)
    await inbox.usable(390)


VIEWS = {
    "mail": ("#/mail", "reviewer", ".letters li"),
    "thread": ("#/mail/threads", "reviewer", ".letters li"),
    "login": ("", None, "input"),
    "all": ("", "admin", ".chip[aria-pressed]"),
    "graph": ("#/swarm", "admin", ".node"),
    "registry": ("#/registry", "admin", ".cards li"),
    "outbox": ("#/outbox", "admin", "h1"),
    "tokens": ("#/tokens", "admin", "tbody tr"),
    "tasks": ("", "alice", ".tasks a strong"),
    "swarm": ("#/swarm", "alice", ".swarm dd"),
    "task": ("#/tasks/seen", "alice", "#event-30 .text"),
    "sequence": ("#/tasks/seen", "alice", "#event-30 .text"),
    "waterfall": ("#/tasks/seen", "alice", "#event-30 .text"),
}


PHONE, DESK = (390, True), (1280, False)  # width, and whether it is dark


async def test_people_can_use_the_approvals(inbox: Stage) -> None:
    await _waits(inbox, "use")
    for width, dark in (DESK, PHONE):
        await inbox.page.look(width, 800, dark=dark)
        await inbox.visit("#/approvals/any")
        await inbox.page.until("!!document.querySelector('.approval')")
        await inbox.page.press("e")
        await inbox.page.until("!!document.querySelector('.answer-form textarea')")
        await inbox.usable(width)


@pytest.mark.parametrize("view", VIEWS)
async def test_people_can_use_it(stage: Stage, view: str) -> None:
    """Each view fits both windows; axe-core looks at it in one, at the next view in the other."""
    page = stage.page
    if await stage.store.load_task(ALICE, "seen") is None:
        await seed(stage.store, "seen", 30)
    if view in ("mail", "thread"):
        thread = {"title": "Release", "participants": ["reviewer"], "initial_message": "Ready?"}
        made = await stage.http.post("/threads", json=thread, headers=bearer("editor"))
        assert made.status_code == 200, made.text
    place, who, ready = VIEWS[view]
    windows = (PHONE, DESK) if list(VIEWS).index(view) % 2 else (DESK, PHONE)
    await stage.visit(place, who)
    await page.until(f"!!document.querySelector('{ready}')")
    if view in ("sequence", "waterfall"):
        await stage.click(view.title(), ".modes")
        await page.until(f"!!document.querySelector('.{view.title()}')")
    for width, dark in windows:
        await page.look(width, 800, dark=dark)
        await page.until(f"innerWidth === {width}")
        assert await page.run("document.documentElement.scrollWidth") <= width
    await stage.usable(windows[1][0])
