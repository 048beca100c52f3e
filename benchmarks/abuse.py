"""What a caller notices of an attacker: ``python -m benchmarks abuse``.

Each scenario has a server of its own: ``mail server`` with the limits that it is shipped with, on
SQLite. A neighbour asks for little, at even times, first beside someone ordinary and then beside
the attacker; a wait counts from the time at which the request was due. The bounds are absolute and
meant for a quiet machine with two processors; the ratio to the ordinary neighbour holds on others.

With the sources of another version (``--against /path/to/src``) that version's server is attacked
in the same way, right before ours, and with ``--proxy nginx`` ours again behind nginx.
"""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.abuse_attacks import Account, Orders, send
from benchmarks.abuse_server import Attacked, attacked

__all__ = ["SCENARIOS", "Figure", "Scenario", "figures", "report", "run"]

_PERIODS = {"GET /whoami": 0.1, "POST /message": 0.2}
"""What the neighbour asks for, and how often."""
_WAIT_BOUND = 50.0
_MEMORY_BOUND = 150.0
_DISK_BOUND = 3.0
_FILES = 10.0
"""MB that the write-ahead log takes in any case."""
_SETTLE = 1.5
_WARM_SECONDS = 1.0
_HONEST_SECONDS = 6.0
_SAMPLED = 0.25


@dataclass(frozen=True)
class Scenario:
    """An attack, and what it is about.

    Attributes:
        attack: Its name in `benchmarks.abuse_attacks`.
        summary: What the attacker does.
        messages: Whether the neighbour posts messages too. Whoever does so on a swarm that an
            operator has just loaded has it built for himself, which is nobody else's doing.
    """

    attack: str
    summary: str
    messages: bool = True


SCENARIOS = (
    Scenario("answers", "80 MB of messages; list, read and cancel them"),
    Scenario("four_streams", "4 readers of large events that do not read"),
    Scenario("many_streams", "64 readers of large events that do not read"),
    Scenario("entrypoint", "16 connections, 4 MB as entrypoint"),
    Scenario("nodes", "16 connections, 399,000 elements in an ignored field"),
    Scenario("nesting", "16 connections, deep nesting"),
    Scenario("digits", "16 connections, numbers of 4,000 digits in an ignored field"),
    Scenario("escapes", "4 connections, 1 MB of what XML and JSON escape"),
    Scenario("failures", "4 connections, a tool's error repeats 15 KB of token=ab&"),
    Scenario("large_swarm", "an operator loads 400 agents", messages=False),
    Scenario("dense_swarm", "400 agents who all know one another", messages=False),
    Scenario("long_path", "no token: paths of 30 KB of a://:"),
    Scenario("shorter_path", "no token: paths of 8,000 bytes of a://:, each on a new connection"),
    Scenario("media_types", "no token: 15,000 commas to accept, each on a new connection"),
    Scenario("unknown_tokens", "no token: another unknown one each time"),
    Scenario("unknown_token", "no token: the same unknown one each time"),
    Scenario("health", "no token: GET /health"),
    Scenario("messages", "80 MB of messages"),
    Scenario("busy", "256 messages of 4 KB at a time"),
    Scenario("long_history", "120 messages of 1 MB to one task, answered with themselves"),
    Scenario("long_histories", "the same to 32 tasks, side by side"),
    Scenario("hang_ups", "messages of 1 MB to a slow agent; nobody waits for the answers"),
    Scenario("pauses", "paused tasks with 1 MB each, deleted, and twice more"),
    Scenario("long_arguments", "tool calls with 3 MB, which are refused"),
)


@dataclass
class Waits:
    """Milliseconds that the neighbour waited, by request, and what was not answered with 200."""

    waits: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def cuts(self, what: str) -> tuple[float, float, float, float]:
        """Return p50, p90, p99 and the longest."""
        waits = self.waits[what]
        cuts = statistics.quantiles(waits, n=100, method="inclusive")
        return cuts[49], cuts[89], cuts[98], max(waits)


@dataclass(frozen=True)
class Figure:
    """A figure of a scenario, and the most that it may be."""

    name: str
    value: float
    bound: float | None = None
    unit: str = "ms"
    more: str = ""

    @property
    def over(self) -> bool:
        """Whether it is more than it may be."""
        return self.bound is not None and self.value > self.bound

    def __str__(self) -> str:
        bound = "" if self.bound is None else f"bound {self.bound:5.0f}"
        verdict = "" if self.bound is None else "OVER" if self.over else "ok"
        value = f"{self.name:36s}{self.value:9.1f} {self.unit:3s}"
        return f"  {value} {bound:12s} {verdict:5s} {self.more}".rstrip()


@dataclass
class Outcome:
    """What was measured in a scenario: MB before, at most, afterwards, and on disk over time."""

    account: Account
    honest: Waits
    waits: Waits
    idle: float
    peak: float
    after: float
    disk: list[tuple[float, float]]

    def grown(self, since: float, until: float) -> float:
        """MB that the files have grown between two moments."""
        at_first = [size for when, size in self.disk if when <= since] or [self.disk[0][1]]
        at_last = [size for when, size in self.disk if when <= until]
        return max(at_last) - at_first[-1]


async def run(
    scenario: Scenario,
    source: Path | None = None,
    seconds: float = 8.0,
    scale: float = 1.0,
    proxy: str = "",
) -> Outcome:
    """Attack a server."""
    async with attacked(source, proxy) as server:
        orders = {"url": server.url, "tokens": server.tokens, "scale": scale}
        for honest_seconds in (_WARM_SECONDS, min(seconds, _HONEST_SECONDS)):
            async with _neighbour(server, scenario) as usual:
                await send(Orders(attack="neighbourly", seconds=honest_seconds, **orders))
        await asyncio.sleep(_SETTLE)
        idle = server.resident()
        server.forget_peak()
        disk: list[tuple[float, float]] = []
        async with _sampled(server, disk), _neighbour(server, scenario) as waits:
            account = await send(Orders(attack=scenario.attack, seconds=seconds, **orders))
        await asyncio.sleep(_SETTLE)
        return Outcome(account, usual, waits, idle, server.peak(), server.resident(), disk)


@asynccontextmanager
async def _sampled(server: Attacked, disk: list[tuple[float, float]]) -> AsyncIterator[None]:
    """Note the size of the files all the time."""

    async def sample() -> None:
        while True:
            disk.append((time.monotonic(), server.stored()))
            await asyncio.sleep(_SAMPLED)

    disk.append((time.monotonic(), server.stored()))
    sampling = asyncio.create_task(sample())
    try:
        yield
    finally:
        sampling.cancel()
        disk.append((time.monotonic(), server.stored()))


@asynccontextmanager
async def _neighbour(server: Attacked, scenario: Scenario) -> AsyncIterator[Waits]:
    """Ask for little at even times; what is under way in the end is waited for."""
    measured, pending = Waits(), set[asyncio.Task[None]]()
    headers = {"Authorization": f"Bearer {server.tokens['neighbour']}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(server.url, headers=headers, connector=connector) as session:
        asking = [
            asyncio.create_task(_ask_evenly(session, what, period, measured, pending))
            for what, period in _PERIODS.items()
            if scenario.messages or not what.startswith("POST")
        ]
        try:
            yield measured
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*pending)


async def _ask_evenly(
    session: aiohttp.ClientSession,
    what: str,
    period: float,
    measured: Waits,
    pending: set[asyncio.Task[None]],
) -> None:
    due = time.perf_counter()
    while True:
        task = asyncio.create_task(_ask(session, what, due, measured))
        pending.add(task)
        task.add_done_callback(pending.discard)
        due += period
        await asyncio.sleep(due - time.perf_counter())


async def _ask(session: aiohttp.ClientSession, what: str, due: float, measured: Waits) -> None:
    method, path = what.split()
    body = {"body": "What is new?"} if method == "POST" else None
    try:
        async with session.request(method, path, json=body) as answer:
            if answer.status != 200:
                measured.wrong.append(f"{what}: {answer.status} {(await answer.text())[:200]}")
            await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        measured.wrong.append(f"{what}: {error!r}")
    measured.waits.setdefault(what, []).append((time.perf_counter() - due) * 1e3)


def figures(outcome: Outcome) -> list[Figure]:
    """Return what is bounded, and what is told beside it."""
    account = outcome.account
    found = [_wait(what, outcome) for what in outcome.waits.waits]
    found.append(Figure("neighbour's requests without answer", len(outcome.waits.wrong), 0, ""))
    more = f"idle {outcome.idle:.0f}, peak {outcome.peak:.0f}, afterwards {outcome.after:.0f}"
    found.append(Figure("memory over idle", outcome.peak - outcome.idle, _MEMORY_BOUND, "MB", more))
    began, ended = outcome.disk[0][0], outcome.disk[-1][0]
    filled = account.notes.get("filled_at", ended)
    grown = outcome.grown(began, filled)
    sent = account.notes["paused"] if "paused" in account.notes else _megabytes(account)
    ratio = max(0.0, grown - _FILES) / max(sent, 0.1)
    found.append(
        Figure("disk over bytes", ratio, _DISK_BOUND, "x", f"{grown:.1f} MB of {sent:.1f}")
    )
    if "deleted" in account.notes:
        found += _reuse(account, outcome.grown(account.notes.get("reused_at", filled), ended))
    found.append(Figure("largest answer", account.largest / 1e6, None, "MB"))
    return found


def _megabytes(account: Account) -> float:
    """Return what was sent, and what the agent made of it."""
    return (account.sent + account.produced) / 1e6


def _wait(what: str, outcome: Outcome) -> Figure:
    p50, p90, p99, longest = outcome.waits.cuts(what)
    usual = outcome.honest.cuts(what)[2]
    more = f"p50 {p50:.1f}, p90 {p90:.1f}, max {longest:.1f}; {p99 / usual:.1f}x of {usual:.1f}"
    return Figure(f"neighbour's {what}, p99", p99, _WAIT_BOUND, more=more)


def _reuse(account: Account, grown: float) -> list[Figure]:
    """Tell whether what was deleted is used again.

    The first deletions take a few MB themselves, and the second use a longer write-ahead log; what
    is not given back shows with the third use.
    """
    paused, deleted = account.notes["paused"], account.notes["deleted"]
    again = account.notes.get("paused_again", 0)
    return [
        Figure("paused tasks not deleted", paused - deleted, 0, "", f"of {paused:.0f}"),
        Figure("growth with the third use", grown, _FILES, "MB", f"{again:.0f} tasks"),
    ]


async def report(
    against: Path | None = None, only: Sequence[str] = (), proxies: Sequence[str] = ()
) -> None:
    """Print the figures of each scenario; exit with 1 if any of ours is over its bound."""
    over = []
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    print(f"{load}; on a busy machine read the ratios")
    for scenario in [one for one in SCENARIOS if not only or one.attack in only]:
        before = [] if against is None else [(against, "")]
        for source, proxy in [*before, (None, ""), *((None, name) for name in proxies)]:
            outcome = await run(scenario, source, proxy=proxy)
            _print(scenario, outcome, f"{source or ''}{proxy and f'behind {proxy}'}")
            if source is None:
                over += [(scenario, figure) for figure in figures(outcome) if figure.over]
    if over:
        raise SystemExit(_verdict(over))
    print("everything is within its bounds")


def _print(scenario: Scenario, outcome: Outcome, version: str) -> None:
    account = outcome.account
    answered = ", ".join(f"{count} x {status}" for status, count in account.statuses.items())
    whose = f"  [{version}]" if version else ""
    print(f"{scenario.attack}: {scenario.summary}{whose}")
    print(
        f"  sent {account.sent / 1e6:.1f} MB, received {account.received / 1e6:.1f} MB"
        f"{'' if account.ended else ', given up'}: {answered or 'no answers'}"
    )
    for line in [*figures(outcome), *sorted(set(outcome.waits.wrong))[:3]]:
        print(line, flush=True)


def _verdict(over: Sequence[tuple[Scenario, Figure]]) -> str:
    lines = [
        f"{scenario.attack:16s}{figure.name:36s}{figure.value:9.1f} {figure.unit:3s}"
        f" bound {figure.bound:.0f}"
        for scenario, figure in over
    ]
    return "\n".join([f"{len(over)} figures are over their bounds:", *lines])
