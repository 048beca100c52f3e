"""The parts of one runtime instance, put together once; every step takes them from here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace

from mail.clock import Clock
from mail.core.actions import ActionCore, ActionOverrideFunction
from mail.core.agents import AgentCore
from mail.core.approvals import Approval
from mail.core.compose import Composer
from mail.core.interswarm import PEER_ROLE, Gateway
from mail.core.runtime.active_tasks import ActiveTask, ActiveTasks
from mail.core.runtime.histories import Histories
from mail.core.runtime.mailbox import Mailbox
from mail.core.runtime.settings import RuntimeSettings
from mail.core.teams import NO_TEAMS, Teams
from mail.db.blobs import Blobs
from mail.db.desk import PARTICIPANT_ROLE, DeskPost
from mail.db.post import Post, Receipt, TurnCommit, size_beside_task
from mail.db.records import Owner
from mail.db.store import Store
from mail.errors import DeskConflict, StoreConflict, StoreError
from mail.services.event_log import EventLog

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


@dataclass(slots=True, eq=False, kw_only=True)
class RuntimeContext:
    """What the steps of a turn share. Parts know nothing of one another.

    ``manual`` tells that agents are stepped by a driver, ``draining`` stops new work, ``degraded``
    tells why the store fails at the moment, and ``abandoned`` counts interrupted turns whose agent
    functions have not returned yet. ``gateway`` leads to other swarms; without one agents write to
    nobody there. ``teams`` are those of the swarm. ``host`` is the swarm whose tasks these are,
    when the owner is another swarm. ``participants`` have mailboxes in the swarm, and are no
    agents; ``ring`` wakes those who wait for letters, and ``blobs`` leads to the contents of files
    that come with letters, for the swarm's name. ``guest`` is the participant whose tasks these
    are, when the owner is one. ``approvals`` tell, by name, of which tools the calls wait for a
    person; ``holds`` whether any do, actions with an approval of their own included.
    ``on_deadline`` is called when a call is held that must be answered in time.
    """

    owner: Owner
    entrypoint: str
    agents: Mapping[str, AgentCore]
    actions: Mapping[str, ActionCore]
    breakpoint_tools: frozenset[str]
    exclude_tools: frozenset[str]
    settings: RuntimeSettings
    clock: Clock
    store: Store
    composer: Composer
    mailbox: Mailbox
    active_tasks: ActiveTasks
    histories: Histories
    events: EventLog
    print_llm_streams: bool = True
    action_override: ActionOverrideFunction | None = None
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    gateway: Gateway | None = None
    teams: Teams = NO_TEAMS
    participants: Set[str] = frozenset()
    ring: Callable[[Collection[str]], None] | None = None
    blobs: Callable[[str], Blobs] | None = None
    on_deadline: Callable[[], None] = lambda: None
    manual: bool = False
    draining: bool = False
    degraded: str | None = None
    abandoned: int = 0
    swarm: str = field(init=False)
    host: str = field(init=False)
    guest: str = field(init=False)
    holds: bool = field(init=False)

    def __post_init__(self) -> None:
        self.swarm = self.owner.swarm
        self.host = self.owner.id if self.owner.role == PEER_ROLE else ""
        own = [each for agent in self.agents.values() for each in (agent.actions or {}).values()]
        held = any(action.approval is not None for action in (*self.actions.values(), *own))
        self.holds = held or bool(self.approvals)
        takes_part = self.owner.role == PARTICIPANT_ROLE and self.owner.id in self.participants
        self.guest = self.owner.id if takes_part else ""

    def approval_for(self, agent: str, tool: str) -> Approval | None:
        """Return how calls of a tool are held: the swarm says, else the action."""
        held = self.approvals.get(tool)
        if held is not None:
            return held
        action = self.actions.get(tool) or (self.agents[agent].actions or {}).get(tool)
        return action.approval if action is not None else None

    @property
    def finisher(self) -> str:
        """Who is asked to end a task: the entrypoint if it may, else the first supervisor."""
        entry = self.agents.get(self.entrypoint)
        if entry is not None and entry.can_complete_tasks:
            return self.entrypoint
        for name, agent in self.agents.items():
            if agent.can_complete_tasks:
                return name
        return self.entrypoint

    async def commit(
        self, task: ActiveTask, post: Post, renew: Callable[[], None] | None = None
    ) -> Receipt:
        """Commit inside the engine, where work that is done must not be lost.

        A store that fails is tried again until it works or the runtime stops; meanwhile nothing
        new is claimed, and later commits of the task wait, for its histories are in their order.
        The newest row of the task is written, whatever row the commit brought.

        Args:
            task: Whose commit it is.
            post: What to commit.
            renew: Brings it up to date before each attempt: while it waited for its turn or for the
                store, messages may have been stored that it does not know of.

        Raises:
            StoreConflict: the delivery was consumed or dropped by somebody else.
            StoreError: the runtime stops and the store still fails.
        """
        await task.commits.acquire()  # `async with` would run two coroutines more
        try:
            if task.deleted:
                raise StoreConflict(f"task '{task.task_id}' was deleted")
            if task.torn:
                raise StoreError("an earlier commit of the task was not stored")
            try:
                return await self._commit(task, post, renew)
            except (StoreError, asyncio.CancelledError) as error:
                if not isinstance(error, StoreConflict):
                    task.torn = self.draining
                raise
        finally:
            task.commits.release()

    async def _commit(
        self, task: ActiveTask, post: Post, renew: Callable[[], None] | None
    ) -> Receipt:
        pause = _FIRST_PAUSE
        while True:
            try:
                if post.desk is not None:
                    await self._address(post, post.desk)
                post.task = task.row
                if renew is not None:
                    renew()
                receipt = await self._store(post)
            except DeskConflict:
                self.degraded = None
                if not await self._leave_out_known(post):
                    raise
            except StoreConflict:
                self.degraded = None
                raise
            except StoreError as error:
                if self.draining:
                    raise
                await self._wait_for_store(error, pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self.degraded = None
                self.stored(task, post, receipt)
                return receipt

    def _store(self, post: Post) -> Awaitable[Receipt]:
        if self.settings.news is not None:
            post.webhooks = self.settings.news.told_by(post)
        if isinstance(post, TurnCommit):
            return self.store.commit_turn(post)
        return self.store.post(post)

    async def _address(self, post: Post, desk: DeskPost) -> None:
        """Address letters in threads to those who are members now."""
        if all(each.recipients for each in desk.letters):
            return
        letters = []
        for letter in desk.letters:
            if letter.thread_id and not letter.recipients:
                found = await self.store.find_thread(self.swarm, letter.thread_id)
                members = [member.name for member in found[1]] if found else []
                others = (name for name in members if name not in (letter.sender, *self.agents))
                letter = letter._replace(recipients=tuple(others))
            letters.append(letter)
        post.desk = replace(desk, letters=tuple(letters))

    async def _leave_out_known(self, post: Post) -> bool:
        """Take letters out of a commit that exist, and tell whether there were any.

        An agent that is called twice for messages with the same id makes the same letters again.
        """
        if post.desk is None:
            return False
        ids = [letter.letter_id for letter in post.desk.letters]
        found = await self.store.letters_by_id(self.swarm, ids)
        known = {letter.letter_id for letter, _ in found}
        letters = tuple(each for each in post.desk.letters if each.letter_id not in known)
        post.desk = replace(post.desk, letters=letters)
        return bool(known)

    def stored(self, task: ActiveTask, post: Post, receipt: Receipt) -> None:
        """Note what a commit has taken, and tell whoever waits for what it brought."""
        if self.settings.quota is not None:
            added = receipt.bytes - task.bytes + size_beside_task(post)
            self.settings.quota.wrote(self.owner, added)
        task.bytes = receipt.bytes
        self.sent_away(post)

    def sent_away(self, post: Post) -> None:
        """Tell the gateway of mail for other swarms, who has got letters, and the webhook."""
        if post.outbox and self.gateway is not None:
            self.gateway.wake({row.peer for row in post.outbox})
        if post.desk is not None and self.ring is not None:
            self.ring({name for letter in post.desk.letters for name in letter.recipients})
        if post.webhooks and self.settings.news is not None:
            self.settings.news.wake()

    async def _wait_for_store(self, error: StoreError, pause: float) -> None:
        self.degraded = str(error)
        logger.warning("the store failed; retrying in %.2f s: %s", pause, error)
        try:
            await asyncio.sleep(pause)
        except asyncio.CancelledError:
            self.degraded = None  # nobody would take it back; whoever still tries sets it again
            raise
