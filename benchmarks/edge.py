"""What a durable turn over HTTP costs, and how long new users wait for their first event.

Ours and a bare FastAPI route (`benchmarks.edge_server`) take turns under the same load, which comes
from a process of its own. Ratios are medians over the pairs, so that whatever slows the machine
down for a while slows both.
"""

import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.crowd_server import make_tokens, token_of
from benchmarks.http_load import Load, Measured, generate
from benchmarks.serving import serving

__all__ = ["Pairs", "Server", "report", "running", "streams", "turns"]

AIMS = {1: 0.40, 16: 0.50, 64: 0.50, 256: 0.50}
"""Concurrent requests, and the share of the bare route's rate that ours should reach."""
CALLERS = 64
"""Users whose requests these are; they share the connections."""
NEWCOMERS = 200
_WAIT_AIM = 5.0
_ROUNDS = 3
_SECONDS = 2.0
_QUESTION = {"body": "What is the capital of the country that is called like a bird? " * 4}


@dataclass(frozen=True)
class Server:
    """A server under load."""

    url: str
    pid: int

    def cpu(self) -> float:
        """CPU seconds that it has used."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


@dataclass
class Pairs:
    """What ours and the bare route did in turn; ``cpu`` is milliseconds per answer."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    ours_cpu: list[float] = field(default_factory=list)
    bare_cpu: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Ours over bare, as the median over the pairs."""
        return statistics.median(o / b for o, b in zip(self.ours, self.bare, strict=True))


@asynccontextmanager
async def running(kind: str, users: int) -> AsyncIterator[Server]:
    """Run one of the servers in a process of its own, with so many users."""
    with TemporaryDirectory() as folder:
        if not kind.startswith("bare"):
            await make_tokens(f"sqlite:///{Path(folder) / 'mail.db'}", users)
        async with serving("benchmarks.edge_server", kind, folder) as (url, pid):
            yield Server(url, pid)


async def turns(
    ours: Server, bare: Server, concurrent: int, rounds: int = _ROUNDS, seconds: float = _SECONDS
) -> Pairs:
    """Ask both servers so many questions at a time, in turn."""
    pairs = Pairs()
    for _ in range(rounds):
        for server, rates, costs in (
            (bare, pairs.bare, pairs.bare_cpu),
            (ours, pairs.ours, pairs.ours_cpu),
        ):
            before = server.cpu()
            measured = await _ask(server, concurrent, seconds)
            costs.append((server.cpu() - before) / len(measured.waits) * 1e3)
            rates.append(measured.rate)
    return pairs


async def _ask(server: Server, concurrent: int, seconds: float) -> Measured:
    tokens = [token_of(number % CALLERS) for number in range(concurrent)]
    load = Load(url=server.url, path="/message", tokens=tokens, body=_QUESTION, seconds=seconds)
    return _checked(await generate(load))


def _checked(measured: Measured) -> Measured:
    if measured.refused:
        raise RuntimeError(f"{measured.refused} requests were refused: {measured.wrong}")
    return measured


async def streams(
    ours: Server,
    bare: Server,
    users: int = NEWCOMERS,
    rounds: int = _ROUNDS,
    first: int = CALLERS,
) -> Pairs:
    """Let users that the server has never seen open a stream each, all at once.

    Returns:
        Milliseconds until the last of them has its first event.
    """
    pairs = Pairs()
    for number in range(rounds):
        tokens = [token_of(first + number * users + user) for user in range(users)]
        for server, path, waits in (
            (bare, "/stream", pairs.bare),
            (ours, "/message", pairs.ours),
        ):
            body = {**_QUESTION, "stream": True}
            load = Load(url=server.url, path=path, tokens=tokens, body=body)
            waits.append(max(_checked(await generate(load)).waits) * 1e3)
    return pairs


async def report(rounds: int = _ROUNDS, seconds: float = _SECONDS) -> None:
    """Print both tables with their aims."""
    async with running("bare", 0) as bare, running("mail", CALLERS) as ours:
        await turns(ours, bare, CALLERS, 1, seconds)  # both warm, every caller known
        for concurrent, aim in AIMS.items():
            pairs = await turns(ours, bare, concurrent, rounds, seconds)
            print(_line(concurrent, pairs, aim), flush=True)
    async with running("bare-h11", 0) as slow, running("mail", CALLERS) as ours:
        await turns(ours, slow, CALLERS, 1, seconds)
        pairs = await turns(ours, slow, CALLERS, rounds, seconds)
        print(_line(CALLERS, pairs, AIMS[CALLERS]) + ", bare on h11 and asyncio", flush=True)
    users = CALLERS + rounds * NEWCOMERS
    async with running("bare", 0) as bare, running("example", users) as ours:
        await streams(ours, bare, users=CALLERS, rounds=1, first=0)  # both warm
        waits = await streams(ours, bare, rounds=rounds)
        print(
            f"first event of {NEWCOMERS} new users at once   bare {min(waits.bare):7.1f} ms"
            f"   ours {min(waits.ours):7.1f} ms  {waits.ratio:5.2f}x (aim under {_WAIT_AIM:g})"
        )


def _line(concurrent: int, pairs: Pairs, aim: float) -> str:
    ours, bare = statistics.median(pairs.ours), statistics.median(pairs.bare)
    costs = statistics.median(pairs.ours_cpu), statistics.median(pairs.bare_cpu)
    return (
        f"{concurrent:4d} concurrent   bare {bare:7,.0f}/s {costs[1]:5.2f} ms CPU"
        f"   durable turn {ours:7,.0f}/s {costs[0]:5.2f} ms CPU"
        f"  {pairs.ratio:5.1%} (aim {aim:.0%})"
    )
