"""The one way out: what is refused before a connection, and what is connected to exactly."""

import gzip
import ipaddress
import zlib

import httpx
import pytest

from mail.egress.client import fetch, guarded_client, guarded_request, opened
from mail.egress.rules import EgressPolicy, FetchError, NotPublic, RefusedAddress
from mail.errors import ConfigError
from tests.stdlib.outside import NOT_PUBLIC, OTHER, PUBLIC, TRICKS, Outside

NOWHERE = EgressPolicy()


@pytest.fixture
def world() -> Outside:
    return Outside(names={"public.example": [PUBLIC], "other.example": [OTHER]})


def get(world: Outside, url: str, policy: EgressPolicy = NOWHERE, **more: object) -> str:
    options = {"resolve": world.resolve, "transport": world.transport, **more}
    return fetch(url, policy=policy, **options).decode()  # type: ignore[arg-type]


def redirect(location: str, status: int = 302) -> httpx.Response:
    return httpx.Response(status, headers={"Location": location})


def test_a_public_address_is_fetched_at_the_checked_ip_under_its_own_name(world: Outside) -> None:
    assert get(world, "https://public.example:8443/a?b=c") == "hello from public.example:8443"
    [request] = world.requests
    assert str(request.url) == f"https://{PUBLIC}:8443/a?b=c"
    assert request.extensions["sni_hostname"] == "public.example"


@pytest.mark.parametrize(("address", "kind"), NOT_PUBLIC)
def test_what_is_not_public_is_refused_by_address_and_by_name(
    world: Outside, address: str, kind: str
) -> None:
    world.names["inside.example"] = [address]
    world.names["both.example"] = [PUBLIC, address]
    literal = f"[{address}]" if ":" in address else address
    for host in (literal, "inside.example", "both.example"):
        with pytest.raises(NotPublic, match=rf"is an? .*{kind}.* address, not a public address"):
            get(world, f"http://{host}/")
    assert world.connected == []


@pytest.mark.parametrize(("address", "kind"), NOT_PUBLIC)
def test_a_policy_for_private_addresses_opens_nothing_else(
    world: Outside, address: str, kind: str
) -> None:
    world.names["inside.example"] = [address]
    policy = EgressPolicy(private=True)
    if kind in ("private", "loopback"):
        assert get(world, "http://inside.example/", policy) == "hello from inside.example"
        return
    with pytest.raises(NotPublic, match=f"is an? .*{kind}.* address"):
        get(world, "http://inside.example/", policy)
    assert world.connected == []


@pytest.mark.parametrize(
    ("host", "leads_to", "reached"),
    [
        ("127.0.0.1:8001", "", True),
        ("[::1]:8001", "", True),
        ("localhost:8001", "127.0.0.1", True),
        ("LocalHost.", "::1", True),
        ("inside.example", "127.0.0.1", False),
        ("localhost", "10.0.0.1", False),
        ("localhost", "169.254.169.254", False),
        ("10.0.0.1", "", False),
        ("0.0.0.0", "", False),  # noqa: S104
    ],
)
def test_a_policy_for_loopback_wants_it_named(
    world: Outside, host: str, leads_to: str, *, reached: bool
) -> None:
    world.names[host.lower().partition(":")[0].removesuffix(".")] = [leads_to]
    policy = EgressPolicy(loopback=True)
    if reached:
        assert get(world, f"http://{host}/", policy).startswith("hello")
        return
    with pytest.raises(NotPublic):
        get(world, f"http://{host}/", policy)
    assert world.connected == []


# What IANA's two special-purpose address registries do not call globally reachable, and the
# multicast ranges; 64:ff9b::/96 and ::ffff:0:0/96 go by the IPv4 address in them.
SPECIAL_PURPOSE = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.170/32", "192.0.0.171/32"),
    *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
    *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32", "::1/128", "::/128"),
    *("64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/32", "2001:2::/48", "2001:10::/28"),
    *("2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "ff00::/8"),
]


@pytest.mark.parametrize("network", SPECIAL_PURPOSE)
def test_networks_of_special_purpose_are_refused_whatever_python_counts_as_public(
    world: Outside, network: str
) -> None:
    ends = ipaddress.ip_network(network)
    for address in (ends[0], ends[-1]):
        world.names["inside.example"] = [str(address)]
        with pytest.raises(NotPublic):
            get(world, "http://inside.example/")
    assert world.connected == []


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_of_every_form_are_reached(world: Outside, address: str) -> None:
    world.names["there.example"] = [address]
    assert get(world, "http://there.example/") == "hello from there.example"
    literal = f"[{address}]" if ":" in address else address
    assert get(world, f"http://{literal}/") == f"hello from {literal}"


@pytest.mark.parametrize("url", TRICKS)
def test_tricks_with_the_spelling_lead_nowhere(world: Outside, url: str) -> None:
    with pytest.raises(FetchError):
        get(world, url)
    assert world.connected == []


def test_what_stands_before_the_last_at_sign_is_no_host(world: Outside) -> None:
    assert get(world, "http://127.0.0.1\\@public.example/") == "hello from public.example"
    assert (world.asked, world.connected) == (["public.example"], [PUBLIC])


def test_a_name_is_refused_in_capitals_and_with_a_dot_at_its_end(world: Outside) -> None:
    world.names["localhost"] = ["127.0.0.1"]
    for host in ("localhost", "LOCALHOST", "localhost.", "LocalHost."):
        with pytest.raises(NotPublic):
            get(world, f"http://{host}/")
    assert set(world.asked) == {"localhost"}
    assert world.connected == []


def test_a_name_is_resolved_once_so_rebinding_gains_nothing(world: Outside) -> None:
    world.names["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    assert get(world, "http://rebind.example/") == "hello from rebind.example"
    assert (world.asked, world.connected) == (["rebind.example"], [PUBLIC])
    with pytest.raises(NotPublic):
        get(world, "http://rebind.example/")
    assert world.connected == [PUBLIC]


def test_a_redirect_resolves_again_and_is_checked_again(world: Outside) -> None:
    world.names["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    world.handler = lambda _: redirect("/again")
    with pytest.raises(NotPublic):
        get(world, "http://rebind.example/")
    assert world.connected == [PUBLIC]


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "http://[::1]:8080/",
        "//169.254.169.254/latest/meta-data/",
        "http://inside.example/",
        "http://user:pw@other.example/",
        "file:///etc/passwd",
        "ftp://other.example/",
        "http://2130706433/",
    ],
)
def test_a_redirect_to_somewhere_else_is_refused(world: Outside, location: str) -> None:
    world.names["inside.example"] = ["10.0.0.1"]
    world.handler = lambda _: redirect(location)
    with pytest.raises(FetchError):
        get(world, "http://public.example/")
    assert world.connected == [PUBLIC]


def test_redirects_to_public_addresses_are_followed_up_to_five(world: Outside) -> None:
    def count(request: httpx.Request) -> httpx.Response:
        left = int(request.url.path.strip("/"))
        return redirect(f"/{left - 1}") if left else httpx.Response(200, text="arrived")

    world.handler = count
    assert get(world, "http://public.example/5") == "arrived"
    with pytest.raises(FetchError, match="more than 5 redirects"):
        get(world, "http://public.example/6")
    assert len(world.requests) == 6 + 6


@pytest.mark.parametrize(
    ("location", "kept"),
    [
        ("/onward", True),
        ("https://public.example/onward", True),
        ("http://other.example/onward", False),
        ("http://public.example:8080/onward", False),
        ("https://public.example:8443/onward", False),
    ],
)
async def test_credentials_stay_with_the_host_they_were_meant_for(
    world: Outside, location: str, *, kept: bool
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return redirect(location, 307) if request.url.path == "/" else httpx.Response(200)

    world.handler = answer
    client = guarded_client(NOWHERE, timeout=5, resolve=world.resolve, transport=world.transport)
    headers = {"X-Api-Key": "k", "Cookie": "c=1", "Accept": "text/plain"}
    request = guarded_request(
        client, "POST", "http://me:secret@public.example/", headers=headers, json={"a": 1}
    )
    async with client, opened(client, request) as response:
        assert response.status_code == 200
    first, last = world.requests
    assert first.headers["authorization"] == "Basic bWU6c2VjcmV0"
    assert "secret" not in str(first.url)
    for name in ("authorization", "x-api-key"):
        assert (name in last.headers) is kept
    assert "cookie" not in last.headers or location.startswith(("/", "http://public.example/"))
    assert (last.headers["accept"], last.content) == ("text/plain", b'{"a":1}')


async def cookies_sent(world: Outside, *answers: httpx.Response) -> list[str | None]:
    """Send a request with cookies; return those of each request that came of it."""
    left = [*answers, httpx.Response(200)]
    world.handler = lambda _: left.pop(0)
    client = guarded_client(NOWHERE, timeout=5, resolve=world.resolve, transport=world.transport)
    headers = {"Cookie": "a=1; b=2"}
    request = guarded_request(client, "GET", "http://public.example/", headers=headers)
    async with client, opened(client, request) as response:
        assert response.status_code == 200
    return [each.headers.get("cookie") for each in world.requests]


async def test_cookies_stay_on_the_way_within_one_host(world: Outside) -> None:
    steps = (redirect("/there"), redirect("http://public.example:80/on"))
    assert await cookies_sent(world, *steps) == ["a=1; b=2"] * 3


async def test_cookies_that_the_server_sets_join_those_of_the_request(world: Outside) -> None:
    step = redirect("/there")
    step.headers["Set-Cookie"] = "b=3; Path=/"
    assert await cookies_sent(world, step) == ["a=1; b=2", "a=1; b=3"]


@pytest.mark.parametrize(
    "location", ["http://other.example/", "https://public.example/", "http://public.example:81/"]
)
async def test_cookies_do_not_go_elsewhere(world: Outside, location: str) -> None:
    assert await cookies_sent(world, redirect(location)) == ["a=1; b=2", None]


@pytest.mark.parametrize(
    "host",
    ["xn--a.example", "xn--zzzzzz-.example", "xn--\u0080.example", "xn--a", "\udcff.example"],
)
def test_hosts_that_are_no_international_names_are_told(world: Outside, host: str) -> None:
    with pytest.raises(FetchError, match="not a valid URL"):
        get(world, f"http://{host}/")
    assert world.asked == []
    if host.isascii():
        world.handler = lambda _: redirect(f"http://{host}/")
        with pytest.raises(FetchError, match="the redirect leads to an invalid address"):
            get(world, "http://public.example/")


@pytest.mark.parametrize(
    "body", [{"a": float("nan")}, {"a": "\ud800"}, {"a": 10**5000}, {"a": object()}, "deep"]
)
async def test_a_body_that_cannot_be_sent_is_told(body: object) -> None:
    if body == "deep":
        for _ in range(100_000):
            body = [body]
    async with guarded_client(NOWHERE, timeout=5) as client:
        with pytest.raises(FetchError, match=r"^the body (cannot be sent as JSON|is nested too)"):
            guarded_request(client, "POST", "http://public.example/", json=body)


def test_a_downgrade_to_plain_http_loses_the_credentials(world: Outside) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.scheme == "https":
            return redirect("http://public.example/")
        return httpx.Response(200)

    world.handler = answer
    get(world, "https://me:secret@public.example/")
    assert ["authorization" in each.headers for each in world.requests] == [True, False]


def test_https_only_refuses_plain_http_at_every_step(world: Outside) -> None:
    policy = EgressPolicy(https_only=True)
    assert get(world, "https://public.example/", policy) == "hello from public.example"
    with pytest.raises(RefusedAddress, match="only full https:// addresses"):
        get(world, "http://public.example/", policy)
    world.handler = lambda _: redirect("http://public.example/")
    with pytest.raises(RefusedAddress):
        get(world, "https://public.example/", policy)
    assert len(world.requests) == 2


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("10.1.2.3", "http://10.1.2.3/"),
        ("10.0.0.0/8", "http://10.1.2.3/"),
        ("10.1.2.3:8080", "http://10.1.2.3:8080/"),
        ("10.0.0.0/8", "http://inside.example/"),
        ("inside.example", "http://inside.example:9/"),
        ("Inside.Example.", "http://inside.example/"),
        ("inside.example:80", "http://inside.example/"),
        ("::1", "http://[::1]/"),
        ("[::1]:8080", "http://[::1]:8080/"),
        ("fd00::/8", "http://[fd00::5]/"),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/"),
    ],
)
def test_what_the_policy_allows_is_reached(world: Outside, entry: str, url: str) -> None:
    world.names["inside.example"] = ["10.1.2.3"]
    assert get(world, url, EgressPolicy((entry,))).startswith("hello")


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("10.1.2.3", "http://10.1.2.4/"),
        ("10.1.2.3:8080", "http://10.1.2.3/"),
        ("inside.example:8080", "http://inside.example/"),
        ("inside.example", "http://x.inside.example/"),
        ("inside.example", "http://10.1.2.3/"),
        ("[::1]:8080", "http://[::1]:81/"),
    ],
)
def test_an_entry_allows_nothing_beside_itself(world: Outside, entry: str, url: str) -> None:
    world.names |= {"inside.example": ["10.1.2.3"], "x.inside.example": ["10.1.2.3"]}
    with pytest.raises(NotPublic):
        get(world, url, EgressPolicy((entry,)))
    assert world.connected == []


@pytest.mark.parametrize(
    "entry", ["", "http://x", "*.x", "10.0.0.0/33", "x:0", "x:70000", "1.2.3", "[::1", "a b", "x/8"]
)
def test_an_entry_that_means_nothing_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid entry: use a host name"):
        EgressPolicy((entry,))


def test_the_next_checked_address_is_tried_when_one_is_unreachable(world: Outside) -> None:
    world.names["two.example"] = [PUBLIC, OTHER]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == PUBLIC:
            raise httpx.ConnectError("no route")
        return httpx.Response(200, text="second")

    world.handler = answer
    assert get(world, "http://two.example/") == "second"
    world.names["two.example"] = [PUBLIC]
    with pytest.raises(FetchError, match="the connection failed"):
        get(world, "http://two.example/")


@pytest.mark.parametrize("found", [[], ["not an address"]])
def test_a_name_without_addresses_is_told(world: Outside, found: list[str]) -> None:
    world.names["empty.example"] = found
    with pytest.raises(FetchError, match=r"'empty\.example'"):
        get(world, "http://empty.example/")
    with pytest.raises(FetchError, match=r"'missing\.example' cannot be resolved"):
        get(world, "http://missing.example/")
    assert world.connected == []


async def test_a_promised_answer_of_the_resolver_is_awaited(world: Outside) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return world.resolve(host, port)

    # Inside a running event loop, too.
    assert get(world, "http://public.example/", resolve=resolve) == "hello from public.example"


@pytest.mark.parametrize("status", [204, 400, 404, 500])
def test_only_success_is_a_document(world: Outside, status: int) -> None:
    world.handler = lambda _: httpx.Response(status)
    if status == 204:
        assert get(world, "http://public.example/") == ""
        return
    with pytest.raises(FetchError, match=f"status {status}"):
        get(world, "http://public.example/")


class Stream(httpx.AsyncByteStream):
    """A body in pieces that counts how many were taken."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.taken = 0

    async def __aiter__(self):
        for piece in self.pieces:
            self.taken += 1
            yield piece


def test_a_large_document_is_refused_without_reading_it_all(world: Outside) -> None:
    body = Stream([b"x" * 100] * 50)
    world.handler = lambda _: httpx.Response(200, stream=body)
    with pytest.raises(FetchError, match="larger than 250 bytes"):
        get(world, "http://public.example/", max_bytes=250)
    assert body.taken == 3
    world.handler = lambda _: httpx.Response(200, stream=Stream([b"y" * 125] * 2))
    assert get(world, "http://public.example/", max_bytes=250) == "y" * 250


def test_the_body_of_a_redirect_is_not_read(world: Outside) -> None:
    body = Stream([b"x" * 100] * 50)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/":
            return httpx.Response(302, headers={"Location": "/there"}, stream=body)
        return httpx.Response(200, text="there")

    world.handler = answer
    assert get(world, "http://public.example/") == "there"
    assert body.taken == 0


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate"])
def test_a_compressed_document_is_expanded_up_to_the_limit(world: Outside, encoding: str) -> None:
    pack = zlib.compress if encoding == "deflate" else gzip.compress

    def send(text: bytes) -> None:
        body = Stream([pack(text)])
        world.handler = lambda _: httpx.Response(
            200, headers={"Content-Encoding": encoding}, stream=body
        )

    send(b"hello" * 50)
    assert get(world, "http://public.example/", max_bytes=250) == "hello" * 50
    send(b"0" * 50_000_000)
    with pytest.raises(FetchError, match="larger than 250 bytes"):
        get(world, "http://public.example/", max_bytes=250)


@pytest.mark.parametrize(
    ("encoding", "data", "problem"),
    [
        ("br", b"x", "a compression that was not requested"),
        ("gzip", b"not gzip", "invalid"),
        ("gzip", gzip.compress(b"x" * 1000, mtime=0)[:-4], "incomplete"),
    ],
)
def test_a_badly_compressed_document_is_told(
    world: Outside, encoding: str, data: bytes, problem: str
) -> None:
    world.handler = lambda _: httpx.Response(
        200, headers={"Content-Encoding": encoding}, stream=Stream([data])
    )
    with pytest.raises(FetchError, match=problem):
        get(world, "http://public.example/")


def test_every_failure_is_a_value_error_without_the_credentials(world: Outside) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError(f"while talking to me:secret@{request.url}", request=request)

    world.handler = fail
    url = "http://me:secret@public.example/?key=secret"
    for failing in (url, url.replace("public", "missing"), url.replace("http", "x")):
        with pytest.raises(FetchError) as raised:
            get(world, failing)
        assert issubclass(raised.type, ValueError)
        assert "secret" not in str(raised.value)


def test_proxies_of_the_environment_are_not_used(
    world: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert get(world, "http://public.example/") == "hello from public.example"
    assert world.connected == [PUBLIC]
    for name in ("proxy", "mounts", "trust_env"):
        with pytest.raises(TypeError, match=f"does not accept '{name}'"):
            guarded_client(NOWHERE, timeout=1, **{name: None})


def test_real_connections_go_to_the_checked_address_only(wall: list[str]) -> None:
    # The real transport, and a wall behind it: what it tries to reach is what was checked.
    with pytest.raises(FetchError, match="the connection failed"):
        fetch("http://x.example:1/", policy=NOWHERE, resolve=lambda *_: [PUBLIC])
    assert wall == [PUBLIC]
