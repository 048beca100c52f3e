"""The attackers, in a process of their own: ``python -m benchmarks.abuse_attacks``.

It reads its orders as JSON from standard input, and writes as JSON what it sent and what came
back. An attacker has an ordinary token, or none, and keeps to the limits: what is refused is not
repeated at once.
"""

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import aiohttp
from yarl import URL

from benchmarks.abuse_server import AGENTS, crowded_definition
from benchmarks.http_load import stall

__all__ = ["ATTACKS", "Account", "Orders", "send"]

MB = 1_000_000
_NICE = 10
_LONGEST = 50.0
"""Seconds after which an attack ends, wherever it is."""
_SIZES = (4 * MB, MB, MB // 2, MB // 4, MB // 16)
_REFUSED = (429, 503, 507)
_PAUSE = 0.05


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What to do to whom.

    Attributes:
        attack: A name in `ATTACKS`.
        url: Where the server is.
        tokens: The tokens by their owner: ``attacker``, ``operator``.
        seconds: How long to go on after what has to be prepared.
        scale: The share of what an attack prepares; 1 is all of it.
    """

    attack: str
    url: str
    tokens: dict[str, str]
    seconds: float = 8.0
    scale: float = 1.0

    def count(self, whole: int) -> int:
        """Scale a number of things to prepare."""
        return max(1, round(whole * self.scale))


@dataclass
class Account:
    """What was sent, and what came of it.

    Attributes:
        sent: Bytes of requests.
        produced: Bytes of answers, arguments and errors that agents and tools made for them.
        received: Bytes of answers.
        largest: Bytes of the largest answer.
        statuses: How often each status came back.
        notes: What else is worth telling.
        ended: Whether the attack came to its end in time.
    """

    sent: int = 0
    produced: int = 0
    received: int = 0
    largest: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)
    ended: bool = False


async def send(orders: Orders) -> Account:
    """Attack in a process of its own, which leaves the processors to others."""
    command = [sys.executable, "-m", "benchmarks.abuse_attacks"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    output, _ = await process.communicate(json.dumps(asdict(orders)).encode())
    if process.returncode:
        raise RuntimeError(f"the attack {orders.attack} failed; see its traceback above")
    return Account(**json.loads(output))


class Attacker:
    """One who sends requests, and throws their answers away."""

    def __init__(self, orders: Orders, session: aiohttp.ClientSession, account: Account) -> None:
        self.orders = orders
        self.account = account
        self.token: str | None = orders.tokens["attacker"]
        self._session = session

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        token: str | None = None,
        **more: str,
    ) -> int:
        """Send a request; return its status, and wait a moment if it was refused for now."""
        url = URL(self.orders.url + path, encoded=True)
        bearer = token or self.token
        headers = more | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        account, size = self.account, 0
        account.sent += len(path) + len(body or b"") + sum(map(len, headers.values())) + 100
        try:
            async with self._session.request(method, url, data=body, headers=headers) as answer:
                status = answer.status
                async for chunk in answer.content.iter_any():
                    size += len(chunk)
        except aiohttp.ClientError as error:
            status, came = 0, type(error).__name__
        else:
            came = str(status)
        account.statuses[came] = account.statuses.get(came, 0) + 1
        account.received += size
        account.largest = max(account.largest, size)
        if status in (0, *_REFUSED):
            await asyncio.sleep(_PAUSE)
        return status

    async def message(self, body: str, task_id: str) -> int:
        """Post a message of its own task."""
        return await self.ask("POST", "/message", _json(body=body, task_id=task_id))

    async def store(self, megabytes: int) -> list[str]:
        """Post messages of the largest accepted size until so much is stored; return their tasks.

        Each is answered with its own text. What is refused is tried again for a while.
        """
        until = time.monotonic() + 20
        tasks: list[str] = []
        stored, sizes = 0, list(_SIZES)
        while stored < self.orders.count(megabytes) * MB and time.monotonic() < until:
            task = f"large-{secrets.token_hex(4)}"
            status = await self.message(f"echo {secrets.token_hex(sizes[0] // 2 - 250)}", task)
            if status == 200:
                tasks.append(task)
                self.account.produced += sizes[0]
                stored += sizes[0]
            elif status in (400, 413) and sizes[1:]:
                sizes.pop(0)
            elif status in (0, *_REFUSED):
                await asyncio.sleep(4 * _PAUSE)
            else:
                break
        self.account.notes |= {"message_mb": sizes[0] / MB, "stored_mb": stored / MB}
        return tasks

    async def repeat(self, connections: int, request: Callable[[], Awaitable[Any]]) -> None:
        """Send a request on several connections, again and again, until the time is over."""
        until = time.monotonic() + self.orders.seconds

        async def again() -> None:
            while time.monotonic() < until:
                await request()

        await asyncio.gather(*(again() for _ in range(connections)))


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


async def neighbourly(attacker: Attacker) -> None:
    """Post ordinary messages: what every figure is compared with."""

    async def request() -> None:
        await attacker.ask("POST", "/message", _json(body="A question of some length. " * 40))
        await asyncio.sleep(_PAUSE)

    await attacker.repeat(2, request)


async def answers(attacker: Attacker) -> None:
    """Read what holds much, and cancel it."""
    tasks = await attacker.store(80)

    async def read() -> None:
        for task in tasks[:2]:
            await attacker.ask("GET", "/tasks")
            await attacker.ask("GET", f"/tasks/{task}")
            await attacker.ask("GET", f"/tasks/{task}/events")
            await attacker.ask("POST", f"/tasks/{task}/cancel")

    if tasks:
        await attacker.repeat(1, read)


async def _stalled(attacker: Attacker, readers: int) -> None:
    tasks = await attacker.store(40)
    token = attacker.orders.tokens["attacker"]
    sockets = []
    try:
        for number in range(readers if tasks else 0):
            path = f"/tasks/{tasks[number % len(tasks)]}/events"
            sockets.append(await stall(attacker.orders.url, token, "GET", path, ""))
            attacker.account.sent += 200
        await asyncio.sleep(attacker.orders.seconds)
    finally:
        for stalled in sockets:
            stalled.close()


async def four_streams(attacker: Attacker) -> None:
    """Open four streams of large events, and read nothing."""
    await _stalled(attacker, 4)


async def many_streams(attacker: Attacker) -> None:
    """Open 64 of them."""
    await _stalled(attacker, 64)


async def _bodies(attacker: Attacker, *bodies: bytes) -> None:
    turn = iter(range(10**9))

    async def request() -> None:
        await attacker.ask("POST", "/message", bodies[next(turn) % len(bodies)])

    await attacker.repeat(16, request)


async def entrypoint(attacker: Attacker) -> None:
    """Name an agent with 4 MB."""
    await _bodies(attacker, _json(body="x", entrypoint="e" * (4 * MB)))


async def nodes(attacker: Attacker) -> None:
    """Add a field that nobody reads, with 399,000 elements."""
    await _bodies(attacker, b'{"body": "x", "zzz": [%s1]}' % (b"1," * 398_990))


async def nesting(attacker: Attacker) -> None:
    """Nest as deep as allowed, many times over; and far deeper."""
    allowed = b'{"body": "x", "zzz": [%s1]}' % ((b"[" * 60 + b"]" * 60 + b",") * 3300)
    await _bodies(attacker, allowed, b'{"body": "x", "zzz": %s' % (b"[" * (4 * MB)))


async def digits(attacker: Attacker) -> None:
    """Add a field that nobody reads, with 900 numbers of 4,000 digits."""
    await _bodies(attacker, b'{"body": "x", "zzz": [%s1]}' % ((b"1" * 4000 + b",") * 900))


async def escapes(attacker: Attacker) -> None:
    """Send 1 MB of what XML and JSON escape, on four connections."""
    text = "<&>" * (MB // 3 - 1000)
    await attacker.repeat(4, lambda: attacker.message(text, f"escapes-{secrets.token_hex(4)}"))


async def failures(attacker: Attacker) -> None:
    """Have a tool fail with what looks like a thousand secrets in its error."""
    text = "fail " + "token=ab&" * 1700

    async def request() -> None:
        if await attacker.message(text, f"failures-{secrets.token_hex(4)}") == 200:
            attacker.account.produced += 2 * len(text)  # the arguments and the error

    await attacker.repeat(4, request)


async def _swarm(attacker: Attacker, targets: int) -> None:
    operator = attacker.orders.tokens["operator"]
    body = _json(json=json.dumps(crowded_definition(targets=targets)))

    async def load() -> None:
        if await attacker.ask("POST", "/swarms/load", body, operator) == 200:
            await attacker.ask("POST", "/message", _json(body="Hello."), operator)

    await attacker.repeat(1, load)


async def large_swarm(attacker: Attacker) -> None:
    """Load a swarm of 400 agents, and have it built for oneself."""
    await _swarm(attacker, 20)


async def dense_swarm(attacker: Attacker) -> None:
    """Let each of them know all others."""
    await _swarm(attacker, AGENTS)


async def long_path(attacker: Attacker) -> None:
    """Ask for a path of 30 KB of what looks like addresses, without a token."""
    attacker.token = None
    path = "/" + "a://:" * 6000
    await attacker.repeat(8, lambda: attacker.ask("GET", path))


async def shorter_path(attacker: Attacker) -> None:
    """Ask for a path of the same that is just short enough."""
    attacker.token = None
    path = "/" + "a://:" * 1600
    await attacker.repeat(8, lambda: attacker.ask("GET", path, Connection="close"))


async def media_types(attacker: Attacker) -> None:
    """Accept 15,000 media types without names, each time on a connection of its own."""
    attacker.token = None
    odd = {"Accept": "," * 15_000, "Connection": "close"}
    await attacker.repeat(8, lambda: attacker.ask("GET", "/", **odd))


async def unknown_tokens(attacker: Attacker) -> None:
    """Show another token each time."""

    async def request() -> None:
        await attacker.ask("GET", "/whoami", token=f"mail_{secrets.token_urlsafe(32)}")

    await attacker.repeat(8, request)


async def unknown_token(attacker: Attacker) -> None:
    """Show the same unknown token each time."""
    token = f"mail_{secrets.token_urlsafe(32)}"
    await attacker.repeat(8, lambda: attacker.ask("GET", "/whoami", token=token))


async def health(attacker: Attacker) -> None:
    """Ask whether it is well."""
    attacker.token = None
    await attacker.repeat(8, lambda: attacker.ask("GET", "/health"))


async def messages(attacker: Attacker) -> None:
    """Send messages of 4 MB, each for a task of its own."""
    await attacker.store(80)


async def busy(attacker: Attacker) -> None:
    """Send 256 messages of 4 KB at a time, as a busy client does."""
    body = _json(body=secrets.token_hex(2000))
    await attacker.repeat(256, lambda: attacker.ask("POST", "/message", body))


async def long_history(attacker: Attacker) -> None:
    """Send 120 messages of 1 MB to one task, each of which is answered with itself."""
    await _tell(attacker, attacker.orders.count(120), 1)


async def long_histories(attacker: Attacker) -> None:
    """Send as many to 32 tasks, side by side."""
    await _tell(attacker, attacker.orders.count(120), 32)


async def hang_ups(attacker: Attacker) -> None:
    """Send messages of 1 MB to a slow agent, and do not wait for its answers."""
    body = _json(body="slow " + secrets.token_hex(MB // 2 - 250))

    async def request() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await attacker.ask("POST", "/message", body)

    await attacker.repeat(4, request)


async def _tell(attacker: Attacker, count: int, tasks: int) -> None:
    left = iter(range(count))
    until = time.monotonic() + _LONGEST - 5

    async def tell(task_id: str) -> None:
        while time.monotonic() < until and next(left, None) is not None:
            text = f"echo {secrets.token_hex(MB // 2 - 250)}"
            status = await attacker.message(text, task_id)
            if status == 200:
                attacker.account.produced += MB
            elif status not in _REFUSED:
                return

    await asyncio.gather(*(tell(f"told-{number}") for number in range(tasks)))


async def pauses(attacker: Attacker) -> None:
    """Let tasks wait for answers with the largest calls, delete them, and do it twice more."""
    notes = attacker.account.notes
    first = await _paused(attacker, "first", attacker.orders.count(90))
    await asyncio.sleep(1)
    notes |= {"paused": len(first), "filled_at": time.monotonic()}
    notes["deleted"] = await _deleted(attacker, first)
    if notes["deleted"]:
        again = await _paused(attacker, "again", len(first))
        await asyncio.sleep(1)
        await _deleted(attacker, again)
        notes["reused_at"] = time.monotonic()
        notes["paused_again"] = len(await _paused(attacker, "more", len(first)))


async def _deleted(attacker: Attacker, tasks: list[str]) -> int:
    """Delete tasks; return how many are gone, once that is done with."""
    gone = [await attacker.ask("DELETE", f"/tasks/{task}") for task in tasks]
    await asyncio.sleep(3)
    return sum(status in (200, 204) for status in gone)


async def long_arguments(attacker: Attacker) -> None:
    """Have a model call a tool with far more than it may."""
    await attacker.repeat(
        1, lambda: attacker.message(f"pause {3 * MB}", f"long-{secrets.token_hex(4)}")
    )


async def _paused(attacker: Attacker, name: str, count: int) -> list[str]:
    size, tasks = MB, []
    until = time.monotonic() + 12
    for number in range(count):
        status = await attacker.message(f"pause {size}", f"{name}-{number}")
        if status in _REFUSED or time.monotonic() > until:
            break
        if status == 200:
            tasks.append(f"{name}-{number}")
            attacker.account.produced += size
    return tasks


ATTACKS: Final[Mapping[str, Callable[[Attacker], Awaitable[None]]]] = {
    function.__name__: function
    for function in (
        neighbourly,
        answers,
        four_streams,
        many_streams,
        entrypoint,
        nodes,
        nesting,
        digits,
        escapes,
        failures,
        large_swarm,
        dense_swarm,
        long_path,
        shorter_path,
        media_types,
        unknown_tokens,
        unknown_token,
        health,
        messages,
        busy,
        long_history,
        long_histories,
        hang_ups,
        pauses,
        long_arguments,
    )
}


@asynccontextmanager
async def _attacker(orders: Orders) -> AsyncIterator[Attacker]:
    timeout = aiohttp.ClientTimeout(total=_LONGEST)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        yield Attacker(orders, session, Account())


async def _run(orders: Orders) -> Account:
    async with _attacker(orders) as attacker:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST):
                await ATTACKS[orders.attack](attacker)
                attacker.account.ended = True
        return attacker.account


if __name__ == "__main__":
    os.nice(_NICE)
    print(json.dumps(asdict(asyncio.run(_run(Orders(**json.load(sys.stdin)))))))
