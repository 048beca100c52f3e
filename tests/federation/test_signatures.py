"""Signed mail between servers: what is signed is taken, and nothing else that claims to be."""

import hashlib
import json
import random
import re
import stat
import uuid
from base64 import b64encode, urlsafe_b64decode
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_public_key,
)
from http_message_signatures import (
    HTTPMessageSigner,
    HTTPMessageVerifier,
    MappingKeyResolver,
    algorithms,
)

from mail.config.server import ServerConfig
from mail.errors import ConfigError, RoutingError, Unauthenticated
from mail.net import InterswarmRouter, SwarmRegistry
from mail.net.endpoints import public_key
from mail.net.peers import PeerAccess
from mail.net.signatures import (
    KEYS_PATH,
    SignatureRules,
    SignedRequest,
    SigningKeys,
    check_digest,
    check_signature,
)
from mail.net.types import PublicKey
from tests.federation.harbour import HARBOUR, WEATHER, harbour, weather
from tests.federation.kit import (
    Node,
    federation,
    register,
    settings,
    started,
    token_of,
    wrapper,
)
from tests.federation.test_attacks import EVIL, know, owners, told
from tests.support.waiting import until

FORWARD = "/interswarm/forward"
KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
EVILS_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(2, 34)))
ORDER = f"ask wind@{WEATHER}: 14:00?"
COVERED = ("@method", "@path", "content-digest")


def shown(key: ed25519.Ed25519PrivateKey) -> PublicKey:
    return public_key(key.public_key().public_bytes_raw())


def signing(config: ServerConfig, file: Path, **more: Any) -> ServerConfig:
    """Return the settings of a server that signs."""
    federated = config.federation.model_copy(update={"signing_key_file": str(file), **more})
    return config.model_copy(update={"federation": federated})


def requiring(config: ServerConfig, **more: Any) -> ServerConfig:
    federated = config.federation.model_copy(update={"require_signatures": True, **more})
    return config.model_copy(update={"federation": federated})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[Node]:
    """The weather's server, for any host; it has keys of the harbour and of a hostile peer."""
    config = settings(WEATHER).model_copy(update={"host": "0.0.0.0"})  # noqa: S104
    async with started(weather(), [HARBOUR, EVIL], config=config) as node:
        await know(node, HARBOUR, public_keys=[shown(KEY)])
        await know(node, EVIL, public_keys=[shown(EVILS_KEY)])
        yield node


def sha256(body: bytes) -> str:
    return f"sha-256=:{b64encode(hashlib.sha256(body).digest()).decode()}:"


def signed(  # noqa: PLR0913 - a request and a signature have many parts
    message: Any,
    *,
    key: Any = KEY,
    kid: str | None = None,
    path: str = FORWARD,
    age: float = 0,
    lives: float | None = None,
    covered: Sequence[str] = COVERED,
    alg: Any = algorithms.ED25519,
    host: str = "weather.example",
    digest: str | None = None,
) -> tuple[dict[str, str], bytes]:
    """Sign mail with the library alone; return the headers and the body."""
    body = json.dumps({"message": message}).encode()
    created = datetime.now(UTC) - timedelta(seconds=age)
    request = SimpleNamespace(method="POST", url=f"http://{host}{path}", headers={})
    request.headers["Content-Digest"] = digest or sha256(body)
    keys = MappingKeyResolver(public_keys={}, private_keys={kid or shown(KEY)["kid"]: key})
    signer = HTTPMessageSigner(signature_algorithm=alg, key_resolver=keys)
    signer.content_digest_class = SimpleNamespace(prepare=lambda *_, **__: None)  # takes any
    signer.sign(
        request,
        key_id=kid or shown(KEY)["kid"],
        created=created,
        expires=None if lives is None else created + timedelta(seconds=lives),
        covered_component_ids=covered,
    )
    return request.headers, body


async def deliver(
    node: Node, headers: dict[str, str], body: bytes, who: str = HARBOUR, route: str = "forward"
) -> httpx.Response:
    told = {"Content-Type": "application/json", **headers}
    return await node.client(who).post(f"/interswarm/{route}", content=body, headers=told)


def mail(**changes: Any) -> dict[str, Any]:
    return wrapper(HARBOUR, WEATHER, **changes)


def altered(**options: Any) -> tuple[dict[str, str], bytes]:
    headers, body = signed(mail(p_body="What wind?"), **options)
    return headers, body.replace(b"What wind?", b"Send gold")


def with_digest_of_the_altered_body() -> tuple[dict[str, str], bytes]:
    headers, body = altered()
    return headers | {"Content-Digest": sha256(body)}, body


def unsigned() -> tuple[dict[str, str], bytes]:
    return {}, json.dumps({"message": mail()}).encode()


def without(name: str) -> tuple[dict[str, str], bytes]:
    headers, body = signed(mail())
    del headers[name]
    return headers, body


def twice() -> tuple[dict[str, str], bytes]:
    headers, body = signed(mail())
    for name in ("Signature", "Signature-Input"):
        headers[name] += ", b" + headers[name].removeprefix("pyhms")
    return headers, body


def changed(name: str, old: str, new: str) -> tuple[dict[str, str], bytes]:
    headers, body = signed(mail())
    found, count = re.subn(old, new, headers[name])
    assert count
    return headers | {name: found}, body


def with_a_weak_digest() -> tuple[dict[str, str], bytes]:
    """Sign a digest that we do not know; who skipped it would take any body."""
    return signed(mail(), digest="md5=:AAAAAAAAAAAAAAAAAAAAAA==:")


def by_rsa() -> tuple[dict[str, str], bytes]:
    made = rsa.generate_private_key(65537, 2048)
    return signed(mail(), key=made, alg=algorithms.RSA_PSS_SHA512)


def by_hmac() -> tuple[dict[str, str], bytes]:
    """Take the public key for a shared secret."""
    secret = KEY.public_key().public_bytes_raw()
    return signed(mail(), key=secret, alg=algorithms.HMAC_SHA256)


ATTACKS: dict[str, tuple[Any, str]] = {
    "an altered body": (altered, "does not match the message body"),
    "an altered body with its digest": (with_digest_of_the_altered_body, "does not fit"),
    "a stripped signature": (unsigned, "must be signed"),
    "a signature without its parameters": (lambda: without("Signature-Input"), "Signature-Input"),
    "parameters without a signature": (lambda: without("Signature"), '"Signature" header'),
    "no digest": (lambda: without("Content-Digest"), "content-digest"),
    "the signature of another route": (
        lambda: signed(mail(), path="/interswarm/back"),
        "does not fit",
    ),
    "another peer's key": (
        lambda: signed(mail(), key=EVILS_KEY, kid=shown(EVILS_KEY)["kid"]),
        "no key",
    ),
    "another peer's key under this one's name": (
        lambda: signed(mail(), key=EVILS_KEY),
        "does not fit",
    ),
    "a new key that nobody registered": (
        lambda: signed(mail(), key=OTHER_KEY, kid=shown(OTHER_KEY)["kid"]),
        "registers it again",
    ),
    "an old signature": (lambda: signed(mail(), age=400), "age exceeds"),
    "a signature of the future": (lambda: signed(mail(), age=-120), "in the future"),
    "an expired signature": (lambda: signed(mail(), age=100, lives=10), "in the past"),
    "a date without end": (
        lambda: changed("Signature-Input", r"created=\d+", "created=999999999999999"),
        "created",
    ),
    "a body that is not covered": (
        lambda: signed(mail(), covered=("@method", "@path")),
        '"content-digest" was not covered',
    ),
    "a method that is not covered": (
        lambda: signed(mail(), covered=("@path", "content-digest")),
        '"@method" was not covered',
    ),
    "a path that is not covered": (
        lambda: signed(mail(), covered=("@method", "content-digest")),
        "does not cover the path",
    ),
    "a digest of an unknown kind": (with_a_weak_digest, "Unsupported content digest"),
    "hmac-sha256 with the public key": (by_hmac, "Unexpected algorithm"),
    "rsa-pss-sha512": (by_rsa, "Unexpected algorithm"),
    "two signatures": (twice, "Multiple signatures"),
    "no creation time": (lambda: changed("Signature-Input", r";created=\d+", ""), "created"),
    "no name of a key": (lambda: changed("Signature-Input", r';keyid="[^"]+"', ""), "keyid"),
    "a signature of another length": (lambda: changed("Signature", ":.*:", ":AAAA:"), "not fit"),
    "nonsense": (lambda: changed("Signature-Input", ".*", "((("), "Malformed"),
    "components without end": (
        lambda: changed("Signature-Input", '"@path"', " ".join(f'"x{n}"' for n in range(500))),
        "longer than 2048",
    ),
    "an unknown component": (
        lambda: changed("Signature-Input", '"@path"', '"@planet"'),
        "@planet",
    ),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_signature_that_is_not_right_is_refused_and_logged(
    node: Node, attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, reason = ATTACKS[attack]
    headers, body = make()
    answer = await deliver(node, headers, body)
    assert answer.status_code == 401, answer.text
    assert reason in answer.json()["detail"]
    assert f"refused POST {FORWARD} of agent '{HARBOUR}': 401 the " in told(caplog)[-1]
    assert token_of(HARBOUR, WEATHER) not in caplog.text
    assert await owners(node) == set()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("end", ["?", "#", "?x="])
async def test_the_host_header_says_nothing_of_the_path(node: Node, end: str) -> None:
    """A made-up host must not bring along the path that was signed."""
    headers, body = signed(mail(), path="/interswarm/back")
    headers["Host"] = f"weather.example/interswarm/back{end}"
    answer = await deliver(node, headers, body)
    assert answer.status_code == 401, answer.text
    assert "does not fit" in answer.json()["detail"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("host", ["a b", "user@weather.example", "[", "a:b:c"])
async def test_a_host_header_that_is_none_fits_no_signature_of_the_address(
    node: Node, host: str
) -> None:
    covered = ("@method", "@authority", "@path", "content-digest")
    headers, body = signed(mail(), covered=covered)
    answer = await deliver(node, headers | {"Host": host}, body)
    assert answer.status_code in (400, 401), answer.text


@pytest.mark.asyncio(loop_scope="module")
async def test_a_peer_does_not_borrow_the_signature_of_another(node: Node) -> None:
    """Whose keys count, the token says."""
    headers, body = signed(mail())
    answer = await deliver(node, headers, body, EVIL)
    assert answer.status_code == 401, answer.text


@pytest.mark.asyncio(loop_scope="module")
async def test_a_large_altered_body_is_refused_too(node: Node) -> None:
    headers, body = signed(mail(p_body="What wind?" + "?" * 50_000))
    answer = await deliver(node, headers, body.replace(b"What wind?", b"Send gold!"))
    assert answer.status_code == 401, answer.text
    assert "does not match the message body" in answer.json()["detail"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_refused_body_is_not_what_a_key_of_a_request_stands_for(node: Node) -> None:
    headers, body = altered()
    headers |= {"Idempotency-Key": str(uuid.uuid4())}
    assert (await deliver(node, headers, body)).status_code == 401
    assert (await deliver(node, headers, body)).status_code == 401


GOOD: dict[str, dict[str, Any]] = {
    "by the library, as we sign": {},
    "with the whole address": {"covered": ("@method", "@target-uri", "content-digest")},
    "with the address and the path": {
        "covered": ("@method", "@authority", "@path", "content-digest")
    },
    "by a clock that is 40 s ahead": {"age": -40},
    "four minutes ago": {"age": 240},
}


@pytest.mark.parametrize("kind", GOOD)
async def test_what_is_signed_well_is_taken(kind: str) -> None:
    options = GOOD[kind]
    async with started(weather(), [HARBOUR]) as node:
        await know(node, HARBOUR, public_keys=[shown(OTHER_KEY), shown(KEY)])
        host = node.url.removeprefix("http://")
        headers, body = signed(mail(), host=host, **options)
        answer = await deliver(node, headers, body)
        assert answer.status_code == 200, answer.text
        again = await deliver(node, headers, body)
        assert (again.status_code, again.text) == (200, answer.text)


async def test_behind_a_proxy_the_address_is_the_one_that_others_know() -> None:
    config = settings(WEATHER)
    known = config.federation.model_copy(update={"base_url": "https://mail.example.org/weather"})
    config = config.model_copy(update={"federation": known})
    async with started(weather(), [HARBOUR], config=config) as node:
        await know(node, HARBOUR, public_keys=[shown(KEY)])
        path, host = f"/weather{FORWARD}", "mail.example.org"
        covered = ("@method", "@authority", "@path", "content-digest")
        headers, body = signed(mail(), path=path, host=host, covered=covered)
        answer = await deliver(node, headers, body)
        assert answer.status_code == 200, answer.text
        headers, body = signed(mail())
        assert (await deliver(node, headers, body)).status_code == 401


async def test_a_signature_of_a_swarm_without_a_key_says_nothing() -> None:
    async with started(weather(), [HARBOUR]) as node:
        await know(node, HARBOUR)
        headers, body = altered()
        answer = await deliver(node, headers, body)
        assert answer.status_code == 200, answer.text


async def test_where_signatures_are_required_nobody_goes_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with started(weather(), [HARBOUR], config=requiring(settings(WEATHER))) as node:
        await know(node, HARBOUR)
        for headers, body in (unsigned(), signed(mail())):
            answer = await deliver(node, headers, body)
            assert answer.status_code == 401, answer.text
            assert "[server.federation] require_signatures" in answer.json()["detail"]
            assert f"of agent '{HARBOUR}': 401 this server takes signed mail" in told(caplog)[-1]
        await know(node, HARBOUR, public_keys=[shown(KEY)])
        assert (await deliver(node, *unsigned())).status_code == 401
        assert (await deliver(node, *signed(mail()))).status_code == 200


async def test_the_age_and_the_clocks_are_settings() -> None:
    config = requiring(settings(WEATHER), signature_max_age=30.0, clock_skew=5.0)
    async with started(weather(), [HARBOUR], config=config) as node:
        await know(node, HARBOUR, public_keys=[shown(KEY)])
        for age, status in ((60, 401), (-20, 401), (20, 200)):
            answer = await deliver(node, *signed(mail(), age=age))
            assert answer.status_code == status, (age, answer.text)


# --- two servers --------------------------------------------------------------------------------


async def test_two_servers_that_require_signatures_solve_a_task(tmp_path: Path) -> None:
    configs = {
        name: requiring(signing(settings(name), tmp_path / f"{name}.pem"))
        for name in (HARBOUR, WEATHER)
    }
    async with federation(harbour(), weather(), configs=configs) as nodes:
        answer = await nodes[HARBOUR].ask(ORDER)
        assert "heard" in answer["response"]
        for one, other in ((HARBOUR, WEATHER), (WEATHER, HARBOUR)):
            listed = (await nodes[one].client("").get("/swarms")).json()["swarms"]
            [entry] = [each for each in listed if each["swarm_name"] == other]
            document = (await nodes[other].client("").get(KEYS_PATH)).json()
            assert document == {
                "protocol_version": "1.3",
                "swarm_name": other,
                "base_url": nodes[other].app.state.mail.registry.local_base_url,
                "keys": entry["public_keys"],
            }
            file = tmp_path / f"{other}.pem"
            assert [key["kid"] for key in SigningKeys.read(file).public] == [
                key["kid"] for key in document["keys"]
            ]
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_swarm_that_does_not_sign_is_told_so_and_its_agents_too(tmp_path: Path) -> None:
    """The weather wants signatures, and the harbour has no key."""
    async with federation(
        harbour(), weather(), configs={WEATHER: requiring(settings(WEATHER))}
    ) as nodes:
        later = {"Prefer": "respond-async"}
        posted = await nodes[HARBOUR].client().post("/message", json={"body": ORDER}, headers=later)
        assert posted.status_code == 202, posted.text

        async def is_told() -> bool:
            waiting = await nodes[HARBOUR].client("root").get("/outbox")
            return "require_signatures" in waiting.text

        await until(is_told)

        async def agent_knows() -> bool:
            task = await nodes[HARBOUR].task(posted.json()["task_id"])
            return "::delivery_delayed::" in json.dumps(task["events"])

        await until(agent_knows)
        assert await owners(nodes[WEATHER]) == set()


async def test_a_changed_key_is_refused_until_the_swarm_is_registered_again(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old.pem", tmp_path / "new.pem"
    configs = {HARBOUR: signing(settings(HARBOUR), old)}
    async with federation(harbour(), weather(), configs=configs) as nodes:
        there, here = nodes[HARBOUR], nodes[WEATHER]
        registry = there.app.state.mail.registry
        registry.access = replace(registry.access, keys=SigningKeys.ensure(new))
        body = json.dumps({"message": mail()}).encode()
        headers = registry.access.keys.headers("POST", f"{here.url}{FORWARD}", body)
        refused = await deliver(here, headers, body)
        assert refused.status_code == 401, refused.text
        assert "an administrator registers it again" in refused.json()["detail"]
        await register(here, there)
        assert (await deliver(here, headers, body)).status_code == 200


async def test_keys_are_changed_without_a_gap_by_showing_both(tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    SigningKeys.ensure(file)
    first = file.read_bytes()
    file.write_bytes(first + pem(KEY))
    configs = {HARBOUR: signing(settings(HARBOUR), file)}
    async with federation(harbour(), weather(), configs=configs) as nodes:
        here = nodes[WEATHER]
        file.write_bytes(pem(KEY) + first)
        for keys in (SigningKeys.read(file), SigningKeys.read(write(file, first))):
            body = json.dumps({"message": mail()}).encode()
            headers = keys.headers("POST", f"{here.url}{FORWARD}", body)
            assert (await deliver(here, headers, body)).status_code == 200


async def test_the_key_that_is_asked_for_is_the_only_one_that_counts(tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    file.write_bytes(pem(KEY) + pem(OTHER_KEY))
    configs = {HARBOUR: signing(settings(HARBOUR), file)}
    async with federation(harbour(), weather(), configs=configs, known=False) as nodes:
        there, here = nodes[HARBOUR], nodes[WEATHER]
        wrong = {"name": HARBOUR, "base_url": there.url, "public_key": shown(EVILS_KEY)["kid"]}
        answer = await here.client("root").post("/swarms", json=wrong)
        assert answer.status_code == 400, answer.text
        assert shown(KEY)["kid"] in answer.json()["detail"]
        assert "the server there does not show that key (it shows " in answer.json()["detail"]
        for asked in (shown(KEY)["kid"], shown(KEY)):
            await register(here, there, public_key=asked)
            entry = here.app.state.mail.registry.get_swarm_endpoint(HARBOUR)
            assert entry["public_keys"] == [shown(KEY)]


async def test_a_swarm_that_signed_is_not_registered_again_without_a_key(tmp_path: Path) -> None:
    """Else whoever sits between two servers would take the signatures away."""
    configs = {HARBOUR: signing(settings(HARBOUR), tmp_path / "key.pem")}
    async with federation(harbour(), weather(), configs=configs) as nodes:
        there, here = nodes[HARBOUR], nodes[WEATHER]
        registry = there.app.state.mail.registry
        registry.access = replace(registry.access, keys=None)
        again = {"name": HARBOUR, "base_url": there.url}
        answer = await here.client("root").post("/swarms", json=again)
        assert answer.status_code == 400, answer.text
        assert "remove the swarm first" in answer.json()["detail"]
        assert (await here.client("root").delete(f"/swarms/{HARBOUR}")).status_code == 200
        await register(here, there)


async def test_all_that_is_posted_to_a_peer_is_signed(tmp_path: Path) -> None:
    keys = SigningKeys.ensure(tmp_path / "key.pem")
    posted: list[tuple[SignedRequest, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if request.method == "POST":
            url = f"http://inside{request.path}"  # a proxy has changed the host
            posted.append((SignedRequest(request.method, url, request.headers), body))
        return web.json_response({"swarm": {"name": "beta"}})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        access = PeerAccess(keys=keys)
        file = str(tmp_path / "alpha.json")
        registry = SwarmRegistry("alpha", "http://here", file, access=access)
        await registry.register_swarm("beta", str(server.make_url("")), "their-token")
        router = InterswarmRouter(registry, "alpha")
        await router.start()
        payload = wrapper("alpha", "beta", p_body="?" * 100_000)
        payload["payload"]["recipient"]["address"] = "wind@beta"
        given: Any = payload
        await router.send_interswarm_message_forward(given)
        await router.send_interswarm_message_back(given)
        await router.post_user_message(given)
        with suppress(RoutingError):  # it is no stream
            await router.stream_interswarm_user_message(given)
        await router.stop()
        await registry.aclose()
    names = ["forward", "back", "message", "message"]
    assert [request.url.rpartition("/")[2] for request, _ in posted] == names
    for request, body in posted:
        digest = check_signature(request, keys.public, SignatureRules())
        assert digest is not None
        check_digest(digest, body)
        with pytest.raises(Unauthenticated):
            check_digest(digest, body + b" ")


# --- the parts ----------------------------------------------------------------------------------


def pem(key: Any) -> bytes:
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made


def write(file: Path, text: bytes) -> Path:
    file.write_bytes(text)
    file.chmod(0o600)
    return file


RFC_KEY = b"""-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=
-----END PUBLIC KEY-----
"""
RFC_REQUEST = {
    "host": "example.com",
    "date": "Tue, 20 Apr 2021 02:07:55 GMT",
    "content-type": "application/json",
    "content-length": "18",
    "signature-input": 'sig-b26=("date" "@method" "@path" "@authority" "content-type" '
    '"content-length");created=1618884473;keyid="test-key-ed25519"',
    "signature": "sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6v"
    "uQv5lIp5WPpBKRCw==:",
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, '"content-digest" was not covered'),
        ({"content-type": "text/plain"}, "does not fit the request"),
    ],
)
def test_the_signature_of_rfc_9421_b_2_6_fits(changes: dict[str, str], reason: str) -> None:
    """It does not cover the body, which is looked at once the signature is found to fit."""
    key = public_key(load_pem_public_key(RFC_KEY).public_bytes_raw())  # type: ignore[union-attr]
    key["kid"] = "test-key-ed25519"
    request = SignedRequest(
        "POST", "http://example.com/foo?param=Value&Pet=dog", {**RFC_REQUEST, **changes}
    )
    with pytest.raises(Unauthenticated, match=reason):
        check_signature(request, [key], SignatureRules(max_age=1e9))


def test_damaged_headers_are_refused_and_break_nothing() -> None:
    """What is not noticed changes nothing, such as the label, which no signature covers."""
    rng, headers, body = random.Random(7), *signed(mail())
    signs = [*map(chr, range(1, 256)), *'"();=:,@' * 20]
    refused = 0
    for _ in range(500):
        damaged = {name.lower(): text for name, text in headers.items()}
        name = rng.choice([*damaged])
        at = rng.randrange(len(damaged[name]))
        rest = damaged[name][at + rng.randrange(3) :]
        damaged[name] = damaged[name][:at] + rng.choice(["", rng.choice(signs)]) + rest
        request = SignedRequest("POST", f"http://weather.example{FORWARD}", damaged)
        try:
            digest = check_signature(request, [shown(KEY)], SignatureRules())
        except Unauthenticated:
            refused += 1
        else:
            assert digest is not None
            check_digest(digest, body)
    assert refused > 400


def test_a_key_is_named_by_its_thumbprint_as_in_rfc_8037() -> None:
    x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert public_key(urlsafe_b64decode(x + "=")) == {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": x,
        "kid": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
    }


def test_what_we_sign_is_checked_by_the_library_alone(tmp_path: Path) -> None:
    keys = SigningKeys.ensure(tmp_path / "key.pem")
    headers = keys.headers("POST", "https://x.example/a/interswarm/forward", b"{}")
    assert re.fullmatch(
        r'mail=\("@method" "@path" "content-digest"\);created=\d+;keyid="[\w-]{43}";'
        r'alg="ed25519";expires=\d+;nonce="[\w-]{22}"',
        headers["Signature-Input"],
    )
    raw = urlsafe_b64decode(keys.public[0]["x"] + "=")
    known = {keys.public[0]["kid"]: ed25519.Ed25519PublicKey.from_public_bytes(raw)}
    verifier = HTTPMessageVerifier(
        signature_algorithm=algorithms.ED25519,
        key_resolver=MappingKeyResolver(public_keys=known, private_keys={}),
    )
    request = SimpleNamespace(
        method="POST", url="http://inside:8000/a/interswarm/forward", headers=headers
    )
    [found] = verifier.verify(request, body=b"{}")
    assert found.body == b"{}"


def test_processes_that_start_together_have_one_key(tmp_path: Path) -> None:
    file = tmp_path / "registries" / "key.pem"
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(lambda _: SigningKeys.ensure(file).public, range(8))]
    assert made == made[:1] * 8
    assert [each.name for each in file.parent.iterdir()] == ["key.pem"]


WRONG_FILES = {
    "no key": (b"hello", "holds 0"),
    "another kind of key": (
        pem(rsa.generate_private_key(65537, 2048)),
        "not an Ed25519 private key",
    ),
    "a damaged key": (pem(KEY).replace(b"MC4", b"MX4"), "not an Ed25519 private key"),
    "too many keys": (pem(KEY) * 9, "1 to 8 private keys"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_file_of_keys_is_named_and_not_shown(tmp_path: Path, case: str) -> None:
    text, problem = WRONG_FILES[case]
    file = write(tmp_path / "key.pem", text)
    with pytest.raises(ConfigError, match=problem) as refused:
        SigningKeys.read(file)
    assert str(refused.value).startswith(
        f"[server.federation] signing_key_file names {file}, which "
    )
    assert b"PRIVATE" not in str(refused.value).encode()


def test_a_key_that_others_may_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "key.pem", pem(KEY))
    SigningKeys.read(file)
    assert not caplog.records
    file.chmod(0o644)
    SigningKeys.read(file)
    assert "chmod 600" in caplog.text


def test_an_address_that_cannot_be_signed_is_an_error_of_routing(tmp_path: Path) -> None:
    keys = SigningKeys.ensure(tmp_path / "key.pem")
    with pytest.raises(RoutingError, match="cannot be signed"):
        keys.headers("POST", "https://x.example/a|b", b"{}")
