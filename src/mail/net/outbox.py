"""Mail for other swarms on its way: `OutboxSender` delivers it, `PeerGateway` is what agents see.

The truth about mail is its row in the store. What the sender keeps in memory (who is being tried,
who does not answer, when to look again) is found again after a restart.
"""

import asyncio
import contextlib
import heapq
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

from pydantic_core import from_json

from mail.clock import Clock, SystemClock, later
from mail.core.addresses import parse_task_contributor
from mail.core.interswarm import DeliveryOutcome, runner_name
from mail.core.suggest import hinted
from mail.core.wire import MAILInterswarmMessage
from mail.db.records import OutboxChange, OutboxRow, Owner, TaskRow
from mail.errors import (
    MISDIRECTED,
    UNKNOWN_TASK,
    AddressError,
    RoutingError,
    ToolError,
    UnknownSwarm,
    UnknownTask,
)
from mail.net.endpoints import token_variable
from mail.net.registry import SwarmRegistry
from mail.net.router import Direction, InterswarmRouter, direction_to
from mail.redaction import redact
from mail.services.peer_mail import is_forgotten

Settle = Callable[[Owner, OutboxRow, DeliveryOutcome], Awaitable[None]]
"""Commits what came of an attempt: events, notices, contributors, and the new state of the row.

It gets the row with the attempts and times that are to be stored; ``told`` is as it was before.
"""

_TRIPS_AFTER: Final = 5
_ROWS_AT_ONCE: Final = 512
_LOOK_AGAIN_SECONDS: Final = 60.0
_SHARED_SECONDS: Final = 2.0
"""Between two looks for mail that other servers have written, or do not send any more."""
_AFTER_ERROR_SECONDS: Final = 1.0
_SHORTEST_PAUSE: Final = 0.1
_LONGEST_COMMIT_PAUSE: Final = 30.0
_MOST_GROUNDED: Final = 128
_STOP_SECONDS: Final = 5.0
_SLOW_SECONDS: Final = 4.0
"""After so long without an answer the agent that sent mail is told; the attempt goes on."""
_LONGEST_RETRY_AFTER: Final = 3600.0
_LARGEST_POWER: Final = 30
_HINTS_PER_PEER: Final = 4
_HINTS_AT_ONCE: Final = 32
_ALREADY_THERE: Final = "already exists in swarm memory"
_ABOUT_THE_MAIL: Final = frozenset({400, 404, 409, 422})
_TOO_LARGE: Final = 413
_NOT_FOUND: Final = 404
_UNKNOWN_TASK: Final = ("task '", "no mail instance found")
"""The beginning of a 404's detail, ours or that of MAIL 1.3.6, which concerns the task alone."""
_MISDIRECTED: Final = ("invalid interswarm message: target_swarm", "is this server's own swarm")
_FEW: Final = 4
"""Deliveries that go on for one peer at a time when many go on for others."""

_log = logging.getLogger("mail.outbox")

_Key = tuple[Owner, str, str]


@dataclass(frozen=True)
class SendingSettings:
    """Attempts, back-off and deadlines of deliveries. Times are in seconds.

    Attributes:
        give_up_after: The age at which undelivered mail is given up.
        answer_within: The age at which a delivered request counts as unanswered.
        first_pause: The longest pause after a first failure; it doubles with each further one.
        longest_pause: The upper bound of these pauses.
        longest_unanswered: The upper bound for mail that was not answered, or that was refused
            for no fault of its own: a peer that takes no mail is held back as a whole.
        per_peer: The number of deliveries to one peer at a time while fewer than half of
            ``at_once`` go on; then it gets a few.
        at_once: The number of deliveries in all. Beyond that, each peer gets one.
    """

    give_up_after: float = 24 * 3600.0
    answer_within: float = 7 * 24 * 3600.0
    first_pause: float = 1.0
    longest_pause: float = 300.0
    longest_unanswered: float = 15.0
    per_peer: int = 32
    at_once: int = 256

    def pause(self, failures: int, longest: float | None = None) -> float:
        """Return how long to wait after so many failures in a row; a random share of the most."""
        most = self.first_pause * 2.0 ** min(failures - 1, _LARGEST_POWER)
        longest = self.longest_pause if longest is None else longest
        return random.uniform(0.0, min(most, longest))  # noqa: S311 - no secret


class Share(NamedTuple):
    """The part of a server, of several on one store: each peer gets its mail from one of them.

    Attributes:
        on_duty: Tells whether this server has a duty, such as a peer, and takes it if nobody has.
        tell: Tells the others that there is new mail.
    """

    on_duty: Callable[[str], Awaitable[bool]]
    tell: Callable[[], object]


class OutboxStore(Protocol):
    """The sender's part of a store; see `mail.db.outbox.OutboxVerbs`."""

    async def due_outbox(
        self,
        swarm: str,
        now: str,
        limit: int,
        *,
        without: Collection[str] = (),
        untold: Collection[str] = (),
    ) -> list[tuple[Owner, OutboxRow]]:
        """Return waiting mail that may be tried now: of each (task, peer) only the first."""

    async def next_outbox(self, swarm: str, after: str | None = None) -> str | None:
        """Return the earliest time, after one, at which mail may be tried, or None."""

    async def unanswered_outbox(
        self, swarm: str, before: str, after: int, limit: int
    ) -> list[tuple[Owner, OutboxRow]]:
        """Return a page of the delivered requests that were written before a time."""

    async def change_outbox(self, changes: Sequence[OutboxChange]) -> None:
        """Commit what came of attempts that concern nobody but the outbox."""

    async def list_outbox(
        self, swarm: str, *, after: int = 0, limit: int = 100
    ) -> list[tuple[Owner, OutboxRow]]:
        """Return a page of a swarm's mail for peers in order of the numbers, in any state."""

    async def load_task(self, owner: Owner, task_id: str) -> TaskRow | None:
        """Return a task, or None."""


@dataclass(slots=True)
class _Peer:
    """The state of deliveries to one swarm.

    ``failures`` counts those in a row. Once there are too many, ``trips`` counts the probes that
    failed, and nothing is tried ``until`` a moment. ``said`` are its own words in ``reason``.
    ``refused`` is the last status with which it refused mail for a reason that its operator or ours
    can remove.
    """

    flying: int = 0
    failures: int = 0
    trips: int = 0
    until: float = 0.0
    reason: str = ""
    said: str = ""
    refused: int | None = None


class _Flight(NamedTuple):
    owner: Owner
    row: OutboxRow
    peer: _Peer

    @property
    def key(self) -> _Key:
        return self.owner, self.row.task_id, self.row.peer


class OutboxSender:
    """Delivers the mail for other swarms that waits in a store.

    Mail of one (task, peer) goes in order, everything else at the same time. What fails is tried
    again after pauses that grow; a peer that fails again and again gets one probe at a time.

    Args:
        store: The store in which the mail waits.
        swarm: The local swarm.
        registry: Knows the peers.
        router: Makes the attempts; its owner starts and stops it.
        settle: See `Settle`. When it fails it is called again.
        settings: Attempts, back-off and deadlines.
        clock: The time that rows are compared with.
        share: The part of this server, if others serve the swarm, too.
    """

    def __init__(  # noqa: PLR0913 - the parts of a delivery
        self,
        store: OutboxStore,
        swarm: str,
        registry: SwarmRegistry,
        router: InterswarmRouter,
        settle: Settle,
        settings: SendingSettings | None = None,
        clock: Clock | None = None,
        share: Share | None = None,
    ) -> None:
        self._store = store
        self._swarm = swarm
        self._share = share
        self._look_again = _LOOK_AGAIN_SECONDS if share is None else _SHARED_SECONDS
        self._registry = registry
        self._router = router
        self._settle = settle
        self._settings = settings or SendingSettings()
        self._clock = clock or SystemClock()
        self._peers: dict[str, _Peer] = {}
        self._flights: dict[_Key, asyncio.Task[None]] = {}
        self._grounded: set[_Key] = set()  # those that only wait for their commit
        self._just_landed: set[_Key] = set()  # since the store was asked what is due
        self._timers: list[float] = []
        self._woken = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._reminder: asyncio.Task[None] | None = None

    # --- lifecycle ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to deliver, with what has waited since the last time; may be called again."""
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=f"outbox of {self._swarm}")
            self._reminder = asyncio.create_task(self._remind(), name="requests without answers")
            self._registry.returned = self.heard_from

    async def stop(self) -> None:
        """Stop within seconds. What is under way then is delivered after the next start."""
        running, self._running = self._running, None
        if running is None:
            return
        self._registry.returned = None
        ending = [running, self._reminder] if self._reminder else [running]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        flights = [*self._flights.values()]
        if flights:
            await asyncio.wait(flights, timeout=_STOP_SECONDS)
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    def wake(self, peers: Collection[str]) -> None:
        """Hear that there is new mail for these peers."""
        if peers:
            self.look()
            if self._share is not None:
                self._share.tell()

    def look(self) -> None:
        """Look for mail that others have written."""
        self._woken.set()

    def probe(self, peers: Collection[str]) -> None:
        """Hear that these peers may answer again, so that they are tried at once."""
        for name in peers:
            if name in self._peers:
                self._peers[name].until = 0.0
        self.wake(peers)

    def heard_from(self, peer: str) -> None:
        """Hear that a peer is there: mail that was held back for it may go."""
        known = self._peers.get(peer)
        if known is not None and known.until > time.monotonic():
            self.probe([peer])

    # --- what to send ---------------------------------------------------------------------------

    async def _run(self) -> None:
        failures, by_time = 0, True
        while True:
            self._woken.clear()
            try:
                now = self._clock.now()  # for both: what is not due yet comes later
                await self._look(now)
                if by_time:  # who writes mail says so; this is what an earlier process has left
                    await self._note_next(now)
                failures = 0
            except Exception as error:  # noqa: BLE001 - one bad look must not be the last
                failures += 1
                _log.warning("mail for other swarms cannot be read: %s", redact(str(error)))
                self._look_in(max(_SHORTEST_PAUSE, self._settings.pause(failures)))
            by_time = await self._wait()

    async def _wait(self) -> bool:
        """Wait for a hint, or for the moment at which something is due; tell if that has come."""
        pause = self._look_again
        if self._timers:
            pause = min(pause, self._timers[0] - time.monotonic())
        by_time = False
        try:
            async with asyncio.timeout(max(0.0, pause)):
                await self._woken.wait()
        except TimeoutError:
            by_time = True
        while self._timers and self._timers[0] <= time.monotonic():
            by_time = True
            heapq.heappop(self._timers)
        return by_time

    def _look_in(self, seconds: float) -> None:
        heapq.heappush(self._timers, time.monotonic() + seconds)

    async def _look(self, moment: str) -> None:
        """Find what may be sent at a moment, and begin with it."""
        for name in [name for name, peer in self._peers.items() if _is_forgettable(peer)]:
            del self._peers[name]
        elsewhere: set[str] = set()
        while True:
            now = time.monotonic()
            self._just_landed.clear()
            full = {name for name, peer in self._peers.items() if not self._room(peer)}
            rows = await self._store.due_outbox(
                self._swarm,
                moment,
                _ROWS_AT_ONCE,
                without=full | elsewhere,
                untold=[name for name, peer in self._peers.items() if peer.until > now],
            )
            before = len(self._flights), len(elsewhere)
            for peer in {row.peer for _, row in rows}:
                if not await self._is_on_duty(peer):
                    elsewhere.add(peer)
            self._begin_all(each for each in rows if each[1].peer not in elsewhere)
            if len(rows) < _ROWS_AT_ONCE or before == (len(self._flights), len(elsewhere)):
                break

    async def _is_on_duty(self, duty: str) -> bool:
        return self._share is None or await self._share.on_duty(duty)

    async def _note_next(self, after: str) -> None:
        moment = await self._store.next_outbox(self._swarm, after)
        if moment is not None:
            self._look_in(max(0.0, self._seconds_until(moment)))

    @property
    def _in_the_air(self) -> int:
        return len(self._flights) - len(self._grounded)

    def _room(self, peer: _Peer) -> int:
        """Return how many more deliveries to a peer may begin: few peers cannot take all places."""
        settings, others = self._settings, self._in_the_air
        if peer.failures >= _TRIPS_AFTER or others >= settings.at_once:
            most = 1
        elif others >= settings.at_once // 2:
            most = min(_FEW, settings.per_peer)
        else:
            most = settings.per_peer
        return max(0, most - peer.flying)

    def _begin_all(self, rows: Iterable[tuple[Owner, OutboxRow]]) -> None:
        # Those that failed least come first: one that fails always must not be every probe.
        for owner, row in sorted(rows, key=lambda each: (each[1].attempts, each[1].id)):
            peer = self._peers.setdefault(row.peer, _Peer())
            flight = _Flight(owner, row, peer)
            if flight.key in self._just_landed:  # what was read may be done; there is another look
                continue
            if flight.key in self._flights:
                continue
            if peer.flying and self._in_the_air >= self._settings.at_once:
                continue
            if peer.failures >= _TRIPS_AFTER and self._is_too_old(row):
                self._begin(flight, self._give_up(flight, row, peer.reason, peer.said))
            elif peer.until > time.monotonic():
                if not row.told:
                    self._begin(flight, self._tell(flight))
            elif self._room(peer):
                self._begin(flight, self._deliver(flight))

    def _begin(self, flight: _Flight, work: Any) -> None:
        task = asyncio.create_task(work, name=f"mail for {flight.row.peer}")
        self._flights[flight.key] = task
        flight.peer.flying += 1
        task.add_done_callback(partial(self._landed, flight))

    def _ground(self, flight: _Flight) -> None:
        """Make room for other mail; that of the same (task, peer) still waits."""
        if flight.key not in self._grounded:
            self._grounded.add(flight.key)
            flight.peer.flying -= 1

    def _landed(self, flight: _Flight, task: asyncio.Task[None]) -> None:
        self._ground(flight)
        self._grounded.discard(flight.key)
        del self._flights[flight.key]
        self._just_landed.add(flight.key)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._woken.set()  # there may be more that had to wait for this
        else:
            _log.warning("mail for swarm %r waits: %s", flight.row.peer, redact(str(error)))
            self._look_in(_AFTER_ERROR_SECONDS)

    # --- requests without answers ---------------------------------------------------------------

    async def _remind(self) -> None:
        """Close requests that were delivered long ago and have no answer."""
        most = self._settings.answer_within
        while True:
            try:
                if await self._is_on_duty(""):
                    await self._close_unanswered(later(self._clock.now(), -most))
            except Exception as error:  # noqa: BLE001 - one bad look must not be the last
                _log.warning("unanswered requests cannot be read: %s", redact(str(error)))
            await asyncio.sleep(min(_LOOK_AGAIN_SECONDS, max(_SHORTEST_PAUSE, most / 10)))

    async def _close_unanswered(self, before: str) -> None:
        reason = f"no answer came within {_span(self._settings.answer_within)}"
        last = 0
        while rows := await self._store.unanswered_outbox(self._swarm, before, last, _ROWS_AT_ONCE):
            for owner, row in rows:
                try:
                    await self._settle(owner, row, DeliveryOutcome("unanswered", reason))
                except Exception as error:  # noqa: BLE001 - others may be closed all the same
                    text = redact(str(error))
                    _log.warning("request %d for %r is not closed yet: %s", row.id, row.peer, text)
            last = rows[-1][1].id

    # --- one delivery ---------------------------------------------------------------------------

    async def _deliver(self, flight: _Flight) -> None:
        owner, row, peer = flight
        is_probe, began = peer.failures >= _TRIPS_AFTER, time.monotonic()
        attempt = asyncio.ensure_future(self._attempt(owner, row))
        try:
            row = await self._told_if_slow(flight, attempt)
            runner = await attempt
        except RoutingError as error:
            if await self._is_retried(row):
                return  # what made this attempt fail may be mended: it is made once more at once
            tried = row._replace(attempts=row.attempts + 1, last_error=str(error))
            if _concerns_the_mail(error):
                _answers(peer)
                _log.warning("swarm %r refuses mail: %s", row.peer, error)
                outcome = DeliveryOutcome("undeliverable", str(error), said=error.detail)
                await self._settled(flight, tried, outcome)
            else:
                self._advise(peer, row.peer, error)
                self._note_failure(peer, error, is_probe=is_probe)
                await self._put_off(flight, tried, error)
            return
        _answers(peer)
        _log.debug("mail delivered to swarm %r in %.3f s", row.peer, time.monotonic() - began)
        tried = row._replace(attempts=row.attempts + 1, last_error="", next_at="")
        await self._settled(flight, tried, DeliveryOutcome("delivered", runner=runner))

    async def _is_retried(self, row: OutboxRow) -> bool:
        """Tell whether somebody has asked for another attempt since one began."""
        try:
            found = await self._store.list_outbox(self._swarm, after=row.id - 1, limit=1)
        except Exception as error:  # noqa: BLE001 - what came of the attempt counts all the same
            _log.warning("mail for other swarms cannot be read: %s", redact(str(error)))
            return False
        return any(one.id == row.id and one.created_at != row.created_at for _, one in found)

    async def _told_if_slow(self, flight: _Flight, attempt: "asyncio.Future[str]") -> OutboxRow:
        """Wait a while for the end of an attempt; then say that the mail waits, if that is new.

        Returns:
            The row, as it is stored by now.
        """
        row = flight.row
        try:
            done, _ = await asyncio.wait((attempt,), timeout=_SLOW_SECONDS)
            if not done and not row.told:
                reason = f"swarm '{row.peer}' has not answered for {_SLOW_SECONDS:g} seconds"
                late = row._replace(last_error=reason)
                await self._settled(flight, late, DeliveryOutcome("delayed", reason))
                row = late._replace(told=True)
        except BaseException:
            attempt.cancel()
            raise
        return row

    def _advise(self, peer: _Peer, name: str, error: RoutingError) -> None:
        """Say, once, how to make a peer accept mail that it refuses whatever the mail says."""
        if not error.is_permanent or peer.refused == error.status:
            return
        peer.refused = error.status
        if error.status == HTTPStatus.UNAUTHORIZED:
            remedy = (
                f"unless it is about signatures, {token_variable(name)} must be a token that was "
                f"made on its side, with 'mail token create --role agent --id {self._swarm}'"
            )
        elif error.status == HTTPStatus.FORBIDDEN:
            remedy = (
                f"its server must have the swarm '{self._swarm}' registered, as the one that the "
                f"token in {token_variable(name)} is for"
            )
        else:
            remedy = (
                "its server must serve that swarm at the registered address, with "
                "enable_interswarm set to true"
            )
        _log.warning("swarm %r takes no mail, which waits: %s; %s", name, error, remedy)

    async def _attempt(self, owner: Owner, row: OutboxRow) -> str:
        """Hand the mail over, and return the contributor that has it; no text if it is not said.

        Raises:
            RoutingError: that failed.
        """
        wrapper = from_json(row.wrapper)
        direction = direction_to(row.peer, wrapper["task_contributors"])
        if direction == "forward":
            # Not yet when it was written; but by now the peer may take part.
            task = await self._store.load_task(owner, row.task_id)
            if task is not None:
                known = dict.fromkeys((*wrapper["task_contributors"], *task.task_contributors))
                wrapper["task_contributors"] = [*known]
                direction = direction_to(row.peer, known)
        try:
            receipt = await self._handed_over(wrapper, direction)
        except UnknownSwarm as error:  # it may be registered again
            raise RoutingError(str(error)) from None
        except RoutingError as error:
            # MAIL 1.3.6 refuses a repeated forward like this, and no other mail came before it.
            if direction == "forward" and error.status == 500 and _ALREADY_THERE in error.detail:
                return runner_name(self._swarm, row.peer)
            raise
        return _runner_of(receipt, row.peer)

    async def _handed_over(self, wrapper: Any, direction: Direction) -> dict[str, Any]:
        """Deliver mail; it may open a task where the peer takes part, but only for other swarms."""
        peer, known = wrapper["target_swarm"], wrapper["task_contributors"]
        try:
            return await self._router.deliver(wrapper, direction)
        except RoutingError as error:
            opened = runner_name(self._swarm, peer) in known
            at_home = str(wrapper["task_owner"]).endswith(f"@{peer}")
            if direction == "forward" or error.status != 404 or opened or at_home:
                raise
        return await self._router.deliver(wrapper, "forward")

    def _note_failure(self, peer: _Peer, error: RoutingError, *, is_probe: bool) -> None:
        """Count a failure; too many in a row hold all mail for the peer back for a while."""
        peer.reason, peer.said = str(error), error.detail
        peer.failures += 1
        now, pause = time.monotonic(), min(error.retry_after or 0.0, _LONGEST_RETRY_AFTER)
        # Of many that fail together, only the first one counts.
        if is_probe or (peer.failures >= _TRIPS_AFTER and peer.until <= now):
            peer.trips += 1
            pause = max(pause, self._settings.pause(peer.trips))
        if pause:
            peer.until = max(peer.until, now + pause)
            self._look_in(peer.until - now)

    async def _put_off(self, flight: _Flight, row: OutboxRow, error: RoutingError) -> None:
        """Let mail wait for its next attempt, or give it up."""
        if self._is_too_old(row):
            await self._give_up(flight, row, str(error), error.detail)
            return
        held = flight.peer.until - time.monotonic()
        # What is no fault of the mail may be mended at any moment.
        is_peers = error.status is None or error.is_permanent
        longest = self._settings.longest_unanswered if is_peers else None
        pause = held if held > 0 else self._settings.pause(row.attempts, longest)
        next_at = later(self._clock.now(), pause)
        self._look_in(pause)
        waits = row._replace(next_at=next_at)
        _log.info("mail for swarm %r waits %.1f s: %s", row.peer, pause, row.last_error)
        if row.told:
            put_off = partial(self._store.change_outbox, [_change(waits)])
            await self._committed(flight, put_off)
        else:
            outcome = DeliveryOutcome("delayed", str(error), said=error.detail)
            await self._settled(flight, waits, outcome)

    async def _tell(self, flight: _Flight) -> None:
        """Say of new mail for a peer that does not answer that it has to wait."""
        reason, said = flight.peer.reason, flight.peer.said
        waits = flight.row._replace(last_error=reason)
        await self._settled(flight, waits, DeliveryOutcome("delayed", reason, said=said))

    async def _give_up(self, flight: _Flight, row: OutboxRow, reason: str, said: str) -> None:
        most = _span(self._settings.give_up_after)
        text = f"not delivered within {most}; the last attempt: {reason}"
        _log.warning("mail for swarm %r is given up: %s", row.peer, reason)
        await self._settled(flight, row, DeliveryOutcome("undeliverable", text, said=said))

    async def _settled(self, flight: _Flight, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        commit: Callable[[], Awaitable[None]]
        commit = partial(self._settle, flight.owner, row, outcome)
        if flight.owner == Owner.of_deleted(self._swarm):  # there is nobody to tell
            change = _change(row._replace(told=True))
            if outcome.state != "delayed":
                change = change._replace(state="done")
            commit = partial(self._store.change_outbox, [change])
        await self._committed(flight, commit)

    async def _committed(self, flight: _Flight, commit: Callable[[], Awaitable[None]]) -> None:
        """Commit what came of an attempt, however often that takes.

        When too much waits for that, the mail is delivered once more later; its receiver knows it.
        """
        failures = 0
        while True:
            try:
                await commit()
            except UnknownTask:
                return  # it was deleted; what is sent all the same is found again
            except Exception as error:  # noqa: BLE001 - else the attempt would be made again
                failures += 1
                _log.warning("what came of mail is not committed yet: %s", redact(str(error)))
            else:
                return
            self._ground(flight)
            self._woken.set()
            if len(self._grounded) > _MOST_GROUNDED:
                next_at = later(self._clock.now(), _LOOK_AGAIN_SECONDS)
                await self._store.change_outbox([_change(flight.row._replace(next_at=next_at))])
                return
            pause = self._settings.pause(failures)
            await asyncio.sleep(min(max(_SHORTEST_PAUSE, pause), _LONGEST_COMMIT_PAUSE))

    def _is_too_old(self, row: OutboxRow) -> bool:
        """Tell whether mail is given up: after a time, and again one after a retry of its own."""
        late = self._seconds_until(row.created_at) < -self._settings.give_up_after
        return late or is_forgotten(row, datetime.fromisoformat(self._clock.now()))

    def _seconds_until(self, moment: str) -> float:
        """Return the seconds from now to a moment; 0 for no text."""
        if not moment:
            return 0.0
        now = datetime.fromisoformat(self._clock.now())
        return (datetime.fromisoformat(moment) - now).total_seconds()


def _answers(peer: _Peer) -> None:
    """Note that a peer answers."""
    peer.failures = peer.trips = 0
    peer.until = 0.0
    peer.reason = peer.said = ""
    peer.refused = None


def _concerns_the_mail(error: RoutingError) -> bool:
    """Tell whether the same mail would always be refused.

    Other refusals come from what an operator can change: tokens, registrations, the swarm that is
    served. So does an answer without words of a MAIL server, such as that of a proxy. The words
    themselves count only where there is no code: MAIL 1.3.6 has none.
    """
    if error.status == _TOO_LARGE:
        return True
    if error.status not in _ABOUT_THE_MAIL or not error.detail:
        return False
    if error.told in (MISDIRECTED, UNKNOWN_TASK):
        return error.told == UNKNOWN_TASK
    if error.status == _NOT_FOUND:
        return error.detail.startswith(_UNKNOWN_TASK)
    return not any(words in error.detail for words in _MISDIRECTED)


def _is_forgettable(peer: _Peer) -> bool:
    return not (peer.flying or peer.failures or peer.until > time.monotonic())


def _change(row: OutboxRow) -> OutboxChange:
    return OutboxChange(row.id, "waiting", row.attempts, row.next_at, row.last_error, row.told)


def _span(seconds: float) -> str:
    """Return a time as people say it."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} seconds"


def _runner_of(receipt: dict[str, Any], peer: str) -> str:
    """Return the contributor that a receipt names, if it may: one of the peer's own."""
    named = receipt.get("local_runner")
    with contextlib.suppress(AddressError):
        if isinstance(named, str) and parse_task_contributor(named).swarm == peer:
            return named
    return ""


class PeerGateway:
    """The other swarms as runtimes see them; see `mail.core.interswarm.Gateway`.

    Attributes:
        registry: Knows the swarms; None before a server has read it.
    """

    def __init__(self) -> None:
        self.registry: SwarmRegistry | None = None
        self._sender: OutboxSender | None = None
        self._router: InterswarmRouter | None = None
        self._hinting: Counter[str] = Counter()

    def begin(self, sender: OutboxSender, router: InterswarmRouter) -> None:
        """Exchange mail from now on.

        Args:
            sender: Delivers the mail for other swarms.
            router: Makes the one attempt that a hint gets.
        """
        self._sender, self._router = sender, router

    def end(self) -> None:
        """Exchange no mail any more: the swarm that is served does not."""
        self._sender = self._router = None

    def check(self, swarm: str) -> None:
        """Check that mail for a swarm can be sent at all.

        Raises:
            ToolError: the swarm is unknown, there is no token for it, or no mail is exchanged.
        """
        registry = self.registry
        if registry is None or self._sender is None:
            raise ToolError("this server exchanges no mail with other swarms at the moment")
        if registry.get_swarm_endpoint(swarm) is None:
            known = registry.get_all_endpoints().keys() - {registry.local_swarm_name}
            raise ToolError(hinted(f"unknown swarm '{swarm}'", swarm, known))
        if not registry.get_resolved_auth_token(swarm):
            raise ToolError(f"authentication token missing for swarm '{swarm}'")

    def swarms(self) -> list[str]:
        """Return the names of the other swarms that are active, in order."""
        if self.registry is None or self._sender is None:
            return []
        own = self.registry.local_swarm_name
        return sorted(name for name in self.registry.get_active_endpoints() if name != own)

    def wake(self, peers: Collection[str]) -> None:
        """Hear that mail for these swarms has been committed."""
        if peers and self._sender is not None:  # else it is found when there is a sender
            self._sender.wake(peers)

    async def hint(self, swarm: str, wrapper: MAILInterswarmMessage) -> bool:
        """Try once to deliver a message that may be lost; see `Gateway.hint`."""
        busy = self._hinting[swarm] >= _HINTS_PER_PEER or self._hinting.total() >= _HINTS_AT_ONCE
        if self._router is None or busy:
            return False
        self._hinting[swarm] += 1
        try:
            await self._router.deliver(wrapper, "back")
        except UnknownSwarm:  # it may be registered again
            return False
        except RoutingError as error:
            return error.is_permanent
        finally:
            self._hinting[swarm] -= 1
        return True

    async def discover(self, urls: Sequence[str]) -> tuple[list[str], list[str]]:
        """Ask servers which swarms they list.

        Returns:
            The names of swarms that were new, and what went wrong, a line each.
        """
        if self.registry is None or self._sender is None:
            return [], []
        found = await self.registry.discover_swarms(urls)
        return found.found, [f"{where}: {why}" for where, why in found.problems]
