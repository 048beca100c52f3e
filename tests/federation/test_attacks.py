"""What a hostile peer tries, against a real server: refused, logged, and nothing has changed."""

import asyncio
import copy
import logging
import re
import threading
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, example, given, seed
from hypothesis import settings as rules
from hypothesis import strategies as st

from mail.auth.callers import Caller
from mail.core.interswarm import MAX_CONTRIBUTORS, PEER_ROLE
from mail.core.schema import parse_interswarm_message
from mail.db.records import Owner
from mail.server.routes import interswarm
from tests.federation.harbour import HARBOUR, WEATHER, forecast, harbour, weather
from tests.federation.kit import (
    Agent,
    Node,
    federation,
    settings,
    started,
    swarm,
    token_of,
    wrapper,
)
from tests.support.waiting import until

EVIL = "evil"


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """The weather's server; it knows the harbour and a hostile peer, of which only tokens exist."""
    async with started(weather(), [HARBOUR, EVIL, "stranger"]) as node:
        for peer in (HARBOUR, EVIL):
            await know(node, peer)
        yield node


async def know(node: Node, peer: str, **more: Any) -> None:
    """Register a swarm without asking its server, which is not there."""
    from mail.net.endpoints import make_endpoint

    facts: Any = {"name": peer, "version": "1.3", "description": "", "keywords": [], "public": True}
    entry = make_endpoint(peer, "http://127.0.0.1:9", facts, volatile=True, **more)
    node.app.state.mail.registry.endpoints[peer] = entry


async def send(node: Node, message: Any, who: str = EVIL, route: str = "forward") -> httpx.Response:
    """Deliver mail in the name of a token."""
    return await node.client(who).post(f"/interswarm/{route}", json={"message": message})


async def owners(node: Node) -> set[str]:
    """Return all whose tasks a server has."""
    return {str(owner) for owner in await node.store.owners(node.name)}


ATTACKS: dict[str, tuple[int, dict[str, Any]]] = {
    "another swarm's mail": (403, {"source_swarm": HARBOUR}),
    "the own swarm's mail": (403, {"source_swarm": WEATHER}),
    "another target": (400, {"target_swarm": HARBOUR}),
    "a sender of another swarm": (
        400,
        {"p_sender": {"address_type": "agent", "address": f"dispatcher@{HARBOUR}"}},
    ),
    "a sender of the own swarm": (
        400,
        {"p_sender": {"address_type": "agent", "address": f"chief@{WEATHER}"}},
    ),
    **{
        f"a sender of the type {kind}": (
            400,
            {"p_sender": {"address_type": kind, "address": EVIL}},
        )
        for kind in ("system", "user", "admin")
    },
    "the end of a task that is not there": (
        404,
        {
            "msg_type": "broadcast_complete",
            "p_broadcast_id": "an-id",
            "p_recipients": [{"address_type": "agent", "address": "all"}],
        },
    ),
    "an owner of the own swarm": (404, {"task_owner": f"user:ines@{WEATHER}"}),
    "an owner that is none": (400, {"task_owner": "ines"}),
    "a contributor that is none": (400, {"task_contributors": ["ines"]}),
    "too many contributors": (
        400,
        {"task_contributors": [f"swarm:s{n}@s{n + 1}" for n in range(MAX_CONTRIBUTORS + 1)]},
    ),
    "an agent that is not exposed": (
        400,
        {"p_recipient": {"address_type": "agent", "address": f"cellar@{WEATHER}"}},
    ),
    "an agent that is not there": (
        400,
        {"p_recipient": {"address_type": "agent", "address": f"nobody@{WEATHER}"}},
    ),
    "a person as recipient": (
        400,
        {"p_recipient": {"address_type": "user", "address": "ines"}},
    ),
    "an agent of a third swarm": (
        400,
        {"p_recipient": {"address_type": "agent", "address": f"dispatcher@{HARBOUR}"}},
    ),
    "a subject without end": (400, {"p_subject": "x" * 5000}),
    "an address without end": (
        400,
        {"p_sender": {"address_type": "agent", "address": f"{'x' * 600}@{EVIL}"}},
    ),
    "a line break in an owner": (400, {"task_owner": f"user:a\nb@{EVIL}"}),
    "a line break in a sender": (
        400,
        {"p_sender": {"address_type": "agent", "address": f"a\nb@{EVIL}"}},
    ),
    "a note of a server that is none": (400, {"metadata": {"mail": {"event": "nonsense"}}}),
    "too long a task id": (400, {"p_task_id": "x" * 250}),
    "a body of 2 MiB": (400, {"p_body": "x" * 2**21}),
    "metadata of 2 MiB": (400, {"metadata": {"x": "x" * 2**21}}),
    "hints of 20 KiB": (400, {"p_routing_info": {"x": "x" * 20_000}}),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_mail_that_claims_too_much_is_refused_and_logged(
    node: Node, attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, changes = ATTACKS[attack]
    answer = await send(node, wrapper(EVIL, WEATHER, **changes))
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]
    line = told(caplog)[-1]
    assert f"refused POST /interswarm/forward of agent '{EVIL}': {status} " in line
    assert token_of(EVIL, WEATHER) not in caplog.text
    assert await owners(node) == set()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines about refusals."""
    return [r.getMessage() for r in caplog.records if r.name == "mail.server.audit"]


@pytest.mark.parametrize("route", ["forward", "back"])
@pytest.mark.parametrize(
    ("who", "status"),
    [("", 401), ("ines", 403), ("root", 403), ("stranger", 403), (WEATHER, 400)],
)
async def test_only_registered_swarms_may_send_mail(
    node: Node, who: str, status: int, route: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await send(node, wrapper(who or EVIL, WEATHER), who, route)
    assert answer.status_code == status, answer.text
    assert f"refused POST /interswarm/{route} of " in told(caplog)[-1]
    if who == "stranger":
        assert "an administrator registers it with POST /swarms" in answer.json()["detail"]
    assert await owners(node) == set()


async def test_a_swarm_may_not_speak_for_people(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"body": "hi", "targets": ["chief@weather"], "user_token": "x"}
    answer = await node.client(EVIL).post("/interswarm/message", json=message)
    assert answer.status_code == 403
    assert "refused POST /interswarm/message of agent 'evil': 403 invalid role" in told(caplog)[-1]


async def test_mail_for_a_task_of_others_looks_like_mail_for_none(node: Node) -> None:
    taken = await send(node, wrapper(HARBOUR, WEATHER, p_task_id="crossing"), HARBOUR)
    assert taken.status_code == 200, taken.text
    assert (await node.post("hello", task_id="own")).status_code == 200
    texts = set()
    for task_id, owner in (
        ("crossing", f"user:ines@{HARBOUR}"),
        ("own", f"user:ines@{WEATHER}"),
        ("nothing", f"user:ines@{WEATHER}"),
        ("nothing", f"user:ines@{EVIL}"),
    ):
        message = wrapper(
            EVIL,
            WEATHER,
            p_task_id=task_id,
            task_owner=owner,
            task_contributors=[owner, f"swarm:{HARBOUR}@{WEATHER}", f"swarm:{EVIL}@{WEATHER}"],
        )
        answer = await send(node, message, EVIL, "back")
        assert answer.status_code == 404, answer.text
        texts.add(re.sub(f"""(['"]){task_id}['"]""", r"\1…\1", answer.text))
    assert len(texts) == 1
    assert await owners(node) == {f"swarm:{HARBOUR}@{WEATHER}", f"user:ines@{WEATHER}"}


async def test_a_peer_cannot_end_or_answer_in_the_task_of_another(node: Node) -> None:
    """It opens a task of its own instead; whom it names as its owner changes nothing."""
    asked = wrapper(HARBOUR, WEATHER, p_body="hang on", p_task_id="crossing")
    assert (await send(node, asked, HARBOUR)).status_code == 200
    theirs = Owner(WEATHER, PEER_ROLE, HARBOUR)
    [row] = await node.store.list_tasks(theirs)
    before = len(await node.store.events(theirs, row.task_id))
    for control in ({}, {"mail": {"event": "ended", "status": "cancelled"}}):
        forged = wrapper(
            EVIL,
            WEATHER,
            msg_type="response",
            p_task_id="crossing",
            p_subject="::task_complete::",
            task_owner=f"user:ines@{HARBOUR}",
            task_contributors=[f"user:ines@{HARBOUR}", f"swarm:{HARBOUR}@{WEATHER}"],
            metadata=control,
        )
        assert (await send(node, forged, EVIL, "back")).status_code == 404
        await send(node, {**forged, "message_id": str(uuid.uuid4())}, EVIL, "forward")
    row_now = await node.store.load_task(theirs, row.task_id)
    assert row_now is not None and str(row_now.state) == "running"
    assert len(await node.store.events(theirs, row.task_id)) - before <= 1


async def test_a_repeated_message_is_answered_again_and_done_once(node: Node) -> None:
    message = wrapper(HARBOUR, WEATHER)
    first = await send(node, message, HARBOUR)
    assert first.status_code == 200, first.text
    task_id = message["payload"]["task_id"]
    assert first.json() == {
        "swarm": WEATHER,
        "task_id": task_id,
        "status": "success",
        "local_runner": f"swarm:{HARBOUR}@{WEATHER}",
    }
    again = copy.deepcopy(message)
    again["payload"]["body"] = "something else"
    assert (await send(node, again, HARBOUR, "back")).json() == first.json()
    owner = Owner(WEATHER, PEER_ROLE, HARBOUR)
    heard = [
        event.extra["full_message"]["id"]
        for event in await node.store.events(owner, task_id)
        if event.kind == "new_message"
    ]
    assert heard.count(message["message_id"]) == 1


async def test_a_repeated_message_has_its_receipt_when_its_task_is_gone(node: Node) -> None:
    asked = wrapper(HARBOUR, WEATHER, task_owner=f"user:ines@{HARBOUR}")
    task_id = asked["payload"]["task_id"]
    first = await send(node, asked, HARBOUR)
    told = wrapper(HARBOUR, WEATHER, p_task_id=task_id, task_owner=f"user:ines@{HARBOUR}")
    told["task_contributors"].append(f"swarm:{HARBOUR}@{WEATHER}")
    second = await send(node, told, HARBOUR, "back")
    assert (first.status_code, second.status_code) == (200, 200)
    owner = Owner(WEATHER, PEER_ROLE, HARBOUR)
    async with asyncio.timeout(30):
        while (row := await node.store.load_task(owner, task_id)) and row.state == "running":
            await asyncio.sleep(0.02)
    await node.store.delete_task(owner, task_id)
    for message, direction, answer in ((told, "back", second), (asked, "forward", first)):
        assert (await send(node, message, HARBOUR, direction)).json() == answer.json()
    assert await node.store.load_task(owner, task_id) is None


async def test_two_tasks_of_a_peer_with_one_id_stay_apart(node: Node) -> None:
    task_id = str(uuid.uuid4())
    for owner, status in ((f"user:ines@{HARBOUR}", 200), (f"user:otto@{HARBOUR}", 409)):
        message = wrapper(
            HARBOUR, WEATHER, p_task_id=task_id, task_owner=owner, task_contributors=[owner]
        )
        assert (await send(node, message, HARBOUR)).status_code == status
    for owner in ("ines", "otto"):
        chosen = wrapper(HARBOUR, WEATHER, p_task_id="lunch", task_owner=f"user:{owner}@{HARBOUR}")
        assert (await send(node, chosen, HARBOUR)).status_code == 200
    assert len(await node.store.list_tasks(Owner(WEATHER, PEER_ROLE, HARBOUR))) == 3


async def test_a_token_names_the_swarm_that_its_registration_names(node: Node) -> None:
    await know(node, "quay", metadata={"principal": "stranger"})
    taken = await send(node, wrapper("quay", WEATHER), "stranger")
    assert taken.status_code == 200, taken.text
    assert (await send(node, wrapper("stranger", WEATHER), "stranger")).status_code == 403
    await know(node, "jetty", metadata={"principal": "stranger"})
    answer = await send(node, wrapper("quay", WEATHER), "stranger")
    assert answer.status_code == 403
    assert "several swarms" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("expose", "reached"), [(None, {"chief", "desk", "wind"}), (["wind", "cellar"], {"wind"})]
)
async def test_peers_reach_every_entrypoint_and_every_open_agent(
    expose: list[str] | None, reached: set[str]
) -> None:
    template = swarm(
        WEATHER,
        chief=Agent(script=forecast, leads=True),
        desk=Agent(script=forecast, leads=True),
        wind=Agent(script=forecast, open=True, targets=["chief"]),
        cellar=Agent(script=forecast, targets=["chief"]),
    )
    async with started(template, [HARBOUR], config=settings(WEATHER, expose)) as node:
        await know(node, HARBOUR)
        for agent in ("chief", "desk", "wind", "cellar"):
            to = {"address_type": "agent", "address": f"{agent}@{WEATHER}"}
            answer = await send(node, wrapper(HARBOUR, WEATHER, p_recipient=to), HARBOUR)
            assert answer.status_code == (200 if agent in reached else 400), answer.text


async def test_a_swarm_without_mail_to_others_takes_none() -> None:
    template = weather()
    template.enable_interswarm = False
    async with started(template, [HARBOUR]) as node:
        await know(node, HARBOUR)
        for route in ("forward", "back"):
            answer = await send(node, wrapper(HARBOUR, WEATHER), HARBOUR, route)
            assert answer.status_code == 404
            assert "enable_interswarm" in answer.json()["detail"]
        message = {"body": "hi", "targets": ["chief@weather"]}
        answer = await node.client().post("/interswarm/message", json=message)
        assert answer.status_code == 404


async def test_mail_that_mail_servers_send_is_taken_with_what_they_add(node: Node) -> None:
    extra = {"mesage_id": "unknown fields are normal here", "hops": 3}
    message = wrapper(HARBOUR, WEATHER, auth_token=None, metadata=None) | extra
    assert (await send(node, message, HARBOUR)).status_code == 200
    bare = wrapper(HARBOUR, WEATHER)
    del bare["auth_token"], bare["metadata"], bare["payload"]["routing_info"]
    assert (await send(node, bare, HARBOUR)).status_code == 200


async def test_tokens_in_mail_are_kept_nowhere(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "mail_a-token-in-a-wrapper-0123456789"
    message = wrapper(HARBOUR, WEATHER, auth_token=secret)
    assert (await send(node, message, HARBOUR)).status_code == 200
    owner, task_id = Owner(WEATHER, PEER_ROLE, HARBOUR), message["payload"]["task_id"]
    await until(lambda: answered(node, owner, task_id))
    kept = [repr(row) for row in await node.store.all_mail(owner, task_id)]
    kept += [repr(event) for event in await node.store.events(owner, task_id)]
    kept += [repr(row) for row in await node.store.list_outbox(WEATHER)]
    mine = [r.getMessage() for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    assert secret not in "".join([*kept, *mine])


async def answered(node: Node, owner: Owner, task_id: str) -> bool:
    """Tell whether an agent has answered."""
    events = await node.store.events(owner, task_id)
    return sum(event.kind == "new_message" for event in events) > 1


# --- hints ----------------------------------------------------------------------------------------


PARTIES = [f"user:ines@{HARBOUR}", f"swarm:{HARBOUR}@{WEATHER}"]


def hint(task_id: str) -> dict[str, Any]:
    """Return a note that the harbour waits in a task, which nobody keeps."""
    control = {"event": "waits", "status": "silent", "runner": f"user:ines@{HARBOUR}"}
    return wrapper(
        HARBOUR,
        WEATHER,
        msg_type="response",
        p_task_id=task_id,
        p_body="",
        task_contributors=PARTIES,
        metadata={"mail": control},
    )


async def at_rest(node: Node, count: int) -> list[str]:
    """Have the harbour's mail open tasks that no instance remembers any more; return their ids."""
    asked = [wrapper(HARBOUR, WEATHER) for _ in range(count)]
    ids = [str(message["payload"]["task_id"]) for message in asked]
    theirs = Owner(WEATHER, PEER_ROLE, HARBOUR)
    for message in asked:
        assert (await send(node, message, HARBOUR)).status_code == 200
    for task_id in ids:
        await until(lambda task_id=task_id: answered(node, theirs, task_id))
    for message in asked:
        ended = wrapper(
            HARBOUR,
            WEATHER,
            msg_type="response",
            p_task_id=message["payload"]["task_id"],
            p_subject="::task_complete::",
            task_contributors=PARTIES,
            metadata={"mail": {"event": "ended", "status": "completed"}},
        )
        assert (await send(node, ended, HARBOUR, "back")).status_code == 200
    pool = node.app.state.mail.pool
    pool._idle_seconds = 0.0

    async def closed() -> bool:
        await pool.sweep()
        return pool.log_of(Caller(PEER_ROLE, HARBOUR), WEATHER) is None

    await until(closed)
    pool._idle_seconds = 600.0
    return ids


async def test_hints_about_many_tasks_at_rest_read_no_log(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await at_rest(node, 12)
    store = node.app.state.mail.store
    read: list[str] = []

    def watched(verb: str) -> Any:
        original = getattr(store, verb)

        async def told(*args: Any, **more: Any) -> Any:
            read.append(verb)
            return await original(*args, **more)

        return told

    for verb in ("events", "all_mail"):
        monkeypatch.setattr(store, verb, watched(verb))
    for each in ids:
        assert (await send(node, hint(each), HARBOUR, "back")).status_code == 200
    assert read == []


async def test_a_hint_about_no_task_wakes_nothing(node: Node) -> None:
    for route in ("forward", "back"):
        answer = await send(node, hint(str(uuid.uuid4())), HARBOUR, route)
        assert answer.status_code == 404, answer.text
    assert node.app.state.mail.pool.log_of(Caller(PEER_ROLE, HARBOUR), WEATHER) is None


# --- tokens of people -----------------------------------------------------------------------------


async def test_a_token_of_this_server_never_leaves_it() -> None:
    async with federation(harbour(), weather()) as nodes:
        home = nodes[HARBOUR]
        for token in (token_of("ines", HARBOUR), token_of("otto", HARBOUR)):
            message = {"body": "hi", "targets": ["chief@weather"], "user_token": token}
            answer = await home.client().post("/interswarm/message", json=message)
            assert answer.status_code == 400, answer.text
            assert "token of this server" in answer.json()["detail"]
            assert token not in answer.text
        message = {"body": "hi", "targets": ["chief@weather"]}
        answer = await home.client().post("/interswarm/message", json=message)
        assert answer.status_code == 401
        assert "user_token must hold your token" in answer.json()["detail"]
        wrong = {**message, "user_token": "mail_nobody-knows-this-token-0000"}
        answer = await home.client().post("/interswarm/message", json=wrong)
        assert answer.status_code == 502
        assert wrong["user_token"] not in answer.text
        unknown = {**wrong, "targets": ["chief@nowhere"]}
        answer = await home.client().post("/interswarm/message", json=unknown)
        assert answer.status_code == 404


# --- anything at all ------------------------------------------------------------------------------

WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=40),
    st.sampled_from(
        [HARBOUR, WEATHER, EVIL, f"user:ines@{WEATHER}", f"swarm:{EVIL}@{WEATHER}", "all", "::", ""]
    ),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    st.sampled_from(["request", "response", "broadcast", "interrupt", "broadcast_complete"]),
    st.sampled_from(
        [
            {"address_type": kind, "address": address}
            for kind in ("agent", "system", "user", "admin")
            for address in (f"chief@{WEATHER}", f"dispatcher@{HARBOUR}", f"x@{EVIL}", "wind", "@")
        ]
    ),
)
PLACES = [
    *("message_id", "source_swarm", "target_swarm", "timestamp", "payload", "msg_type"),
    *("task_owner", "task_contributors", "auth_token", "metadata", "unknown"),
    *(
        f"payload.{name}"
        for name in ("task_id", "request_id", "broadcast_id", "interrupt_id", "sender", "recipient")
    ),
    *(f"payload.{name}" for name in ("recipients", "subject", "body", "sender_swarm")),
    *(f"payload.{name}" for name in ("recipient_swarm", "recipient_swarms", "routing_info")),
    *("payload.sender.address", "payload.sender.address_type", "payload.recipient.address"),
]


@st.composite
def mutated(draw: Any) -> Any:
    """Draw an envelope of the hostile peer with a few of its parts changed or missing."""
    message = wrapper(EVIL, WEATHER)
    for place in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=4)):
        inside: Any = message
        *path, last = place.split(".")
        for step in path:
            inside = inside.get(step) if isinstance(inside, dict) else None
        if isinstance(inside, dict):
            if draw(st.booleans()) and draw(st.booleans()):
                inside.pop(last, None)
            else:
                inside[last] = draw(WEIRD)
    return message


SEED = 20261122


@pytest.fixture
def loud(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" [seed {SEED}]", end="")  # noqa: T201 - to repeat a failure


@pytest.mark.usefixtures("loud")
async def test_a_thousand_damaged_envelopes_speak_for_nobody_else(node: Node) -> None:
    """No 5xx, and whatever is taken belongs to the peer alone, under its own name."""
    drawn: list[Any] = []

    @seed(SEED)
    @rules(
        max_examples=1000,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated())
    def draw(message: Any) -> None:
        drawn.append(message)

    draw()
    assert len(drawn) == 1000
    taken = 0
    for number, message in enumerate(drawn):
        answer = await send(node, message, EVIL, ("forward", "back")[number % 2])
        assert answer.status_code < 500, (message, answer.text)
        taken += answer.status_code == 200
    assert 0 < taken < 1000
    assert await owners(node) <= {f"swarm:{EVIL}@{WEATHER}"}
    owner = Owner(WEATHER, PEER_ROLE, EVIL)
    for row in await node.store.list_tasks(owner):
        for event in await node.store.events(owner, row.task_id):
            if event.kind == "new_message":
                _speaks_for_itself(event.extra["full_message"])


def _speaks_for_itself(message: Any) -> None:
    """Check that mail is of a local agent, of the system in answer, or of the peer's agents."""
    sender, at_home = message["message"]["sender"], {"chief", "wind", "cellar", "supervisor"}
    if sender["address_type"] == "system":
        assert message["message"]["sender_swarm"] == WEATHER
    else:
        assert sender["address_type"] == "agent"
        assert sender["address"].endswith(f"@{EVIL}") or sender["address"] in at_home


@rules(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.text(max_size=20))
@example("evil\x85", "")
def test_no_id_is_two_swarms(identifier: str, principal: str) -> None:
    """The caller's id decides, exactly as it is written."""
    from mail.auth.callers import Caller
    from mail.errors import MAILError
    from mail.net.endpoints import make_endpoint
    from mail.net.registry import SwarmRegistry
    from mail.server.federation import peer_of

    registry = SwarmRegistry(WEATHER, "http://127.0.0.1:9", "/nonexistent/registry.json")
    facts: Any = {"name": EVIL, "version": "1.3", "description": "", "keywords": [], "public": True}
    metadata = {"principal": principal} if principal else None
    registry.endpoints[EVIL] = make_endpoint(
        EVIL, "http://127.0.0.1:9", facts, metadata=metadata, volatile=True
    )
    try:
        found = peer_of(registry, Caller("agent", identifier))
    except MAILError:
        assert identifier != (principal or EVIL)
    else:
        assert (found, identifier) == (EVIL, principal or EVIL)


@pytest.mark.parametrize("size", [10, 4_000])
async def test_a_large_message_is_looked_at_in_a_thread(
    node: Node, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    threads: list[threading.Thread] = []

    def noted(value: object) -> Any:
        threads.append(threading.current_thread())
        return parse_interswarm_message(value)

    monkeypatch.setattr(interswarm, "parse_interswarm_message", noted)
    values = {f"a name of {number}": number for number in range(size)}
    sent = await send(node, wrapper(EVIL, WEATHER, metadata=values))
    assert sent.status_code == 200, sent.text
    [thread] = threads
    assert (thread is threading.main_thread()) == (size == 10)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task_contributors", [1] * 2_000),
        ("recipients", [1] * 2_000),
        ("recipient_swarms", [1] * 2_000),
        ("recipient_swarms", [WEATHER] * 2_000),
    ],
)
async def test_of_thousands_of_wrong_entries_the_first_is_told(
    node: Node, field: str, value: Any
) -> None:
    message = wrapper(EVIL, WEATHER, msg_type="broadcast")
    payload = message["payload"]
    payload["broadcast_id"] = payload.pop("request_id")
    payload["recipients"] = [payload.pop("recipient")]
    (message if field in message else payload)[field] = value
    sent = await send(node, message)
    assert sent.status_code == 400
    [problem] = sent.json()["errors"]
    assert field in problem["field"]
