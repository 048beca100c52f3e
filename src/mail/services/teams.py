"""Messages to teammates and to whole teams by members who are no agents.

They go through the mail desk as letters. Who may write to whom are the rules of `mail.core.teams`,
the same as for agents. Docs: ``docs/teams.md``.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mail.core.teams import Priority, Route, Team, Teams, wait_cycle
from mail.db.desk import LetterFilter, LetterRow, PageRow, ReceiptRow
from mail.errors import ShuttingDown, WaitCycle
from mail.services.desk import Draft, MailDesk, SentLetter

_PAGE: Final = 100
_PAGE_BYTES: Final = 1024 * 1024


class TeamLetter(NamedTuple):
    """A message that is stored for those it is for.

    Attributes:
        sent: The letter.
        route: Its way, by the names of the team.
        reply: The teammate's reply, if it was waited for and came in time.
    """

    sent: SentLetter
    route: Route
    reply: LetterRow | None = None


@dataclass(slots=True, eq=False)
class TeamDesk:
    """The desk of a swarm's teams; the callers have made sure who a caller is.

    Attributes:
        desk: The mail desk.
        teams: The teams.
    """

    desk: MailDesk
    teams: Teams
    _waits: list[tuple[str, str]] = field(default_factory=list, init=False)
    _claims: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def list_teams(self, caller: str) -> list[Team]:
        """Return the teams that somebody is in; none while teams are off."""
        return self.teams.teams_of(caller)

    async def message(
        self,
        caller: str,
        team_id: str,
        to: str,
        message: str,
        *,
        priority: Priority = "normal",
        request_id: str = "",
        waits: bool = False,
    ) -> TeamLetter:
        """Send a message to one member of a team.

        Args:
            caller: The sender.
            team_id: The team.
            to: The name of the member, or ``lead``.
            message: The text.
            priority: ``urgent`` if it wants attention at once.
            request_id: As in `MailDesk.send_message`.
            waits: The caller is going to wait for a reply, so that agents owe one.

        Raises:
            TeamError: see `mail.core.teams.Teams.message`; nothing is stored.
            ProtocolError: the text is empty or too long; nothing is stored.
            RequestReused: the request id stands for another letter.
        """
        route = self.teams.message(caller, team_id, to)
        draft = _draft(route, message, priority, request_id)
        answered = await self._asked(caller, route.recipients[0], request_id)
        draft = draft._replace(reply_to=answered, quiet=not waits)
        sent = await self.desk.send_message(caller, draft, route.recipients[0], None)
        return TeamLetter(sent, route)

    async def broadcast(
        self,
        caller: str,
        team_id: str,
        message: str,
        *,
        priority: Priority = "normal",
        exclude_self: bool = False,
        request_id: str = "",
    ) -> TeamLetter:
        """Send a message to all members of a team: to all of them, or to nobody.

        Args:
            exclude_self: Send no copy to the caller.

        The other arguments and the errors are those of `message`.
        """
        route = self.teams.broadcast(caller, team_id, exclude_self=exclude_self)
        draft = _draft(route, message, priority, request_id)._replace(quiet=True)
        sent = await self.desk.broadcast_message(
            caller, draft, route.recipients, with_sender=caller in route.recipients
        )
        return TeamLetter(sent, route)

    async def _asked(self, caller: str, teammate: str, request_id: str) -> str:
        """Return the newest open question of an agent, which a message to it answers; or no text.

        A repeated request answers the same one.
        """
        store, swarm = self.desk.store, self.desk.swarm
        if teammate not in self.desk.agents.names:
            return ""
        if request_id:
            letter_id = self.desk.id_for(caller, request_id)
            if known := await store.letters_by_id(swarm, [letter_id]):
                return known[0][0].reply_to
        ask = await store.newest_ask(swarm, teammate, caller)
        return ask.letter_id if ask else ""

    # --- waiting for a reply --------------------------------------------------------------------

    async def ask(
        self,
        caller: str,
        team_id: str,
        to: str,
        message: str,
        seconds: float,
        *,
        priority: Priority = "normal",
        request_id: str = "",
    ) -> TeamLetter:
        """Send a message to one member of a team, and wait for its reply.

        That is the first direct message of that member after this one, unless it answers another
        one. It counts as read then. A repeat with the same request id waits for what is left of
        the time, and gets the same reply.

        Args:
            seconds: The length of the wait, counted from when the message was stored.

        The other arguments are those of `message`.

        Raises:
            WaitCycle: it would wait for somebody who waits for the caller; nothing is sent.
            ShuttingDown: the server stops; the message is stored.
            Other errors: see `message`.
        """
        teammate = self.teams.message(caller, team_id, to).recipients[0]
        with self._waiting(caller, teammate):
            found = await self.message(
                caller, team_id, to, message, priority=priority, request_id=request_id, waits=True
            )
            reply = await self._reply(caller, found.sent.letter, teammate, seconds)
            return found._replace(reply=reply)

    @contextmanager
    def _waiting(self, caller: str, teammate: str) -> Iterator[None]:
        """Note who waits for whom, as long as they do."""
        edges: dict[str, list[str]] = {}
        for waiter, awaited in self._waits:
            edges.setdefault(waiter, []).append(awaited)
        if path := wait_cycle(edges, caller, teammate):
            raise WaitCycle(path)
        self._waits.append((caller, teammate))
        try:
            yield
        finally:
            self._waits.remove((caller, teammate))

    async def _reply(
        self, caller: str, letter: LetterRow, teammate: str, seconds: float
    ) -> LetterRow | None:
        desk, page_id = self.desk, f"reply to {letter.letter_id}"  # no caller's request id: blanks
        loop = asyncio.get_running_loop()
        until = datetime.fromisoformat(letter.created_at) + timedelta(seconds=seconds)
        left = (until - datetime.fromisoformat(desk.clock.now())).total_seconds()
        deadline = loop.time() + min(max(0.0, left), seconds)
        newest = letter.seq
        with desk.bell.listen(caller) as rung:
            while True:
                rung.clear()
                if page := await desk.store.find_page(desk.swarm, caller, page_id):
                    known = await desk.store.letters_by_id(desk.swarm, page.letter_ids)
                    return known[0][0] if known else None
                for found, receipt in await self._since(caller, newest):
                    newest = max(newest, found.seq)
                    alone = found.kind == "direct" and len(found.recipients) == 1
                    is_reply = found.sender == teammate and (
                        found.reply_to == letter.letter_id
                        or (alone and not (found.reply_to or receipt.shown_at))
                    )
                    if is_reply and await self._claim(caller, found, letter, page_id):
                        return found
                if desk.bell.closed:
                    raise ShuttingDown
                try:
                    async with asyncio.timeout_at(deadline):
                        await rung.wait()
                except TimeoutError:
                    return None

    async def _since(self, caller: str, seq: int) -> list[tuple[LetterRow, ReceiptRow]]:
        """Return what somebody got after a letter, oldest first."""
        store, swarm = self.desk.store, self.desk.swarm
        found: list[tuple[LetterRow, ReceiptRow]] = []
        before: int | None = None
        while True:
            which = LetterFilter(before=before)
            page = await store.letters(swarm, caller, which, limit=_PAGE, max_bytes=_PAGE_BYTES)
            new = [(letter, receipt) for letter, receipt in page if letter.seq > seq]
            found += new
            if not page or len(new) < len(page):
                return found[::-1]
            before = new[-1][0].seq

    async def _claim(self, caller: str, found: LetterRow, letter: LetterRow, page_id: str) -> bool:
        """Take a letter as the reply; False if another wait has taken it."""
        store, swarm, now = self.desk.store, self.desk.swarm, self.desk.clock.now()
        async with self._claims:
            [(_, receipts)] = await store.letters_by_id(swarm, [found.letter_id])
            shown = any(one.shown_at for one in receipts if one.name == caller)
            if shown and found.reply_to != letter.letter_id:
                return False
            page = PageRow(page_id, (found.letter_id,), now)
            await store.show_letters(swarm, caller, [found.letter_id], now, page)
            return True


def _draft(route: Route, message: str, priority: Priority, request_id: str) -> Draft:
    return Draft(message, route.subject, urgent=priority == "urgent", request_id=request_id)
