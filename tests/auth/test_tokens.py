"""Who calls: tokens in the store, the external service, and what is remembered of either."""

import asyncio
import gc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mail.auth.builtin import BuiltinAuth, build_auth
from mail.auth.callers import Caller, hash_token, new_token
from mail.auth.remote import RemoteAuth
from mail.auth.token_cache import UNKNOWN_AT_ONCE, UNKNOWN_WAITING, Found, TokenCache
from mail.db.memory import MemoryStore
from mail.db.records import TokenRow
from mail.errors import AuthUnavailable, ConfigError, Unauthenticated
from tests.server.token_stub import Service

ALICE = Caller("user", "alice")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Authority:
    """Counts what it is asked; ``answer`` may be changed."""

    def __init__(self, answer: Found | Exception) -> None:
        self.answer = answer
        self.asked = 0

    async def __call__(self, token: str) -> Found:
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_concurrent_requests_share_one_look_up() -> None:
    authority = Authority(Found(ALICE))
    lookups = TokenCache(authority)
    assert await asyncio.gather(*(lookups.get("t") for _ in range(50))) == [ALICE] * 50
    assert authority.asked == 1


async def test_an_answer_is_remembered_for_half_a_minute() -> None:
    authority, clock = Authority(Found(ALICE)), Clock()
    lookups = TokenCache(authority, now=clock)
    for moment, asked in ((0, 1), (29.9, 1), (30.1, 2)):
        clock.time = 1000 + moment
        await lookups.get("t")
        assert authority.asked == asked


async def test_an_answer_is_not_remembered_longer_than_it_is_valid() -> None:
    authority, clock = Authority(Found(ALICE, 3.0)), Clock()
    lookups = TokenCache(authority, now=clock)
    await lookups.get("t")
    clock.time += 3.1
    await lookups.get("t")
    assert authority.asked == 2


async def test_a_refusal_is_remembered_for_five_seconds() -> None:
    authority, clock = Authority(Unauthenticated("no")), Clock()
    lookups = TokenCache(authority, now=clock)
    for moment, asked in ((0, 1), (4.9, 1), (5.1, 2)):
        clock.time = 1000 + moment
        with pytest.raises(Unauthenticated, match="no"):
            await lookups.get("t")
        assert authority.asked == asked


async def test_an_outage_is_not_remembered() -> None:
    authority = Authority(AuthUnavailable("down"))
    lookups = TokenCache(authority)
    with pytest.raises(AuthUnavailable):
        await lookups.get("t")
    authority.answer = Found(ALICE)
    assert await lookups.get("t") == ALICE


@pytest.mark.parametrize("role", ["admin", "agent"])
async def test_privileged_tokens_are_looked_up_for_every_request(role: str) -> None:
    authority = Authority(Found(Caller(role, "x")))
    lookups = TokenCache(authority)
    await lookups.get("t")
    await lookups.get("t")
    assert authority.asked == 2
    await asyncio.gather(*(lookups.get("t") for _ in range(9)))
    assert authority.asked == 3


async def test_the_least_recently_used_answer_makes_room() -> None:
    authority = Authority(Found(ALICE))
    lookups = TokenCache(authority, max_entries=2)
    for token in ("a", "b", "a", "c", "a"):
        await lookups.get(token)
    assert authority.asked == 3
    await lookups.get("b")
    assert authority.asked == 4


async def test_a_request_that_leaves_does_not_end_the_look_up_of_others() -> None:
    gate = asyncio.Event()

    async def fetch(token: str) -> Found:
        await gate.wait()
        return Found(ALICE)

    lookups = TokenCache(fetch)
    first = asyncio.create_task(lookups.get("t"))
    second = asyncio.create_task(lookups.get("t"))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == ALICE


async def test_no_token_stays_in_memory() -> None:
    token = new_token()
    store = MemoryStore()
    await store.put_token(row(token))
    auth = BuiltinAuth(store)
    assert await auth.authenticate(token) == ALICE
    holders = [
        value
        for value in gc.get_objects()
        if isinstance(value, dict)
        and any(key == token for key in list(value) if isinstance(key, str))
    ]
    assert holders == []


def row(token: str, **changes: Any) -> TokenRow:
    """Return alice's token as the store keeps it."""
    made = TokenRow(token_hash=hash_token(token), role="user", id="alice", created_at="2026-01-01")
    return made._replace(**changes)


async def test_built_in_tokens_expire_and_can_be_revoked() -> None:
    store = MemoryStore()
    auth = BuiltinAuth(store)
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    future = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for change, good in [
        ({}, True),
        ({"expires_at": future}, True),
        ({"expires_at": past}, False),
        ({"revoked_at": past}, False),
    ]:
        token = new_token()
        await store.put_token(row(token, **change))
        if good:
            assert await auth.authenticate(token) == ALICE
        else:
            with pytest.raises(Unauthenticated):
                await auth.authenticate(token)
    with pytest.raises(Unauthenticated, match="invalid API key"):
        await auth.authenticate(new_token())


async def test_a_revoked_admin_token_fails_at_its_next_request() -> None:
    store, token = MemoryStore(), new_token()
    auth = BuiltinAuth(store)
    made = row(token, role="admin")
    await store.put_token(made)
    assert (await auth.authenticate(token)).role == "admin"
    await store.put_token(made._replace(revoked_at="2026-01-02"))
    with pytest.raises(Unauthenticated):
        await auth.authenticate(token)


class CountingStore(MemoryStore):
    """Counts the look-ups of tokens, and how many there are at a time."""

    asked = 0
    at_work = 0
    most = 0

    async def find_token(self, token_hash: str) -> TokenRow | None:
        self.asked += 1
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await asyncio.sleep(0.001)
        self.at_work -= 1
        return await super().find_token(token_hash)


@pytest.mark.parametrize("token", ["t", "mail_", "mail_short", "mail_" + "é" * 43, "x" * 9000])
async def test_what_has_not_the_shape_of_a_token_of_ours_is_not_looked_up(token: str) -> None:
    store = CountingStore()
    auth = BuiltinAuth(store)
    with pytest.raises(Unauthenticated, match="invalid API key"):
        await auth.authenticate(token)
    assert store.asked == 0


async def test_an_unknown_token_is_looked_up_once() -> None:
    store, token = CountingStore(), new_token()
    auth = BuiltinAuth(store)
    for _ in range(3):
        for answer in await asyncio.gather(
            *(auth.authenticate(token) for _ in range(50)), return_exceptions=True
        ):
            assert isinstance(answer, Unauthenticated)
    assert store.asked == 1


async def test_a_flood_of_unknown_tokens_pushes_no_good_one_out_and_keeps_none_waiting() -> None:
    store, token = CountingStore(), new_token()
    await store.put_token(row(token, role="admin", id="root"))
    auth = BuiltinAuth(store)
    await auth.authenticate(token)
    flood = [asyncio.create_task(auth.authenticate(new_token())) for _ in range(500)]
    await asyncio.sleep(0.002)
    assert (await auth.authenticate(token)).role == "admin"  # asked about again, and at once
    assert not all(task.done() for task in flood)
    await asyncio.gather(*flood, return_exceptions=True)
    assert store.most <= UNKNOWN_AT_ONCE + 1


async def test_only_so_many_requests_wait_for_unknown_tokens() -> None:
    gate = asyncio.Event()

    async def fetch(token: str) -> Found:
        if token != "good":
            await gate.wait()
        return Found(ALICE)

    lookups = TokenCache(fetch)
    await lookups.get("good")
    tokens = ["same"] * 500 + [f"t-{number}" for number in range(UNKNOWN_WAITING - 500)]
    waiting = [asyncio.create_task(lookups.get(token)) for token in tokens]
    await asyncio.sleep(0)
    for token in ("same", "one more"):
        with pytest.raises(AuthUnavailable, match="try again"):
            await lookups.get(token)
    assert await lookups.get("good") == ALICE
    waiting[0].cancel()
    gate.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert await lookups.get("one more") == ALICE


async def test_refusals_take_no_place_of_good_answers() -> None:
    authority = Authority(Found(ALICE))
    lookups = TokenCache(authority, max_entries=2)
    await lookups.get("good")
    authority.answer = Unauthenticated("no")
    for number in range(10):
        with pytest.raises(Unauthenticated):
            await lookups.get(str(number))
    assert await lookups.get("good") == ALICE
    assert authority.asked == 11


def test_fresh_tokens_differ_and_are_recognisable() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.startswith("mail_") and len(token) > 40 for token in tokens)


def test_the_environment_chooses_the_authority() -> None:
    store = MemoryStore()
    both = {"AUTH_ENDPOINT": "http://a/login", "TOKEN_INFO_ENDPOINT": "http://a/info"}
    assert isinstance(build_auth({}, store), BuiltinAuth)
    assert isinstance(build_auth(both, store), RemoteAuth)


@pytest.mark.parametrize("name", ["AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT"])
def test_half_an_external_service_is_a_configuration_error(name: str) -> None:
    other = {"AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT"} - {name}
    with pytest.raises(ConfigError, match=f"{other.pop()} is not set"):
        build_auth({name: "http://a/x"}, MemoryStore())


@pytest.mark.parametrize("url", ["ftp://a", "a/b", "http://", "http://[", "http://u:pa55@a/x"])
def test_an_endpoint_must_be_a_plain_http_url(url: str) -> None:
    both = {"AUTH_ENDPOINT": url, "TOKEN_INFO_ENDPOINT": "http://a/info"}
    with pytest.raises(ConfigError, match="AUTH_ENDPOINT") as caught:
        build_auth(both, MemoryStore())
    assert "pa55" not in str(caught.value)


async def test_the_service_is_asked_once_for_fifty_concurrent_requests() -> None:
    service = Service()
    async with service.serve() as auth:
        callers = await asyncio.gather(*(auth.authenticate("key") for _ in range(50)))
    assert callers == [ALICE] * 50
    assert service.calls == [("login", "Bearer key"), ("info", "Bearer temporary")]


@pytest.mark.parametrize(
    "change",
    [
        {"status": 500},
        {"login": b"<html>"},
        {"login": []},
        {"login": {}},
        {"info": {"role": "root", "id": "x"}},
        {"info": {"role": "user"}},
        {"info": {"role": "user", "id": ""}},
        {"info": {"role": "user", "id": "a\nb"}},
        {"login": b" " * 100_000},
    ],
)
async def test_a_service_that_makes_no_sense_is_an_outage(change: dict[str, Any]) -> None:
    service = Service()
    vars(service).update(change)
    async with service.serve() as auth:
        with pytest.raises(AuthUnavailable) as caught:
            await auth.authenticate("secret-key")
    assert "secret-key" not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_the_service_is_a_refusal(status: int) -> None:
    service = Service()
    service.status = status
    async with service.serve() as auth:
        with pytest.raises(Unauthenticated, match="invalid API key"):
            await auth.authenticate("key")


async def test_a_hanging_service_is_given_up_in_time() -> None:
    service = Service()
    service.hangs = True
    async with service.serve(timeout=0.2) as auth:
        async with asyncio.timeout(20):
            with pytest.raises(AuthUnavailable):
                await auth.authenticate("key")


async def test_a_service_that_is_not_there_is_an_outage() -> None:
    auth = RemoteAuth("http://127.0.0.1:1/login?x=pa55", "http://127.0.0.1:1/info")
    with pytest.raises(AuthUnavailable) as caught:
        await auth.authenticate("key")
    assert "pa55" not in str(caught.value)
    await auth.close()


async def test_an_expiry_in_the_answer_limits_how_long_it_is_kept() -> None:
    service = Service()
    service.info = {"role": "user", "id": 7, "exp": 1}
    async with service.serve() as auth:
        assert await auth.authenticate("key") == Caller("user", "7")
        await auth.authenticate("key")
    assert len(service.calls) == 4
