"""Letters between participants and the agents of the swarm that a server serves.

What participants may write, and to whom, is checked by `mail.services.desk`.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from mail.auth.callers import Caller
from mail.clock import Clock
from mail.core.addresses import local_agent_name
from mail.core.runtime.correspondence import ReceiptNews
from mail.core.runtime.letters import DeskMail
from mail.core.teams import Teams
from mail.db.desk import PARTICIPANT_ROLE, AskRow, DeskPost, LetterRow
from mail.db.records import Owner
from mail.db.store import Store
from mail.errors import MAILError
from mail.server.instances import InstancePool
from mail.server.quotas import Quotas
from mail.server.storage import StorageShares
from mail.services.desk import AgentDoor

if TYPE_CHECKING:
    from mail.api import MAILSwarmTemplate

sender_token: ContextVar[str] = ContextVar("sender_token", default="")
"""The token of the participant whose request is being answered."""

_log = logging.getLogger("mail.server")

_ASKS_AT_ONCE: Final = 100
_MOST_TELLING: Final = 256
"""Requests whose news for tasks are not told yet; those of further ones are not told at all."""
_LONGEST_PAUSE: Final = 60.0
_SHORTEST_PAUSE: Final = 0.05
_AGENT: Final = "An agent of the swarm."
_ENTRYPOINT: Final = "An agent of the swarm: its entrypoint, which takes any request."


def _owner_of(swarm: str, name: str) -> Owner:
    """Return the owner of a task as letters name it, ``role:id``."""
    role, _, identifier = name.partition(":")
    return Owner(swarm, role, identifier)


@dataclass(frozen=True, slots=True, eq=False)
class SwarmAgents(AgentDoor):
    """The agents of a swarm, each task's in its owner's instance; see `mail.services.desk`.

    Attributes:
        pool: The instances.
        quotas: The limits on each owner's work at a time.
        shares: The limits on each owner's storage.
        template: The swarm.
    """

    pool: InstancePool
    quotas: Quotas
    shares: StorageShares
    template: "MAILSwarmTemplate"
    _telling: set["asyncio.Task[None]"] = field(default_factory=set, init=False)

    @property
    def names(self) -> Set[str]:
        """The names of all agents."""
        return {agent.name for agent in self.template.agents}

    def reached_by(self, name: str) -> Mapping[str, str]:
        """Return the entrypoint, teammates, and the agents that have a mailbox as a target."""
        swarm, entrypoint = self.template.name, self.template.entrypoint
        found = {entrypoint: _ENTRYPOINT}
        teams = Teams.of(self.template.teams, enabled=self.template.enable_teams)
        for agent in self.template.agents:
            targets = {local_agent_name(target, swarm) for target in agent.comm_targets}
            if name in targets or teams.are_teammates(name, agent.name):
                found.setdefault(agent.name, _AGENT)
        return found

    async def deliver(
        self,
        letter: LetterRow,
        post: DeskPost,
        agents: tuple[str, ...],
        *,
        opens: bool,
        thread: Sequence[LetterRow] = (),
        quiet: bool = False,
    ) -> None:
        """Deliver as `mail.services.desk.AgentDoor.deliver` says.

        Raises:
            QuotaExceeded, StorageFull: the task's owner has as much as one gets.
            ServerBusy, ShuttingDown: it cannot be taken now.
        """
        owner = _owner_of(post.swarm, letter.task_owner)
        mail = DeskMail(
            letter=letter, post=post, agents=agents, opens=opens, thread=tuple(thread), quiet=quiet
        )
        own = owner == Owner(post.swarm, PARTICIPANT_ROLE, letter.sender)
        async with self.pool.lend_owner(owner, sender_token.get() if own else "") as swarm:
            await self.shares.admit(owner, resumes=not opens)
            if opens:
                caller, here = Caller(owner.role, owner.id), swarm.runtime.open_tasks
                self.quotas.message(caller, letter.task_id, here, self.shares.elsewhere(owner))
            await swarm.runtime.letters.take(mail)

    def tell(self, letters: Sequence[LetterRow], name: str, state: str, note: str = "") -> None:
        """Tell the sender's tasks; those of owners who are not at work hear nothing.

        So whoever reads old letters wakes no tasks; see `mail.services.desk.AgentDoor.tell`.
        """
        if len(self._telling) >= _MOST_TELLING:
            return
        news: dict[tuple[str, str], list[ReceiptNews]] = defaultdict(list)
        for each in letters:
            told = ReceiptNews(each.letter_id, each.sender, name, state, note)
            news[each.task_owner, each.task_id].append(told)
        telling = asyncio.create_task(self._tell(news), name="receipts")
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell(self, news: Mapping[tuple[str, str], Sequence[ReceiptNews]]) -> None:
        for (owner_name, task_id), told in news.items():
            owner = _owner_of(self.template.name, owner_name)
            if self.pool.log_of(Caller(owner.role, owner.id), owner.swarm) is None:
                continue
            try:
                async with self.pool.lend_owner(owner) as swarm:
                    await swarm.runtime.letters.tell(task_id, told)
            except MAILError as error:
                _log.debug("a task was not told of receipts: %s", error)


@dataclass(slots=True, eq=False)
class Reminder:
    """Ends the waiting of agents for participants that do not answer.

    Attributes:
        store: The store of the waits.
        pool: The instances of the tasks' owners.
        swarm: Returns the swarm that is served.
        clock: The time.
        answer_within: So many seconds an answer is waited for.
    """

    store: Store
    pool: InstancePool
    swarm: "Callable[[], MAILSwarmTemplate]"
    clock: Clock
    answer_within: float

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        pause = min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, self.answer_within / 10))
        while True:
            try:
                await self.remind()
            except Exception as error:  # noqa: BLE001 - one bad look must not be the last
                _log.warning("unanswered letters cannot be read: %s", type(error).__name__)
            await asyncio.sleep(pause)

    async def remind(self) -> None:
        """Let go what agents have asked too long ago."""
        template = self.swarm()
        swarm, agents = str(template.name), {agent.name for agent in template.agents}
        limit = datetime.fromisoformat(self.clock.now()) - timedelta(seconds=self.answer_within)
        before = limit.isoformat(timespec="microseconds")
        last: AskRow | None = None
        while rows := await self.store.old_asks(swarm, before, _ASKS_AT_ONCE, last):
            for row in rows:
                if row.asked not in agents:  # what agents owe is answered by the end of the task
                    await self._give_up(swarm, row)
            last = rows[-1]

    async def _give_up(self, swarm: str, ask: AskRow) -> None:
        try:
            async with self.pool.lend_owner(_owner_of(swarm, ask.task_owner)) as owners:
                await owners.runtime.letters.give_up(ask)
        except MAILError as error:
            _log.warning("the answer to a letter is still waited for: %s", error)
