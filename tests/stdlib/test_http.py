"""HTTP actions: real exchanges with a server on loopback, and refusals before any connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from aiohttp import web

from mail.api.actions import MAILAction
from mail.stdlib.http import actions
from mail.stdlib.http.actions import http_get, http_head, http_options, http_patch, http_post
from tests.stdlib.outside import PUBLIC, Outside
from tests.support.loopback import served

BODILESS = [actions.http_get, actions.http_head, actions.http_options, actions.http_delete]
WITH_BODY = [actions.http_post, actions.http_put, actions.http_patch]
EVERY = BODILESS + WITH_BODY
OVER = web.AppKey("over", asyncio.Event)
by_name = {"ids": lambda action: action.name}


async def call(action: MAILAction, url: object, **more: Any) -> str:
    """Call an action as an agent does."""
    if action in WITH_BODY:
        more = {"headers": {}, "body": {}, **more}
    return await action.function({"url": url, **more})


async def echo(request: web.Request) -> web.Response:
    """Say what was asked, as JSON."""
    return web.json_response(
        {
            "method": request.method,
            "headers": dict(request.headers),
            "body": await request.text(),
        }
    )


async def typed(request: web.Request) -> web.Response:
    """Answer with the body and the content type of the query."""
    body = bytes.fromhex(request.query["hex"])
    return web.Response(body=body, headers={"Content-Type": request.query["type"]})


async def status(request: web.Request) -> web.Response:
    """Answer with the status of the path."""
    code = int(request.match_info["code"])
    return web.Response(status=code, text="the reason is this" if code >= 400 else "")


async def endless(request: web.Request) -> web.StreamResponse:
    """Send and send."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    try:
        while True:
            await answer.write(b"0123456789" * 1000)
    except ConnectionError:
        return answer


async def silent(request: web.Request) -> web.Response:
    """Never answer."""
    await request.app[OVER].wait()
    return web.Response()


async def onward(request: web.Request) -> web.Response:
    """Send the caller elsewhere."""
    raise web.HTTPTemporaryRedirect(request.query["to"])


@pytest.fixture
async def server(configure: Callable[[str], None]) -> AsyncIterator[str]:
    """A server on loopback, which the settings allow; gives its address."""
    app = web.Application()
    app[OVER] = asyncio.Event()
    app.router.add_route("*", "/echo", echo)
    app.router.add_get("/typed", typed)
    app.router.add_get("/status/{code}", status)
    app.router.add_get("/endless", endless)
    app.router.add_get("/silent", silent)
    app.router.add_route("*", "/onward", onward)
    async with served(app) as address:
        allowed = address.removeprefix("http://")
        configure(f'[stdlib.http]\nallow = ["{allowed}"]\nmax_bytes = 50000\ntimeout = 20\n')
        yield address
        app[OVER].set()


@pytest.mark.parametrize("action", EVERY, **by_name)
async def test_every_verb_reaches_the_server_with_its_headers(
    server: str, action: MAILAction
) -> None:
    headers = {"X-Colour": "blue", "Authorization": "Bearer t"}
    more: dict[str, Any] = {"body": {"a": [1, "ü"]}} if action in WITH_BODY else {}
    answer = await call(action, f"{server}/echo", headers=headers, **more)
    if action is http_head:
        assert answer.startswith("200 OK\n")
        assert "content-type: application/json" in answer.lower()
        return
    seen = json.loads(answer[answer.index("{") :])
    assert seen["method"] == action.name.removeprefix("http_").upper()
    assert (seen["headers"]["X-Colour"], seen["headers"]["Authorization"]) == ("blue", "Bearer t")
    assert seen["headers"]["Host"] == server.removeprefix("http://")
    assert seen["headers"]["User-Agent"].startswith("mail/")
    if action in WITH_BODY:
        assert json.loads(seen["body"]) == {"a": [1, "ü"]}
        assert seen["headers"]["Content-Type"] == "application/json"


async def test_options_shows_status_headers_and_text(server: str) -> None:
    answer = await call(http_options, f"{server}/echo")
    first, _, rest = answer.partition("\n")
    assert first == "200 OK"
    assert json.loads(rest.partition("\n\n")[2])["method"] == "OPTIONS"


async def test_another_content_type_may_be_named(server: str) -> None:
    headers = {"content-type": "application/merge-patch+json"}
    answer = json.loads(await call(http_patch, f"{server}/echo", headers=headers, body={}))
    assert answer["headers"]["Content-Type"] == "application/merge-patch+json"
    bare = json.loads(await http_patch.function({"url": f"{server}/echo", "body": {}}))
    assert bare["body"] == "{}"


@pytest.mark.parametrize("code", [204, 304, 400, 404, 418, 500, 599])
async def test_anything_but_success_says_its_status(server: str, code: int) -> None:
    answer = await call(http_get, f"{server}/status/{code}")
    if code == 204:
        assert answer == ""
        return
    assert answer.startswith(f"Error: the server answered {code}")
    assert ("the reason is this" in answer) is (code >= 400)
    assert ("Not Found" in answer) is (code == 404)


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("text/plain; charset=latin-1", "grün".encode("latin-1"), "grün"),
        ("text/plain; charset=klingon", "grün".encode(), "grün"),
        ("text/plain; charset=base64", b"aGk=", "aGk="),
        ("text/plain; charset=idna", b"a.b", "a.b"),
        ("text/html", "<p>grün".encode(), "<p>grün"),
        ("application/problem+json", b"{}", "{}"),
        ("text/plain", b"a\xffb", "a\ufffdb"),
        ("image/png", b"\x89PNG", "[binary answer: image/png, 4 bytes]"),
        ("application/octet-stream", b"hi", "[binary answer: application/octet-stream, 2 bytes]"),
        ("application/pdf", b"", ""),
    ],
)
async def test_text_is_shown_and_binary_described(
    server: str, kind: str, body: bytes, shown: str
) -> None:
    query = httpx.QueryParams({"hex": body.hex(), "type": kind})
    assert await call(http_get, f"{server}/typed?{query}") == shown


async def test_a_long_answer_is_cut_off_and_says_so(server: str) -> None:
    answer = await call(http_get, f"{server}/endless")
    # aiohttp names no type of a stream but octet-stream, so nothing of it is shown.
    assert answer == "[binary answer: application/octet-stream, over 50000 bytes]"


async def test_a_long_text_is_cut_off_between_characters(
    outside: Outside, configure: Callable[[str], None]
) -> None:
    configure("[stdlib.http]\nmax_bytes = 10\n")
    outside.handler = lambda _: httpx.Response(200, text="äöüßäö")
    answer = await call(http_get, "http://public.example/")
    assert answer == "äöüßä\n\n[cut off here: the answer is longer than 10 bytes]"
    configure("[stdlib.http]\nmax_bytes = 9\n")
    assert (await call(http_get, "http://public.example/")).startswith("äöüß\n\n[cut off")
    configure("[stdlib.http]\nmax_bytes = 12\n")
    assert await call(http_get, "http://public.example/") == "äöüßäö"


async def test_a_text_without_a_type_is_shown_unless_it_looks_binary(outside: Outside) -> None:
    outside.handler = lambda _: httpx.Response(200, content=b"plain")
    assert await call(http_get, "http://public.example/") == "plain"
    outside.handler = lambda _: httpx.Response(200, content=b"a\0b")
    assert await call(http_get, "http://public.example/") == (
        "[binary answer: of unknown type, 3 bytes]"
    )


async def test_a_server_that_says_nothing_is_given_up(
    server: str, configure: Callable[[str], None]
) -> None:
    configure('[stdlib.http]\nallow = ["127.0.0.1"]\ntimeout = 0.2\n')
    answer = await call(http_get, f"{server}/silent")
    assert answer in (
        "Error: no complete answer within 0.2 seconds",
        "Error: no answer in time",
    )


async def test_a_server_that_is_not_there_is_told(configure: Callable[[str], None]) -> None:
    configure('[stdlib.http]\nallow = ["127.0.0.1"]\n')
    assert await call(http_get, "http://127.0.0.1:1/") == "Error: the connection failed"


@pytest.mark.parametrize("action", EVERY, **by_name)
async def test_arguments_are_checked(outside: Outside, action: MAILAction) -> None:
    assert await call(action, None) == "Error: `url` is required"
    assert await call(action, 5) == "Error: `url` must be a string"
    url = "http://public.example/"
    assert await call(action, url, headers=[]) == "Error: `headers` must be a dictionary"
    if action in WITH_BODY:
        assert await call(action, url, body=None) == "Error: `body` is required"
        assert await call(action, url, body="{}") == "Error: `body` must be a dictionary"
    assert outside.requests == []


async def test_post_and_put_want_their_headers() -> None:
    for action in (http_post, actions.http_put):
        assert await action.function({"url": "http://public.example/", "body": {}}) == (
            "Error: `headers` is required"
        )


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"Host": "127.0.0.1"}, "the header 'Host' cannot be set"),
        ({"host": "127.0.0.1"}, "the header 'host' cannot be set"),
        ({"Content-Length": "5"}, "cannot be set"),
        ({"Transfer-Encoding": "chunked"}, "cannot be set"),
        ({"Connection": "keep-alive"}, "cannot be set"),
        ({"Upgrade": "websocket"}, "cannot be set"),
        ({"Accept-Encoding": "br"}, "cannot be set"),
        ({"Proxy-Authorization": "x"}, "cannot be set"),
        ({"X": "a\r\nHost: inside"}, "contains characters that are not allowed in headers"),
        ({"X\r\nHost": "a"}, "contains characters that are not allowed in headers"),
        ({"X Y": "a"}, "contains characters that are not allowed in headers"),
        ({"": "a"}, "contains characters that are not allowed in headers"),
        ({"X": "ü"}, "contains characters that are not allowed in headers"),
        ({"X": 5}, "must have a string as its value"),
        ({"X": "1", "x": "2"}, "is set twice"),
        ({"X": "a" * 20_000}, "longer than 16384 characters"),
    ],
)
async def test_headers_cannot_be_forged(
    outside: Outside, headers: dict[str, Any], problem: str
) -> None:
    for action in (http_get, http_post):
        answer = await call(action, "http://public.example/", headers=headers)
        assert answer.startswith("Error: ")
        assert problem in answer
    assert outside.requests == []


@pytest.mark.parametrize("action", EVERY, **by_name)
@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://localhost:8000/",
        "http://127.0.0.1/",
        "http://10.0.0.1/",
        "http://inside.example/",
        "http://both.example/",
        "http://public.example@169.254.169.254/",
        "http://[::ffff:169.254.169.254]/",
    ],
)
async def test_private_addresses_are_refused_before_a_connection(
    outside: Outside, wall: list[str], action: MAILAction, url: str
) -> None:
    outside.names |= {
        "localhost": ["127.0.0.1", "::1"],
        "inside.example": ["192.168.0.7"],
        "both.example": [PUBLIC, "10.0.0.1"],
    }
    answer = await call(action, url)
    assert answer.startswith("Error: ")
    assert "not a public address; an operator can allow it in mail.toml" in answer
    assert (outside.requests, wall) == ([], [])
    normal = await call(action, "http://public.example/")
    assert not normal.startswith("Error")
    assert outside.connected == [PUBLIC]


async def test_a_name_that_changes_its_address_gains_nothing(outside: Outside) -> None:
    outside.names["rebind.example"] = [[PUBLIC], ["127.0.0.1"], [PUBLIC]]
    assert await call(http_get, "http://rebind.example/") == "hello from rebind.example"
    assert (await call(http_get, "http://rebind.example/")).startswith("Error: 127.0.0.1 (from ")
    assert await call(http_get, "http://rebind.example/") == "hello from rebind.example"
    assert outside.connected == [PUBLIC, PUBLIC]


@pytest.mark.parametrize("action", EVERY, **by_name)
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_to_loopback_is_refused(
    outside: Outside, action: MAILAction, code: int
) -> None:
    outside.names["localhost"] = ["127.0.0.1"]

    def answer(request: httpx.Request) -> httpx.Response:
        location = {"/a": "http://127.0.0.1/", "/b": "http://localhost/", "/c": "/fine"}
        if request.url.path in location:
            return httpx.Response(code, headers={"Location": location[request.url.path]})
        return httpx.Response(200, text="fine")

    outside.handler = answer
    for path in ("a", "b"):
        refused = await call(action, f"http://public.example/{path}")
        assert refused.startswith("Error: 127.0.0.1 ")
    assert "Error" not in await call(action, "http://public.example/c")
    assert outside.connected == [PUBLIC] * 4


async def test_a_real_redirect_is_followed_and_a_real_one_elsewhere_refused(server: str) -> None:
    answer = await call(http_post, f"{server}/onward?to={server}/echo", body={"a": 1})
    assert json.loads(json.loads(answer)["body"]) == {"a": 1}
    answer = await call(http_get, f"{server}/onward?to=http://127.0.0.2/")
    assert answer.startswith("Error: 127.0.0.2 is a loopback address")
    answer = await call(http_get, f"{server}/onward?to={server}/onward")
    assert answer.startswith("Error: the server answered 500")


async def test_other_schemes_are_refused_without_a_hint_to_allow_them(outside: Outside) -> None:
    for url in ("file:///etc/passwd", "ftp://public.example/", "public.example", ""):
        assert await call(http_get, url) == (
            "Error: only full http:// and https:// addresses can be fetched"
        )
    assert outside.asked == []


@pytest.mark.parametrize("value", [float("nan"), "\ud800", "deep"])
async def test_bodies_that_cannot_be_sent_are_errors_for_the_agent(
    outside: Outside, value: object
) -> None:
    if value == "deep":
        for _ in range(100_000):
            value = [value]
    answer = await call(http_post, "http://public.example/", body={"a": value})
    assert answer.startswith("Error: the body ")
    assert outside.requests == []


async def test_a_host_that_is_no_international_name_is_an_error_for_the_agent(
    outside: Outside,
) -> None:
    answer = await call(http_get, "http://xn--a.example/")
    assert answer == "Error: the address is not a valid URL"
    outside.handler = lambda _: httpx.Response(302, headers={"Location": "http://xn--a.example/"})
    answer = await call(http_get, "http://public.example/")
    assert answer == "Error: the redirect leads to an invalid address"
