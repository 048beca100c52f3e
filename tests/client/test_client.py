"""The client's requests, answers and errors."""

import json
import logging

import aiohttp
import pytest

from mail.client import MAILClient
from mail.config import ClientConfig
from mail.errors import ClientDecodeError, ClientHTTPError, ConfigError, ProtocolError
from mail.version import get_version
from tests.client.conftest import Counterpart


async def test_headers_carry_key_agent_and_accept(server: Counterpart, client: MAILClient) -> None:
    server.answer("GET", "/", {"protocol_version": "1.3"})
    assert (await client.ping())["protocol_version"] == "1.3"
    headers = server.seen[0][2]
    assert headers["Authorization"] == "Bearer key-1"
    assert headers["Accept"] == "application/json"
    assert headers["User-Agent"] == f"MAIL-Client/{get_version()} (github.com/charonlabs/mail)"


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("GET", "/", lambda c: c.ping()),
        ("GET", "/health", lambda c: c.get_health()),
        ("GET", "/health/ready", lambda c: c.get_ready()),
        ("GET", "/nodes", lambda c: c.get_nodes()),
        ("GET", "/status", lambda c: c.get_status()),
        ("GET", "/whoami", lambda c: c.get_whoami()),
        ("GET", "/tasks", lambda c: c.get_tasks()),
        ("POST", "/tasks/a%2Fb%20c/cancel", lambda c: c.cancel_task("a/b c")),
        ("GET", "/swarms/registry", lambda c: c.get_swarm_registry()),
        ("POST", "/swarms/a%2Fb/accept", lambda c: c.accept_swarm("a/b")),
        ("DELETE", "/swarms/a%2Fb", lambda c: c.unregister_swarm("a/b")),
        ("GET", "/swarms", lambda c: c.get_swarms()),
        ("GET", "/participants", lambda c: c.get_participants()),
        ("GET", "/swarms/dump", lambda c: c.dump_swarm()),
    ],
)
async def test_each_method_calls_its_route(
    server: Counterpart, client: MAILClient, method: str, path: str, call
) -> None:
    server.answer(method, path, {"some": "thing"})
    assert await call(client) == {"some": "thing"}
    assert server.seen[0][3] is None


async def test_what_is_not_given_is_not_sent(server: Counterpart, client: MAILClient) -> None:
    server.answer("POST", "/messages", {"message_id": "m"})
    await client.send_desk_message("hi", recipient_id="b")
    assert server.seen[0][3] == {"content": "hi", "recipient_id": "b"}
    server.answer("GET", "/messages", {"messages": []})
    await client.get_desk_messages()
    server.answer("GET", "/messages/search?q=a%20%26%20b&before=3", {"messages": []})
    await client.search_messages("a & b", before=3)


async def test_a_deleted_task_has_no_record(server: Counterpart, client: MAILClient) -> None:
    server.answer("DELETE", "/tasks/a%2Fb%20c", None, status=204)
    assert await client.delete_task("a/b c") is None
    server.answer("DELETE", "/tasks/t", {"detail": "running"}, status=409)
    with pytest.raises(ClientHTTPError, match="running") as refused:
        await client.delete_task("t")
    assert refused.value.status == 409


@pytest.mark.parametrize("task_id", ["x/set-aside/1", "x/set-aside", "x/events", ".", ".."])
async def test_deleting_a_task_never_discards_mail_of_another(
    server: Counterpart, client: MAILClient, task_id: str
) -> None:
    with pytest.raises(ProtocolError, match="its path is of something else"):
        await client.delete_task(task_id)
    assert server.seen == []


async def test_get_task_sends_the_id_in_the_body(server: Counterpart, client: MAILClient) -> None:
    server.answer("GET", "/task", {"task_id": "t"})
    assert (await client.get_task("t"))["task_id"] == "t"
    assert server.seen[0][3] == {"task_id": "t"}


async def test_get_task_stops_at_pages_that_do_not_come_to_an_end(
    server: Counterpart, client: MAILClient
) -> None:
    for path in ("/task", "/task?after=3"):
        server.answer("GET", path, {"events": [], "next_after": 3})
    with pytest.raises(ClientDecodeError, match="do not come to an end"):
        await client.get_task("t")
    assert len(server.seen) == 2


async def test_discovery_names_the_servers(server: Counterpart, client: MAILClient) -> None:
    server.answer("POST", "/swarms/discover", {"proposed": ["b"], "problems": []})
    assert (await client.discover_swarms(["http://b"]))["proposed"] == ["b"]
    assert server.seen[0][3] == {"discovery_urls": ["http://b"]}


async def test_health_can_be_set(server: Counterpart, client: MAILClient) -> None:
    server.answer("POST", "/health", {"status": "busy"})
    assert (await client.update_health("busy"))["status"] == "busy"
    assert server.seen[0][3] == {"status": "busy"}


SENT = [
    (
        "/swarms",
        lambda c: c.register_swarm("b", "http://b"),
        {"name": "b", "base_url": "http://b"},
    ),
    (
        "/swarms",
        lambda c: c.register_swarm(
            "b", "http://b", auth_token="t", volatile=False, metadata={"k": 1}, public_key="p"
        ),
        {
            "name": "b",
            "base_url": "http://b",
            "volatile": False,
            "auth_token": "t",
            "metadata": {"k": 1},
            "public_key": "p",
        },
    ),
    ("/swarms/load", lambda c: c.load_swarm_from_json("{}"), {"json": "{}"}),
    (
        "/interswarm/message",
        lambda c: c.send_interswarm_message("hello", "token"),
        {"body": "hello", "user_token": "token"},
    ),
    (
        "/interswarm/message",
        lambda c: c.send_interswarm_message(
            "hello", "token", "s", ["a@b"], "request", "t", {"x": 1}, False, True
        ),
        {
            "body": "hello",
            "user_token": "token",
            "subject": "s",
            "targets": ["a@b"],
            "msg_type": "request",
            "task_id": "t",
            "routing_info": {"x": 1},
            "stream": False,
            "ignore_stream_pings": True,
        },
    ),
    (
        "/interswarm/forward",
        lambda c: c.post_interswarm_message({"message_id": "m"}),
        {"message": {"message_id": "m"}},
    ),
    (
        "/interswarm/back",
        lambda c: c.post_interswarm_response({"message_id": "m"}),
        {"message": {"message_id": "m"}},
    ),
]


@pytest.mark.parametrize(("path", "call", "sent"), SENT)
async def test_calls_between_swarms_send_what_is_documented(
    server: Counterpart, client: MAILClient, path: str, call, sent
) -> None:
    server.answer("POST", path, {"status": "fine"})
    assert await call(client) == {"status": "fine"}
    assert server.seen[0][3] == sent


RESPONSE = {
    "id": "task-1",
    "created_at": 1.0,
    "model": "alpha",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


@pytest.mark.parametrize("answer", [RESPONSE, json.dumps(RESPONSE)], ids=["object", "1.3.6"])
async def test_responses_are_the_sdks_own(
    server: Counterpart, client: MAILClient, answer: object
) -> None:
    server.answer("POST", "/responses", answer)
    response = await client.debug_post_responses([{"role": "user"}], [], metadata={"a": "b"})
    assert (response.id, response.output) == ("task-1", [])
    sent = {name: value for name, value in server.seen[0][3].items() if value is not None}
    assert sent == {"input": [{"role": "user"}], "tools": [], "metadata": {"a": "b"}}


@pytest.mark.parametrize("answer", ["Internal Server Error", {"id": "x"}, [], None])
async def test_what_is_no_response_is_a_value_error(
    server: Counterpart, client: MAILClient, answer: object
) -> None:
    server.answer("POST", "/responses", answer)
    with pytest.raises(ClientDecodeError, match="response"):
        await client.debug_post_responses([], [])


async def test_post_message_sends_exactly_the_documented_fields(
    server: Counterpart, client: MAILClient
) -> None:
    server.answer("POST", "/message", {"response": "hi", "events": None})
    assert await client.post_message("Hello") == {"response": "hi", "events": None}
    await client.post_message(
        "b",
        "math",
        True,
        subject="s",
        msg_type="broadcast",
        task_id="t",
        resume_from="user_response",
        max_steps=3,
    )
    assert server.seen[0][3] == {
        "subject": "New Message",
        "body": "Hello",
        "msg_type": "request",
        "show_events": False,
        "kwargs": {},
    }
    assert server.seen[1][3] == {
        "subject": "s",
        "body": "b",
        "msg_type": "broadcast",
        "entrypoint": "math",
        "show_events": True,
        "task_id": "t",
        "resume_from": "user_response",
        "kwargs": {"max_steps": 3},
    }


async def test_submit_message_asks_not_to_wait(server: Counterpart, client: MAILClient) -> None:
    server.answer("POST", "/message", {"task_id": "t-1", "status": "running"}, status=202)
    accepted = await client.submit_message("Hello", task_id="t-1", max_steps=3)
    assert accepted == {"task_id": "t-1", "status": "running"}
    _, _, headers, sent = server.seen[0]
    assert headers["Prefer"] == "respond-async"
    assert (sent["body"], sent["task_id"], sent["kwargs"]) == ("Hello", "t-1", {"max_steps": 3})


async def test_a_page_in_place_of_json_is_told_in_one_line(
    server: Counterpart, client: MAILClient
) -> None:
    async def page(request: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(
            text="<html>\n  <h1>Oh</h1>\n</html>\n", content_type="text/html", status=501
        )

    server.routes["POST", "/message"] = page
    with pytest.raises(ClientHTTPError) as caught:
        await client.post_message("hi")
    assert str(caught.value).endswith("status code 501: <html> <h1>Oh</h1> </html>")


async def test_a_refusal_carries_the_servers_detail(
    server: Counterpart, client: MAILClient
) -> None:
    server.answer("POST", "/message", {"detail": "no message provided"}, status=400)
    with pytest.raises(RuntimeError, match="status code 400: no message provided") as caught:
        await client.post_message("")
    assert isinstance(caught.value, ClientHTTPError)
    assert (caught.value.status, caught.value.detail) == (400, "no message provided")


async def test_a_refusal_chains_aiohttps_exception_without_the_key(server: Counterpart) -> None:
    server.answer("GET", "/status", {"detail": "invalid role"}, status=403)
    async with MAILClient(server.url, api_key="very-secret") as client:
        with pytest.raises(RuntimeError) as caught:
            await client.get_status()
    cause = caught.value.__cause__
    assert isinstance(cause, aiohttp.ClientResponseError)
    assert cause.status == 403
    assert str(cause.request_info.url).endswith("/status")
    assert "very-secret" not in f"{cause!r} {cause} {cause.request_info!r} {cause.headers!r}"


async def test_no_server_is_a_runtime_error_with_its_cause(server: Counterpart) -> None:
    async with MAILClient("http://127.0.0.1:1", config=ClientConfig(timeout=5)) as client:
        with pytest.raises(RuntimeError, match="MAIL client request failed: Cannot conn") as caught:
            await client.ping()
    assert isinstance(caught.value.__cause__, aiohttp.ClientError)
    assert getattr(caught.value, "status", 0) is None


async def test_an_answer_that_is_no_json_is_a_value_error(
    server: Counterpart, client: MAILClient
) -> None:
    async def page(request: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(text="<html>hello", content_type="text/html")

    server.routes["GET", "/"] = page
    with pytest.raises(ValueError, match="content type 'text/html': '<html>hello'") as caught:
        await client.ping()
    assert isinstance(caught.value, ClientDecodeError)
    server.answer("GET", "/", [1])
    with pytest.raises(ClientDecodeError, match="expected a JSON object, got list"):
        await client.ping()


@pytest.mark.parametrize("kind", ["application/json; charset=hex", "application/json"])
async def test_an_answer_that_cannot_be_decoded_is_a_decode_error(
    server: Counterpart, client: MAILClient, kind: str
) -> None:
    async def odd(request: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(body=b"[" * 100_000, headers={"Content-Type": kind})

    server.routes["GET", "/"] = odd
    with pytest.raises(ClientDecodeError, match="expected JSON"):
        await client.ping()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_told_and_never_followed(
    server: Counterpart, client: MAILClient, status: int
) -> None:
    async def elsewhere(request: aiohttp.web.Request) -> aiohttp.web.Response:
        target = server.url.replace("://", "://user:hidden@") + "/other?token=hidden#hidden"
        return aiohttp.web.Response(status=status, headers={"Location": target})

    for route in (("GET", "/health"), ("POST", "/message")):
        server.routes[route] = elsewhere
    for call in (client.get_health(), client.post_message_stream("secret")):
        with pytest.raises(ClientHTTPError, match=f"redirects to {server.url}/other;") as caught:
            await call
        assert (caught.value.status, "hidden" in str(caught.value)) == (status, False)
    assert [path for _, path, _, _ in server.seen] == ["/health", "/message"]


async def test_a_slow_answer_runs_into_the_timeout(server: Counterpart) -> None:
    import asyncio

    async def never(request: aiohttp.web.Request) -> aiohttp.web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    server.routes["GET", "/"] = never
    async with MAILClient(server.url, config=ClientConfig(timeout=0.05)) as client:
        with pytest.raises(ClientHTTPError, match="no response in time"):
            await client.ping()


async def test_login_keeps_a_good_key_and_forgets_a_bad_one(
    server: Counterpart, client: MAILClient
) -> None:
    server.answer("GET", "/whoami", {"id": "alice", "role": "user"})
    await client.login("key-2")
    assert (client.user_id, client.user_role, client.api_key) == ("alice", "user", "key-2")
    assert server.seen[0][2]["Authorization"] == "Bearer key-2"
    server.answer("GET", "/whoami", {"detail": "invalid API key"}, status=401)
    with pytest.raises(ClientHTTPError, match=r"login failed: .*invalid API key") as caught:
        await client.login("key-3")
    assert (client.api_key, caught.value.status) == (None, 401)
    server.answer("GET", "/whoami", {})
    with pytest.raises(ClientHTTPError, match=r"login failed: .*no id and role"):
        await client.login("key-4")
    assert client.api_key is None


async def test_a_session_given_from_outside_stays_open(server: Counterpart) -> None:
    server.answer("GET", "/", {})
    async with aiohttp.ClientSession() as session:
        async with MAILClient(server.url, session=session) as client:
            await client.ping()
        assert not session.closed


async def test_a_closed_client_opens_a_new_session_when_used_again(server: Counterpart) -> None:
    server.answer("GET", "/", {})
    client = MAILClient(server.url)
    await client.ping()
    await client.aclose()
    await client.aclose()
    await client.ping()
    await client.aclose()


async def test_headers_can_be_added_by_a_subclass(server: Counterpart) -> None:
    class Tracing(MAILClient):
        def _build_headers(self, *args, **kwargs) -> dict[str, str]:
            return super()._build_headers(*args, **kwargs) | {"X-Trace": "7"}

    server.answer("GET", "/", {})
    async with Tracing(server.url) as client:
        await client.ping()
    assert server.seen[0][2]["X-Trace"] == "7"
    assert "Authorization" not in server.seen[0][2]


async def test_verbose_logs_requests_but_no_key(
    server: Counterpart, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer("GET", "/", {})
    logging.getLogger("mail").propagate = True
    with caplog.at_level(logging.INFO, "mail.client"):
        async with MAILClient(server.url, "key-1") as quiet:
            await quiet.ping()
        assert caplog.text == ""
        async with MAILClient(server.url, "key-1", config=ClientConfig(verbose=True)) as client:
            await client.ping()
    assert "GET / -> 200" in caplog.text
    assert "key-1" not in caplog.text


def test_a_url_without_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="http://"):
        MAILClient("localhost:8000")
