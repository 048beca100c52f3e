"""Every method of `mail.client.MAILClient`, used once against a real server.

Starts a small MAIL server on a free loopback port: the swarm ``support`` with scripted agents, so
no provider and no key are needed. Says what each method returned. Ends with exit code 1 when an
answer is not as it should be, or when the client has a method that no step uses.
"""

import argparse
import asyncio
import contextlib
import inspect
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ports import free_port
from serving import (
    SWARMS,
    DemoFailedError,
    Place,
    headline,
    make_token,
    run_in_folder,
    server,
    short,
)

from mail.client import MAILClient
from mail.config import ClientConfig
from mail.errors import ClientHTTPError

TIME_LIMIT = 120.0
BETWEEN_SWARMS = {
    "send_interswarm_message",
    "stream_interswarm_message",
    "post_interswarm_message",
    "post_interswarm_response",
    "retry_outbox",
    "discard_outbox",
    "retry_webhook",
    "discard_webhook",
    "retry_set_aside",
    "discard_set_aside",
}
"""Methods for mail that this tour's server lacks: of other swarms, a webhook, or crashes."""

AT_THE_DESK = {
    "desk_messages": {
        "get_participants", "send_desk_message", "check_new_messages", "wait_for_mail",
        "get_desk_messages", "get_desk_message", "search_messages", "get_overdue_messages",
        "acknowledge_message",
    },
    "desk_threads": {
        "create_thread", "get_threads", "get_thread", "add_participant", "join_thread",
        "remove_participant",
    },
    "desk_files": {
        "upload_file", "transfer_file", "get_file", "get_files", "download_file", "delete_file",
    },
    "tokens_and_tasks_of_all": {
        "get_swarm_graph", "get_admin_tasks", "create_token", "get_tokens", "revoke_token",
    },
    "watch": {"get_metrics", "get_nodes"},
    "desk_teams": {"get_teams", "teammate_message", "teammate_broadcast"},
    "approvals": {"get_approvals", "get_approval", "answer_approval", "stream_approvals"},
    "memories": {"get_memories", "get_memory", "put_memory", "delete_memory"},
}  # fmt: skip
"""Steps in which two participants use the mail desk, and the methods that each one uses."""
PARTICIPANTS = ("editor", "reviewer")

REFUND = "My blanket from order A-1003 has a hole. I would like a refund."


@dataclass(frozen=True)
class Tour:
    """What the steps use: two servers, a customer's client of the first, and their tokens."""

    place: Place
    other: Place
    client: MAILClient
    token: str
    admin_token: str
    desk_tokens: tuple[str, str]


Step = Callable[[Tour], Awaitable[object]]


def expect(true: object, text: str) -> None:
    """Fail unless something holds."""
    if not true:
        raise DemoFailedError(text)


async def ping(tour: Tour) -> object:
    """What does the server say about itself?"""
    root = await tour.client.ping()
    expect(root["name"] == "mail", "this is no MAIL server")
    return root["swarm"]


async def get_health(tour: Tour) -> object:
    """Is it well?"""
    return await tour.client.get_health()


async def get_ready(tour: Tour) -> object:
    """Should it get work?"""
    ready = await tour.client.get_ready()
    expect(ready["status"] == "ready", "it should not")
    return ready


async def login(tour: Tour) -> object:
    """A wrong token is refused; the right one says who I am."""
    with contextlib.suppress(ClientHTTPError):
        await tour.client.login("mail_wrong-token")
        raise DemoFailedError("a wrong token was accepted")
    who = await tour.client.login(tour.token)
    expect(tour.client.user_id == "customer", "the token belongs to somebody else")
    return who


async def get_whoami(tour: Tour) -> object:
    """Who am I?"""
    return await tour.client.get_whoami()


async def get_status(tour: Tour) -> object:
    """How are the swarm and my instance of it?"""
    return await tour.client.get_status()


async def update_health(tour: Tour) -> object:
    """An admin tells others not to send work, and to send it again."""
    async with administrator(tour) as admin:
        told = await admin.update_health("unhealthy")
        await admin.update_health("healthy")
    return told


async def post_message(tour: Tour) -> object:
    """Ask, and wait for the answer."""
    answer = await tour.client.post_message("Where is order A-1002?", task_id="where")
    expect("on its way" in answer["response"], "the order was not found")
    return answer["response"]


async def post_message_stream(tour: Tour) -> object:
    """Ask for a refund and follow the events, decide as a person would, and follow them again."""
    paused = await last_event(tour, REFUND)
    [opened] = paused["breakpoints"]
    print(f"      a person is asked: {opened['name']} {short(opened['arguments'], 70)}")
    decision = {"call_id": opened["call_id"], "content": "approved"}
    done = await last_event(
        tour, "", resume_from="breakpoint_tool_call", breakpoint_tool_call_result=decision
    )
    expect("About the refund: approved" in done["response"], "the decision got lost")
    return done["response"]


async def get_tasks(tour: Tour) -> object:
    """Which tasks do I have?"""
    tasks = await tour.client.get_tasks()
    expect({"where", "refund"} <= set(tasks), "a task is missing")
    return {name: task["completed"] for name, task in tasks.items()}


async def get_task(tour: Tour) -> object:
    """How did one of them go?"""
    task = await tour.client.get_task("where")
    return {"task_id": task["task_id"], "events": len(task["events"])}


async def get_task_events(tour: Tour) -> object:
    """Replay its events."""
    async with await tour.client.get_task_events("refund") as events:
        kinds = [event.event async for event in events]
    expect(kinds.count("task_complete") == 2, "a pause and an end were expected")
    return kinds


async def cancel_task(tour: Tour) -> object:
    """Ask for a refund, and cancel it while it waits for a person."""
    await tour.client.post_message(REFUND, task_id="cancelled")
    task = await tour.client.cancel_task("cancelled")
    expect(not task["is_running"], "the task still runs")
    return {"task_id": task["task_id"], "is_running": task["is_running"]}


async def approvals(tour: Tour) -> object:
    """Ask for a refund, and answer the call that waits for a person as an approval."""
    client = tour.client
    await client.post_message(REFUND, task_id="approved")
    async with await client.stream_approvals() as events:
        opened = await anext(events)
    expect(opened.event == "approval_opened", f"an approval was expected: {opened.event}")
    [waiting] = (await client.get_approvals(task_id="approved"))["approvals"]
    one = await client.get_approval(waiting["approval_id"])
    expect(one["config"]["allow_respond"], "it takes no response")
    done = await client.answer_approval(waiting["approval_id"], "response", "approved")
    expect(done["approval"]["status"] == "responded", "it was not answered")
    return done["task"]


async def submit_message(tour: Tour) -> object:
    """Ask without waiting, and look later."""
    accepted = await tour.client.submit_message("Where is order A-1003?", task_id="later")
    async with await tour.client.get_task_events(accepted["task_id"]) as events:
        kinds = [event.event async for event in events]
    expect(kinds[-1] == "task_complete", "the task did not end")
    return {"task_id": accepted["task_id"], "events": len(kinds)}


async def delete_task(tour: Tour) -> object:
    """Delete it with all that is stored of it."""
    await tour.client.delete_task("later")
    left = await tour.client.get_tasks()
    expect("later" not in left, "the task is still there")
    return sorted(left)


async def debug_post_responses(tour: Tour) -> object:
    """Ask as a client of OpenAI's Responses API does (the server runs with --debug)."""
    response = await tour.client.debug_post_responses("Where is order A-1002?")
    expect("on its way" in response.output_text, "the order was not found")
    return response.output_text


async def watch(tour: Tour) -> object:
    """An admin sees which processes there are, and what they have done."""
    async with administrator(tour) as admin:
        expect("mail_turns_total" in await admin.get_metrics(), "it has counted nothing")
        return await admin.get_nodes()


async def dump_swarm(tour: Tour) -> object:
    """An admin has the server write its swarm to its log."""
    async with administrator(tour) as admin:
        return await admin.dump_swarm()


async def load_swarm_from_json(tour: Tour) -> object:
    """An admin has it serve another swarm until the next restart."""
    swarms = json.loads(SWARMS.read_text(encoding="utf-8"))
    [wanted] = [swarm for swarm in swarms if swarm["name"] == "example-no-proxy"]
    async with administrator(tour) as admin:
        told = await admin.load_swarm_from_json(json.dumps(wanted))
    answer = await tour.client.post_message("What is 17 * 23?")
    expect("391" in answer["response"], "the new swarm does not answer")
    return told


async def register_swarm(tour: Tour) -> object:
    """An admin registers the swarm of another server."""
    async with administrator(tour) as admin:
        return await admin.register_swarm(tour.other.swarm, tour.other.url)


async def get_swarms(tour: Tour) -> object:
    """Which swarms does the server tell everybody about?"""
    return [swarm["swarm_name"] for swarm in (await tour.client.get_swarms())["swarms"]]


async def get_swarm_registry(tour: Tour) -> object:
    """An admin sees those that are not public, too."""
    async with administrator(tour) as admin:
        known = [swarm["swarm_name"] for swarm in (await admin.get_swarm_registry())["swarms"]]
    expect(tour.other.swarm in known, "the other swarm is missing")
    return known


async def unregister_swarm(tour: Tour) -> object:
    """The admin removes the other swarm."""
    async with administrator(tour) as admin:
        return await admin.unregister_swarm(tour.other.swarm)


async def discover_swarms(tour: Tour) -> object:
    """Only servers at public addresses are asked what they list, and the other one is not."""
    async with administrator(tour) as admin:
        told = await admin.discover_swarms([tour.other.url])
    [problem] = told["problems"]
    expect("loopback address" in problem["problem"], f"it was asked: {told}")
    return told


async def accept_swarm(tour: Tour) -> object:
    """An admin could accept a proposal now; there is none."""
    async with administrator(tour) as admin:
        try:
            await admin.accept_swarm(tour.other.swarm)
        except ClientHTTPError as error:
            expect(error.status == 404, f"status {error.status}")
            return str(error)
    raise DemoFailedError("something was proposed")


async def tokens_and_tasks_of_all(tour: Tour) -> object:
    """An admin looks at the swarm and everybody's tasks, and makes and revokes a token."""
    async with administrator(tour) as admin:
        graph = await admin.get_swarm_graph()
        expect(graph["scope"] == "all" and graph["agents"], f"an odd graph: {graph}")
        tasks = (await admin.get_admin_tasks(limit=5))["tasks"]
        made = await admin.create_token("user", "visitor", label="for a day", days=1)
        found = [one["hash"] for one in (await admin.get_tokens())["tokens"]]
        expect(made["hash"] in found, "the token is not listed")
        expect((await admin.revoke_token(made["hash"]))["state"] == "revoked", "it is still valid")
        return [task["title"] for task in tasks]


async def get_outbox(tour: Tour) -> object:
    """Which mail waits for other swarms?"""
    async with administrator(tour) as admin:
        return (await admin.get_outbox())["mail"]


async def get_webhook(tour: Tour) -> object:
    """What is the webhook still to be told?"""
    async with administrator(tour) as admin:
        return await admin.get_webhook()


async def refused(tour: Tour) -> object:
    """Mail for a swarm that takes none, of somebody who is no swarm, or that is not there."""
    told = {}
    async with administrator(tour) as admin:
        requests = {
            admin.send_interswarm_message: ("hello", tour.token),
            admin.stream_interswarm_message: ("hello", tour.token),
            admin.post_interswarm_message: ({},),
            admin.post_interswarm_response: ({},),
            admin.retry_outbox: (7,),
            admin.discard_outbox: (7,),
            admin.retry_webhook: (7,),
            admin.discard_webhook: (7,),
            admin.retry_set_aside: ("cancelled", 7),
            admin.discard_set_aside: ("cancelled", 7),
        }
        for request, arguments in requests.items():
            try:
                await request(*arguments)
            except ClientHTTPError as error:
                expect(error.status in range(400, 500), f"{request.__name__}: {error}")
                told[request.__name__] = error.status
    expect(told.keys() == BETWEEN_SWARMS, f"only these are refused: {told}")
    return told


async def desk_messages(tour: Tour) -> object:
    """Two participants: one asks for an acknowledgement, the other waits, finds and reads."""
    async with participants(tour) as (editor, reviewer):
        names = [one["name"] for one in (await editor.get_participants())["participants"]]
        expect("reviewer" in names, f"the reviewer cannot be written to: {names}")
        sent = await editor.send_desk_message(
            "The draft is ready.", recipient_id="reviewer", wants_ack=True
        )
        expect((await reviewer.wait_for_mail(5))["unread"] == 1, "nobody was woken")
        found = await reviewer.search_messages("draft")
        expect(found["messages"][0]["id"] == sent["message_id"], "the search found nothing")
        expect(len((await editor.get_overdue_messages())["overdue"]) == 1, "nothing is overdue")
        page = await reviewer.get_desk_messages(unread=True)
        expect(len(page["messages"]) == 1, "the message is missing")
        await reviewer.acknowledge_message(sent["message_id"], "By five.")
        expect((await reviewer.check_new_messages())["unread"] == 0, "it is still unread")
        return (await editor.get_desk_message(sent["message_id"]))["receipts"]


async def desk_threads(tour: Tour) -> object:
    """They talk in a thread, which one leaves and joins again."""
    async with participants(tour) as (editor, reviewer):
        opened = (await editor.create_thread("Friday's issue", [], "Who reads it?"))["thread"]
        await editor.add_participant(opened["id"], "reviewer")
        await reviewer.remove_participant(opened["id"], "reviewer")
        await reviewer.join_thread(opened["id"])
        listed = [thread["title"] for thread in (await reviewer.get_threads())["threads"]]
        expect(listed == ["Friday's issue"], f"other threads were listed: {listed}")
        return (await editor.get_thread(opened["id"]))["participants"]


async def desk_files(tour: Tour) -> object:
    """One uploads a file and hands it on, the other downloads it."""
    async with participants(tour) as (editor, reviewer):
        file = await editor.upload_file(b"The blanket has a hole.", "draft.txt")
        await editor.transfer_file(file["id"], recipient_id="reviewer")
        expect((await reviewer.get_file(file["id"]))["size"] == file["size"], "another size")
        copy = tour.place.folder / "copy.txt"
        await reviewer.download_file(file["id"], copy)
        expect(copy.read_text() == "The blanket has a hole.", "another content")
        expect(len((await editor.get_files())["files"]) == 1, "the file is not listed")
        return await editor.delete_file(file["id"])


async def desk_teams(tour: Tour) -> object:
    """The lead of a team asks its member and waits; the member answers, and writes to all."""
    async with participants(tour) as (editor, reviewer):
        [team] = (await reviewer.get_teams())["teams"]
        await reviewer.get_desk_messages(limit=100)  # what comes next is the question
        asked = asyncio.create_task(
            editor.teammate_message(team["id"], "reviewer", "Ready?", wait=30)
        )
        await reviewer.wait_for_mail(30)
        await reviewer.teammate_message(team["id"], "lead", "Nearly.")
        answer = await asked
        expect(answer.get("reply", {}).get("message") == "Nearly.", f"no reply: {answer}")
        sent = await reviewer.teammate_broadcast(team["id"], "Ready now.", exclude_self=True)
        return sent["deliveredTo"]


async def memories(tour: Tour) -> object:
    """A memory is written, changed, taken back and deleted."""
    await tour.client.put_memory("style", "Be brief.")
    await tour.client.put_memory("style", "Be long.", expected_version=1)
    undone = await tour.client.put_memory("style", restore=1)
    expect(undone["value"] == "Be brief.", "the change was not taken back")
    expect((await tour.client.get_memory("style"))["version"] == 3, "another version")
    await tour.client.delete_memory("style")
    return await tour.client.get_memories()


async def get_set_aside(tour: Tour) -> object:
    """Was any message of a task set aside, because it brought the server down?"""
    return (await tour.client.get_set_aside("cancelled"))["mail"]


async def aclose(tour: Tour) -> object:
    """Close the connections."""
    await tour.client.aclose()
    return "closed"


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        ping, get_health, get_ready, login, get_whoami, get_status, update_health, post_message,
        post_message_stream, get_tasks, get_task, get_task_events, cancel_task, approvals,
        get_set_aside, submit_message,
        delete_task, debug_post_responses, memories, desk_messages, desk_threads, desk_files,
        desk_teams, watch, dump_swarm,
        register_swarm, get_swarms, get_swarm_registry, unregister_swarm,
        discover_swarms,
        accept_swarm, load_swarm_from_json, tokens_and_tasks_of_all, get_outbox, get_webhook,
        refused, aclose,
    )
}  # fmt: skip
"""A step for each method, in an order that makes sense."""


async def last_event(tour: Tour, body: str, **options: Any) -> dict[str, Any]:
    """Post a message of the task ``refund`` and return the data of its last event."""
    async with await tour.client.post_message_stream(body, task_id="refund", **options) as events:
        async for event in events:
            if event.event in ("task_complete", "task_error"):
                found: dict[str, Any] = json.loads(event.data or "{}")
                return found
    raise DemoFailedError("the stream ended early")


def with_participants(folder: Path) -> Path:
    """Return a copy of the swarms file with a team of two participants in the swarm ``support``."""
    swarms = json.loads(SWARMS.read_text(encoding="utf-8"))
    [support] = [swarm for swarm in swarms if swarm["name"] == "support"]
    declared = [{"name": name, "description": f"The {name}."} for name in PARTICIPANTS]
    source = folder / "swarms.json"
    lead, *members = PARTICIPANTS
    team = {"id": "readers", "lead": lead, "members": members}
    swarm = support | {"participants": declared, "teams": [team]}
    source.write_text(json.dumps([swarm]), encoding="utf-8")
    return source


def public_place(folder: Path, swarm: str) -> Place:
    """Return a place for a server that lists its swarm to everybody."""
    folder.mkdir()
    swarms = json.loads(SWARMS.read_text(encoding="utf-8"))
    listed = [one | {"public": True} for one in swarms if one["name"] == swarm]
    source = folder / "swarms.json"
    source.write_text(json.dumps(listed), encoding="utf-8")
    return Place(folder, free_port(), swarm=swarm, source=source)


def administrator(tour: Tour) -> MAILClient:
    """Return a client with the rights of an admin."""
    return MAILClient(tour.place.url, tour.admin_token, config=quiet())


@asynccontextmanager
async def participants(tour: Tour) -> AsyncIterator[tuple[MAILClient, MAILClient]]:
    """Yield the clients of the editor and the reviewer."""
    editor, reviewer = tour.desk_tokens
    async with (
        MAILClient(tour.place.url, editor, config=quiet()) as one,
        MAILClient(tour.place.url, reviewer, config=quiet()) as other,
    ):
        yield one, other


def quiet() -> ClientConfig:
    """Return settings that depend on no file."""
    return ClientConfig(timeout=60.0, verbose=False)


def methods() -> set[str]:
    """Return the names of the client's public methods that ask the server or close."""
    found = inspect.getmembers(MAILClient, inspect.iscoroutinefunction)
    return {name for name, _ in found if not name.startswith("_")}


async def tour_all(folder: Path) -> None:
    """Start the server and take every step."""
    groups = {"refused": BETWEEN_SWARMS, **AT_THE_DESK}
    used = (STEPS.keys() - groups.keys()).union(*groups.values())
    unused, unknown = methods() - used, used - methods()
    expect(not unused, f"no step uses {', '.join(sorted(unused))}")
    expect(not unknown, f"the client has no {', '.join(sorted(unknown))}")
    source = with_participants(folder)
    place = Place(folder, free_port(), swarm="support", source=source, debug=True, federated=True)
    other = public_place(folder / "other", "research")
    headline(f"Starting two servers: {place.url} and {other.url}")
    async with server(other), server(place):
        token = await make_token(place, name="customer")
        admin = await make_token(place, role="admin", name="operator")
        editor, reviewer = [await make_token(place, "participant", one) for one in PARTICIPANTS]
        async with MAILClient(place.url, config=quiet()) as client:
            tour = Tour(place, other, client, token, admin, (editor, reviewer))
            for name, step in STEPS.items():
                headline(f"{name}: {inspect.getdoc(step)}")
                print(f"      {short(await step(tour), 200)}", flush=True)
    print(f"\nall {len(used)} methods work")


def main() -> int:
    """Read the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--timeout", type=float, default=TIME_LIMIT, metavar="SECONDS", help="default: %(default)s"
    )
    options = parser.parse_args()
    return asyncio.run(run_in_folder(tour_all, options.timeout))


if __name__ == "__main__":
    sys.exit(main())
