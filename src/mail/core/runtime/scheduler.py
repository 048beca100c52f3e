"""Starting turns: the mailbox's next message, as long as there is room for one more turn."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mail.core.runtime.active_tasks import Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.transaction import uncount_attempt
from mail.errors import ClaimLost
from mail.logcontext import LogContext, begin

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Scheduler:
    """Owns the asyncio tasks of running turns; ``run_turn`` is what runs one."""

    context: RuntimeContext
    run_turn: Callable[[Turn], Awaitable[None]] = field(init=False)
    driving: bool = False
    active: dict["asyncio.Task[None]", Turn] = field(default_factory=dict)
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def pump(self) -> None:
        """Start as many turns as there is mail and room for."""
        if not self.at_work:
            self._quiet.set()  # whoever waits for that looks whether anything could start
        if not self.context.mailbox.offers:
            return
        shared = self.context.settings.turn_limit
        if shared is not None:
            shared.fill(self)
            return
        while self.start_one():
            pass

    def start_one(self) -> bool:
        """Start one turn; False when there is no mail, or no room for one more turn."""
        if not self.driving or self.context.status.draining or self.context.status.degraded:
            return False
        most = self.context.settings.max_concurrent_turns
        if most is not None and self.at_work >= most:
            return False
        queued = self.context.mailbox.claim()
        if queued is None:
            return False
        delivery = queued.delivery
        task = self.context.active_tasks.get(delivery.task_id)
        if task is None:
            raise RuntimeError(f"mail for task '{delivery.task_id}' that is not in the ledger")
        turn = Turn(task=task, agent=delivery.recipient, queued=queued)
        task.turns[turn.agent] = turn
        task.out.add(queued.seq)
        loop = asyncio.get_running_loop()
        handle = loop.create_task(self._run(turn), name=f"turn {turn.agent}")
        turn.handle = handle
        self.active[handle] = turn
        return True

    @property
    def at_work(self) -> int:
        """The number of turns that are under way; abandoned ones do not count."""
        return len(self.active) - self.context.status.abandoned

    async def _run(self, turn: Turn) -> None:
        handle = turn.handle
        turn.begun = True
        task, owner = turn.task, self.context.owner
        # For good: every turn has an asyncio task of its own.
        begin(LogContext(task.request_id, task.task_id, turn.agent, owner.role, owner.id))
        try:
            if not turn.abandoned:  # it may have been, between its claim and now
                await self.run_turn(turn)
        except asyncio.CancelledError:
            if not turn.abandoned:
                self._let_go(turn)
                raise
        except ClaimLost:  # told, and the whole task is let go of
            pass
        except Exception:
            logger.exception(
                "turn of agent '%s' failed; its mail is kept until the next restart", turn.agent
            )
            self._let_go(turn)
        except GeneratorExit:  # thrown away with its event loop, where nothing can begin any more
            self.driving = False
            raise
        finally:
            if handle is not None:
                self.active.pop(handle, None)
            turn.handle = None  # its context leads back here; the turn would wait for the collector
            self._leave(turn)
            if not self.at_work:
                self._quiet.set()
            self.pump()

    def _leave(self, turn: Turn) -> None:
        """Count a turn no more that has returned."""
        if turn.abandoned:  # its place was given back when it was
            self.context.status.abandoned -= 1
        elif self.context.settings.turn_limit is not None:
            self.context.settings.turn_limit.leave()

    def _let_go(self, turn: Turn) -> None:
        """Forget a turn without consuming its mail."""
        if turn.task.turns.get(turn.agent) is turn:
            del turn.task.turns[turn.agent]
            turn.task.out.difference_update({turn.seq, *(mail.seq for mail in turn.buffered)})
            self.context.mailbox.release(turn.queued.lane)

    async def quiet(self) -> None:
        """Wait until no turn is under way and none could start."""
        while (self.at_work or self.context.mailbox.ready) and not self.context.status.draining:
            self._quiet.clear()
            await self._quiet.wait()

    async def drain(self, grace: float) -> list[Turn]:
        """Wait up to ``grace`` seconds for running turns, then cancel and return what is left."""
        deadline = asyncio.get_running_loop().time() + grace
        self._quiet.set()  # whoever waits for quiet sees that no more will start
        while self.at_work:
            self._quiet.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._quiet.wait()
            except TimeoutError:
                break
        left = [turn for turn in self.active.values() if not turn.abandoned]
        for handle in list(self.active):
            handle.cancel()
        if self.active:
            await asyncio.wait(list(self.active), timeout=1.0)
        for turn in left:
            if not turn.begun:  # cancelled before its first step, it could not leave by itself
                self._leave(turn)
            if turn.queued.claimed:
                await uncount_attempt(self.context, turn)
        return left
