"""How a swarm runs: by itself, or step by step under a driver's hand (manual mode)."""

from collections.abc import Coroutine, Sequence
from typing import Any

from mail.core.actions import ActionOverrideFunction
from mail.core.runtime.manual import StepRequest
from mail.core.runtime.runtime import MAILRuntime, RunMode
from mail.core.runtime.turn import ResponseType
from mail.core.wire import MAILMessage

__all__ = ["ManualStepper"]


class ManualStepper:
    """Runs a swarm in one of its two modes."""

    _runtime: MAILRuntime

    def run_continuous(
        self,
        max_steps: int | None = None,
        action_override: ActionOverrideFunction | None = None,
        mode: RunMode = "continuous",
    ) -> Coroutine[Any, Any, None]:
        """Process mail until `shutdown`. The mode holds from the moment of the call.

        Args:
            max_steps: Messages per run of a task; None keeps the swarm's own limit.
            action_override: Answers every action call in place of the action.
            mode: ``"continuous"``: agents take their mail as it comes. ``"manual"``: mail waits
                for its agent until `manual_step` shows it.

        Returns:
            A coroutine to await or to run as an asyncio task.

        Raises:
            ConfigError: there is no such mode.
        """
        return self._runtime.run_continuous(max_steps, action_override, mode)

    async def await_queue_empty(self) -> None:
        """Wait until no agent is at work and no mail could wake one.

        In manual mode mail may still wait in the agents' buffers.
        """
        await self._runtime.await_queue_empty()

    async def manual_step(
        self,
        task_id: str,
        target: str,
        response_targets: Sequence[str] | None = None,
        response_type: ResponseType = "broadcast",
        payload: str | None = None,
        dynamic_ctx_ratio: float = 0.0,
        _llm: str | None = None,
        _system: str | None = None,
    ) -> MAILMessage:
        """Call one agent in manual mode and send its words on.

        The agent sees all mail that has waited for it, each in a ``public_message`` (to all) or
        ``private_message`` element, and then the payload. It may use its actions; it is called
        until it answers in plain text. That text goes to the response targets, where it waits for
        their own steps.

        Args:
            task_id: The task; a new one is opened under this id.
            target: The agent to call.
            response_targets: Who gets its words; all agents when None.
            response_type: ``"broadcast"`` (one message to the targets), ``"response"`` or
                ``"request"`` (one message to each target).
            payload: What to tell the agent beside its mail.
            dynamic_ctx_ratio: The share of the model's context (0 to 1) above which older history
                is summarised for this step; 0 for the swarm's own setting.
            _llm: The model of this step in place of the agent's own.
            _system: The system prompt of this step in place of the agent's own.

        Returns:
            The message that the words became; of several, the first. When the agent completed the
            task, the final ``broadcast_complete`` message.

        Raises:
            MAILError: the swarm is not in manual mode.
            ProtocolError, UnknownAgent, ConfigError: an argument is wrong; nothing was started.
            TaskPaused: the task waits for the results of breakpoint calls.
            StepFailed: the agent failed, or had no words; its mail waits for the next step.
            TaskError: the task ended before the step did.
        """
        return await self._runtime.manual_step(
            StepRequest(
                task_id=task_id,
                target=target,
                response_targets=response_targets,
                response_type=response_type,
                payload="" if payload is None else payload,
                ctx_ratio=dynamic_ctx_ratio,
                llm=_llm,
                system=_system,
            )
        )
