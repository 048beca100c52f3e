"""Pictures of the console in Chromium: ``make pictures`` draws those of the documentation anew.

``python -m tests.server.pictures --all FOLDER`` draws every view wide and narrow, light and dark,
to be looked at, and says what does not fit. The server is a real one, and so are its agents but for
their scripted models; the log of the one task that shows durations and costs is written by hand.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx

from mail import Approval, MAILAction
from mail.api import MAILSwarmTemplate
from mail.auth.callers import hash_token
from mail.config.server import FederationConfig, SwarmConfig, WebhookConfig
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import EventRow, OutboxRow, Owner, TaskRow, TokenRow
from mail.db.webhooks import WebhookRow
from mail.llm import call, fail
from mail.llm.script_view import ScriptView
from mail.net.endpoints import make_endpoint
from mail.server.app import create_app
from tests.server.kit import config, put_aside, registry_file, running_server
from tests.support.browser import Page, opened
from tests.support.hooks import SECRET, receiving
from tests.support.swarm import scripted_agent

ROOT: Final = Path(__file__).parents[2]
ASSETS: Final = ROOT / "docs" / "assets"
AXE: Final = (ROOT / "tests" / "support" / "axe" / "axe.min.js").read_text("utf-8")
SWARM: Final = "harbour"
INES: Final = Owner(SWARM, "user", "ines")
PEOPLE: Final = {
    "root": "admin", "ines": "user", "tomas": "user", "keeper": "agent", "pilot": "agent",
}  # fmt: skip
TOKENS: Final = {who: f"mail_{who}-{'0' * 32}" for who in PEOPLE}
QUESTION: Final = "When may the Marigold leave on Friday?"
ANSWER: Final = "At 13:40, an hour and a half before high water. Her pilot is Brandt."
MAIL: Final = (
    "Dear captain,\n\nyour berth on Friday is 7 instead of 4: the crane at 4 is out of order.\n"
    "The water is deep enough from 13:40 to 16:50.\n\nThe harbour office"
)
SEND: Final = MAILAction(
    "send_mail",
    "Send a mail.",
    {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("to", "subject", "text")},
        "required": ["to", "text"],
    },
    lambda arguments: f"sent to {arguments['to']}",
    approval=Approval(feedback={"edit": "response_preferences"}),
)
TIDES: Final = MAILAction(
    "read_tides",
    "Read the tide table.",
    {
        "type": "object",
        "properties": {
            "day": {"type": "string"},
            "quays": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["day"],
    },
    lambda arguments: '{"high water": "15:10", "metres": {"north": 4.2, "south": 3.9}}',
)
HIGH_WATER: Final = (
    "High water is at **15:10**; see [the table](https://harbour.example/tides).\n\n"
    "| Quay | Height |\n| --- | --- |\n| north | 4.2 m |\n| south | 3.9 m |"
)
CREW: Final = {
    "harbourmaster": ("tides", "berths", "pilots", "letters"),
    "tides": ("harbourmaster", "berths", "forecast@weather"),
    "berths": ("harbourmaster", "tides", "cranes"),
    "pilots": ("harbourmaster", "keeper"),
    "letters": ("harbourmaster", "pilot"),
    "cranes": ("berths",),
}


# --- the swarm ----------------------------------------------------------------------------------


def _tell_tides(view: ScriptView) -> Any:
    """Have high water looked up, and tell it in Markdown."""
    if view.new_results and view.new_results[0].tool == "read_tides":
        body = "At 15:10: 4.2 m at the north quay, 3.9 m at the south quay."
        return call("send_response", target="harbourmaster", subject="Re: Friday", body=body)
    if view.body.startswith("At 15:10"):
        return call("task_complete", finish_message=HIGH_WATER)
    if view.mail_from("harbourmaster") and "quays" in view.body:
        return call("read_tides", day="Friday", quays=["north", "south"])
    if "high water" in view.body:
        body = "When is high water on Friday, and how high is it?\nPlease for both quays."
        return call("send_request", target="tides", subject="Friday", body=body)
    return None


async def _answer(view: ScriptView) -> Any:
    """Do what the task's words ask for."""
    if view.new_results and view.new_results[0].tool == "send_mail":
        return call("task_complete", finish_message="The captain knows.")
    if told := _tell_tides(view):
        await asyncio.sleep(0.4)
        return told
    if "berth of the Marigold" in view.body:
        subject = "Your berth on Friday"
        return call("send_mail", to="captain@marigold.example", subject=subject, text=MAIL)
    if "crane" in view.body:
        return fail("the provider is out of tokens", status=402)
    if "tide tables" in view.body:
        ports = ("Sandhaven", "Holm", "Ness")
        return [call("send_request", target="tides", subject=p, body=p) for p in ports]
    if view.body in ("Sandhaven", "Holm", "Ness"):
        await asyncio.Event().wait()
    return call("task_complete", finish_message="Done; the log book has it.")


def _swarm(name: str, crew: Mapping[str, Sequence[str]]) -> MAILSwarmTemplate:
    entrypoint = next(iter(crew))
    agents = [
        scripted_agent(
            agent,
            _answer,
            *targets,
            actions={entrypoint: [SEND], "tides": [TIDES]}.get(agent, []),
            enable_entrypoint=agent == entrypoint,
            enable_interswarm=agent == "tides",
            can_complete_tasks=agent == entrypoint,
        )
        for agent, targets in crew.items()
    ]
    return MAILSwarmTemplate(
        name=name, agents=agents, entrypoint=entrypoint, enable_interswarm=True,
        description="Plans berths, pilots and letters around the tides.",
        participants=[{"name": name, "description": ""} for name in ("keeper", "pilot")],
        memories={"response_preferences": "Be brief.", "triage_preferences": "Storms come first."},
    )  # fmt: skip


class Log:
    """The log of a task that took a while: events, each some milliseconds after the one before."""

    def __init__(self, began: datetime) -> None:
        self.moment = began
        self.events: list[EventRow] = []
        self.used: dict[str, dict[str, Any]] = {}

    def add(self, kind: str, wait: int, /, **extra: Any) -> None:
        self.moment += timedelta(milliseconds=wait)
        stamp = self.moment.isoformat()
        self.events.append(EventRow(kind, stamp, "", json.dumps(extra)))

    def mail(self, sender: str, to: str, subject: str, body: str, kind: str = "request") -> None:
        who = {"address_type": "user" if sender == "ines" else "agent", "address": sender}
        message = {
            "task_id": "high-water", "request_id": "1", "sender": who, "sender_swarm": SWARM,
            "recipient": {"address_type": "agent", "address": to}, "recipient_swarm": SWARM,
            "subject": subject, "body": body, "routing_info": {},
        }  # fmt: skip
        stamp = self.moment.isoformat()
        full = {"id": "1", "timestamp": stamp, "message": message, "msg_type": kind}
        self.add("new_message", 15, full_message=full)

    def think(self, agent: str, took: int, tokens: int) -> None:
        usage = {
            "prompt_tokens": tokens, "completion_tokens": tokens // 9,
            "total_tokens": tokens + tokens // 9, "cost": tokens * 6.4e-7,
        }  # fmt: skip
        sums = self.used.setdefault(agent, {"calls": 0} | dict.fromkeys(usage, 0))
        for name, value in ({"calls": 1} | usage).items():
            sums[name] += value
        model = "openai/gpt-5-mini"
        self.add("model_usage", took, caller=agent, model=model, duration_ms=took, usage=usage)

    def call(self, agent: str, tool: str, took: int, why: str = "", **arguments: Any) -> None:
        extra = {"caller": agent, "tool_name": tool, "tool_args": arguments, "duration_ms": took}
        self.add("tool_call", 1, **extra, **({"reasoning": why} if why else {}))

    def done(self, agent: str, tool: str, took: int, result: str) -> None:
        self.add(
            "action_complete", took, caller=agent, tool_name=tool, result=result, duration_ms=took
        )

    def ask(self, agent: str, to: str, took: int, subject: str, body: str, why: str = "") -> None:
        self.call(agent, "send_request", took, why, target=to, subject=subject, body=body)
        self.mail(agent, to, subject, body)

    def reply(self, agent: str, to: str, took: int, subject: str, body: str) -> None:
        self.call(agent, "send_response", took, target=to, subject=subject, body=body)
        self.mail(agent, to, subject, body, "response")


def _friday(began: datetime) -> Log:
    log = Log(began)
    log.mail("ines", "harbourmaster", "New Message", QUESTION)
    log.think("harbourmaster", 1830, 1420)
    why = "I need the water first, and a pilot who is free then. Both can be asked at once."
    log.ask("harbourmaster", "tides", 1830, "High water", "When is high water on Friday?", why)
    log.ask("harbourmaster", "pilots", 1830, "Pilot", "Who is free on Friday afternoon?")
    log.think("tides", 2210, 2110)
    log.call("tides", "read_tide_table", 2210, day="2027-03-05", port="harbour")
    log.think("pilots", 440, 1800)
    log.call("pilots", "read_roster", 1440, day="Friday")
    log.done("pilots", "read_roster", 312, "Brandt 12:00 to 20:00\nOdell 18:00 to 02:00")
    log.done("tides", "read_tide_table", 904, "high water 15:10, 4.2 m; low water 21:24, 0.9 m")
    log.think("tides", 1610, 2600)
    log.reply("tides", "harbourmaster", 1610, "High water", "At 15:10, 4.2 m.")
    log.think("pilots", 1120, 2050)
    log.reply("pilots", "harbourmaster", 1120, "Pilot", "Brandt, from noon.")
    log.think("harbourmaster", 2650, 3300)
    body = "She draws 3.8 m. Is berth 7 deep enough from 13:40 on?"
    log.ask("harbourmaster", "berths", 2650, "Depth", body, "4.2 m at 15:10; she needs 3.8 m.")
    log.think("berths", 930, 900)
    log.reply("berths", "harbourmaster", 930, "Depth", "Yes, until 16:50.")
    log.think("harbourmaster", 1400, 3900)
    log.call("harbourmaster", "task_complete", 1400, finish_message=ANSWER)
    log.add("task_complete_call", 1, caller="harbourmaster")
    ended = json.dumps({"status": "completed", "response": ANSWER})
    log.events.append(EventRow("task_complete", log.moment.isoformat(), "", ended))
    return log


# --- the server, and what is in it ---------------------------------------------------------------


@dataclass
class Harbour:
    """A server with something in each view."""

    url: str
    store: MemoryStore
    http: httpx.AsyncClient
    letter: str = ""

    async def send(self, who: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Ask the server for something, as somebody."""
        headers = {"Authorization": f"Bearer {TOKENS[who]}", "Prefer": "respond-async"}
        answer = await self.http.request(method, path, json=body, headers=headers, **more)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    async def task(self, who: str, body: str, task_id: str, until: str) -> None:
        """Begin a task, and wait until it has a state."""
        await self.send(who, "POST", "/message", {"body": body, "task_id": task_id})
        async with asyncio.timeout(20):
            while (await self.send(who, "GET", f"/tasks/{task_id}"))["status"] != until:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def harbour_served() -> AsyncIterator[Harbour]:
    store = MemoryStore()
    for who, role in PEOPLE.items():
        row = TokenRow(hash_token(TOKENS[who]), role, who, _ago(days=9), label="work")
        await store.put_token(row)
    os.environ["MAIL_WEBHOOK_SECRET"] = SECRET
    async with receiving() as receiver, httpx.AsyncClient(timeout=30) as http:
        receiver.answers = [503] * 1000
        hook = WebhookConfig(url=receiver.url, allow_private=True)
        reach = FederationConfig(allow_private=True, base_url="https://harbour.example")
        app = _app(_swarm(SWARM, CREW), store, federation=reach, webhook=hook)
        other = _app(_swarm("weather", {"forecast": ()}), MemoryStore())
        async with running_server(app) as server, running_server(other) as weather:
            http.base_url = httpx.URL(server.url)
            harbour = Harbour(server.url, store, http)
            await _fill(harbour, weather.url)
            known = {
                "name": "lighthouse",
                "version": "1.3",
                "description": "",
                "keywords": [],
                "public": True,
            }
            away = make_endpoint("lighthouse", "https://light.example", known, volatile=True)
            app.state.mail.registry.endpoints["lighthouse"] = {**away, "is_active": False}
            yield harbour


def _app(template: MAILSwarmTemplate, store: MemoryStore, **settings: Any) -> Any:
    swarm = SwarmConfig(name=template.name, registry_file=registry_file())
    update = {"swarm": swarm, **settings}
    return create_app(
        config(shutdown_grace=0.1).model_copy(update=update), template=template, store=store
    )


def _ago(**parts: float) -> str:
    return (datetime.now(UTC) - timedelta(**parts)).isoformat()


async def _fill(harbour: Harbour, weather: str) -> None:
    await harbour.task("tomas", "Note that the buoy at Holm is lit again", "buoy", "completed")
    await harbour.task("ines", "Which crane is free on Monday?", "crane", "failed")
    await harbour.task("ines", "Order fenders for berth 2", "fenders", "completed")
    await put_aside(harbour.store, INES, "fenders")
    log = _friday(datetime.now(UTC) - timedelta(minutes=12))
    row = TaskRow(
        "high-water", str(INES), (str(INES),), log.events[0].timestamp, "harbourmaster",
        TaskState.COMPLETED, title=QUESTION, usage=json.dumps(log.used),
    )  # fmt: skip
    later = _ago(hours=-1)
    mail = OutboxRow(
        "high-water", "weather", "m1", "tides", "request", "r1", "{}", _ago(minutes=9), "waiting",
        2, later, "connection refused",
    )  # fmt: skip
    refused = "HTTP status code 403: this token is not allowed to speak for harbour"
    dead = mail._replace(peer="lighthouse", message_id="m2", ref="r2", state="dead", attempts=6)
    lost = WebhookRow(
        "w1", "ended", "high-water", str(INES), "{}", _ago(hours=25), "dead", 149, "",
        "it answers with status 503",
    )  # fmt: skip
    post = Commit(
        owner=INES, task=row, new=True, events=tuple(log.events), webhooks=(lost,),
        outbox=(mail, dead._replace(next_at="", last_error=refused)),
    )  # fmt: skip
    await harbour.store.commit(post)
    body = {"name": "weather", "base_url": weather, "volatile": True}
    await harbour.send("root", "POST", "/swarms", body)
    await _write(harbour)
    await harbour.task(
        "ines", "Tell her captain about the new berth of the Marigold", "berth", "paused"
    )
    await harbour.task("tomas", "Send the berth of the Marigold to the pilots", "pilots", "paused")
    await harbour.task("ines", "Compare the tide tables of three ports", "tables", "running")


async def _write(harbour: Harbour) -> None:
    """Write letters, a thread and memories."""
    send = harbour.send
    token = {"role": "user", "id": "carol", "label": "laptop", "days": 30}
    await send("root", "POST", "/tokens", token)
    letters = (
        ("Fog until noon", "Nobody sees the breakwater from the bridge. I light it, too."),
        ("Lamp oil", "Forty litres are left. Please order before Thursday."),
        ("Urgent: a sail off Ness", "A small sail, no lights.\n\nShall I call the boat?"),
    )
    for subject, content in letters:
        letter = {
            "subject": subject, "content": content, "recipient_id": "pilot",
            "urgent": subject.startswith("Urgent"), "wants_ack": True,
        }  # fmt: skip
        harbour.letter = (await send("keeper", "POST", "/messages", letter))["message_id"]
    made = {
        "title": "The boat race on Sunday",
        "participants": ["pilot"],
        "initial_message": "The course crosses the fairway at 14:00. Can you hold the Odin back?",
    }
    thread = (await send("keeper", "POST", "/threads", made))["thread"]["id"]
    said = (("pilot", "Until 14:40, not longer."), ("keeper", "That is enough. I hoist a flag."))
    for who, content in said:
        await send(who, "POST", "/messages", {"content": content, "thread_id": thread})
    headers = {"Authorization": f"Bearer {TOKENS['keeper']}"}
    for name in ("course.pdf", "lights-2027.csv"):
        await harbour.http.post(f"/files?filename={name}", content=b"x" * 4200, headers=headers)
    value = "Be brief.\nWrite to captains in their language.\nSign with “The harbour office”."
    path = "/memories/response_preferences"
    await send("ines", "PUT", path, {"value": value})
    await send("ines", "PUT", path, {"value": value.replace("brief.", "brief and kind.")})


# --- the views ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """What to look at.

    Attributes:
        place: The address within the console.
        who: Who has logged in; nobody without a name.
        ready: What is there once the view has been drawn, as a selector.
        click: What is pressed then, as JavaScript with `$` and `$$` for selectors.
        shown: What is there after that, as a selector.
        script: What is done in the end, as JavaScript.
    """

    place: str
    who: str = "ines"
    ready: str = "h1"
    click: str = ""
    shown: str = "h1"
    script: str = ""


_SHORT: Final = (
    "const $ = (one) => document.querySelector(one);"
    "const $$ = (all) => [...document.querySelectorAll(all)];"
)
_EDIT: Final = (
    "const field = $$('.answer-form textarea')[2];"
    "field.value = field.value.replace('16:50', '16:30').replace('Dear', 'Good morning,');"
    "field.dispatchEvent(new Event('input', {bubbles: true}));"
    "setTimeout(() => $$('.diff').at(-1).scrollIntoView({block: 'center'}), 100);"
)
_SERIOUS: Final = (
    "axe.run().then(({violations}) => violations"
    ".filter(({impact}) => ['serious', 'critical'].includes(impact))"
    ".map(({id, nodes}) => `${id}: ${nodes[0].html.slice(0, 200)}`))"
)
_EXTENT: Final = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
_TASK: Final = "#/tasks/high-water"
VIEWS: Final = {
    "login": View("", "", ".login button"),
    "tasks": View("", ready=".tasks li"),
    "all-tasks": View("", "root", ".chip", "$$('.title .chip')[1]", ".tasks li"),
    "new-task": View("", "ines", ".tasks li", "$('button.main')", "dialog"),
    "keys": View("", "ines", ".tasks li", "$('.bar button')", "dialog"),
    "swarm": View(
        "#/swarm", "root", ".node.busy",
        "$$('.node').find((one) => one.textContent.includes('tides'))", ".chosen h2",
    ),
    "task": View(_TASK, "ines", "#event-28", "$('#event-22')", ".related li"),
    "overview": View(_TASK, "ines", ".side .answer"),
    "running": View("#/tasks/tables", "ines", ".link.live"),
    "sequence": View(_TASK, "ines", "#event-28", "$$('.modes button')[1]", ".sequence .box"),
    "waterfall": View(_TASK, "ines", "#event-28", "$$('.modes button')[2]", ".bar-of"),
    "set-aside": View("#/tasks/fenders", "ines", ".set-aside"),
    "approvals": View("#/approvals", "root", ".letters li"),
    "approval": View(
        "#/approvals/any", "ines", ".approval", "$('.approval .actions button:nth-of-type(2)')",
        ".answer-form textarea", _EDIT,
    ),
    "held": View("#/tasks/berth", "ines", ".approval"),
    "mail": View("#/mail", "pilot", ".letters li"),
    "letter": View("#/mail", "pilot", ".letters li", "$$('.letters a')[3]", ".letter .passage"),
    "thread": View("#/mail/threads", "pilot", ".letters li", "$('.letters a')", ".posts li"),
    "files": View("#/mail/files", "keeper", ".cards li"),
    "compose": View("#/mail", "keeper", ".letters li", "$('button.main')", "dialog option"),
    "receipts": View("#/mail/letter/{letter}", "keeper", ".letter table"),
    "memories": View("#/memories", "ines", ".letters li"),
    "memory": View(
        "#/memories/response_preferences", "ines", ".letter summary", "$('.letter summary')",
        "details[open]",
    ),
    "registry": View("#/registry", "root", ".cards li"),
    "outbox": View("#/outbox", "root", ".webhook .cards li"),
    "webhook": View(
        "#/outbox", "root", ".webhook .cards li", script="$('.webhook').scrollIntoView();"
    ),
    "tokens": View("#/tokens", "root", "tbody tr"),
    "revoke": View("#/tokens", "root", "tbody tr", "$('tbody button')", "dialog"),
}  # fmt: skip

WIDE, NARROW = (1280, 760), (390, 780)
QUALITY: Final = 84
DOCUMENTED: Final = {
    "console-task": ("task", False),
    "console-sequence": ("sequence", False),
    "console-waterfall": ("waterfall", True),
    "console-approval": ("approval", False),
    "console-swarm": ("swarm", False),
    "console-mail": ("thread", True),
    "console-memory": ("memory", False),
    "console-outbox": ("webhook", False),
}
"""Pictures of the documentation: the view, and whether it is dark."""

SIDE_BY_SIDE: Final = (("tasks", False), ("approval", False), ("sequence", True), ("thread", True))
"""What `console-narrow` shows."""


async def show(
    page: Page, harbour: Harbour, view: View, size: tuple[int, int], *, dark: bool
) -> None:
    """Open a view in a window."""
    await page.look(*size, dark=dark)
    await page.visit(f"{harbour.url}/console")
    token = json.dumps(TOKENS.get(view.who, ""))
    await page.run(f"sessionStorage.setItem('mail-console-token', {token})")
    await page.visit("about:blank")
    page.problems.clear()
    await page.visit(f"{harbour.url}/console{view.place.format(letter=harbour.letter)}")
    await page.until(f"!!document.querySelector({json.dumps(view.ready)})")
    if view.click:
        press = "dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
        await page.run(f"(() => {{ {_SHORT} {view.click}.{press} }})()")
        await page.until(f"!!document.querySelector({json.dumps(view.shown)})")
    await page.run(f"(() => {{ {_SHORT} {view.script} }})()")
    await asyncio.sleep(0.4)  # what was asked for meanwhile has come, and is drawn


async def draw_all(harbour: Harbour, page: Page, folder: Path, only: list[str]) -> list[str]:
    """Draw every view in each window; return what does not fit, and what axe-core finds serious."""
    problems = []
    for name, view in VIEWS.items():
        for size in (WIDE, NARROW) if not only or name in only else ():
            for dark in (False, True):
                await show(page, harbour, view, size, dark=dark)
                path = folder / f"{name}-{size[0]}{'-dark' if dark else ''}.png"
                path.write_bytes(await page.picture())
                wide, high = await page.run(_EXTENT)
                await page.run(AXE)
                found = [*page.problems, *await page.run(_SERIOUS)]
                if wide > size[0] or high > size[1] or found:
                    problems.append(f"{path.name}: {wide} by {high} pixels; {found}")
    return problems


async def draw_documented(harbour: Harbour, page: Page) -> None:
    """Draw the pictures of the documentation."""
    for name, (view, dark) in DOCUMENTED.items():
        await show(page, harbour, VIEWS[view], WIDE, dark=dark)
        (ASSETS / f"{name}.webp").write_bytes(await page.picture(QUALITY))
    parts = []
    for view, dark in SIDE_BY_SIDE:
        await show(page, harbour, VIEWS[view], NARROW, dark=dark)
        parts.append(base64.b64encode(await page.picture()).decode())
    await page.visit("about:blank")
    gap, (wide, high) = 16, NARROW
    await page.look(len(parts) * (wide + gap) + gap, high + 2 * gap)
    images = "".join(f'<img src="data:image/png;base64,{part}">' for part in parts)
    style = f"display:flex;gap:{gap}px;margin:{gap}px;background:#8799a8"
    await page.run(f"document.body.style = {json.dumps(style)}")
    await page.run(f"document.body.innerHTML = {json.dumps(images)}")
    await page.until("[...document.images].every((one) => one.complete)")
    (ASSETS / "console-narrow.webp").write_bytes(await page.picture(QUALITY))


async def run(arguments: argparse.Namespace) -> list[str]:
    """Start the server and the browser, draw what is asked for, and return what does not fit."""
    with tempfile.TemporaryDirectory() as folder:
        async with harbour_served() as harbour, opened(Path(folder)) as page:
            if arguments.all is None:
                await draw_documented(harbour, page)
                return []
            arguments.all.mkdir(parents=True, exist_ok=True)
            return await draw_all(harbour, page, arguments.all, arguments.views)


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="draw every view into a folder")
    parser.add_argument("views", nargs="*", metavar="VIEW", help="with --all: only these")
    if problems := asyncio.run(run(parser.parse_args())):
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
