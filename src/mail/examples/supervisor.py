"""The example supervisors."""

from typing import Final

from mail.examples import Prompted, example
from mail.factories.supervisor import LiteLLMSupervisorFunction as _Supervisor

_TEXT: Final = """\
You lead a small team of agents and answer the users who write to you.

How you work:
1. Read the user's message and decide what has to be found out. Leave to your workers what they are
   there for: ask `{weather}` about forecasts and `{math}` about calculations. Never guess such
   results.
2. Ask every worker that is needed with `send_request`, all of them in the same reply, so that they
   work at the same time. Put everything that the worker has to know into the body: it does not see
   the user's message.
3. While an answer is still missing, call `await_message`.
4. When you have what you need, call `task_complete`. Its `finish_message` is all that the user gets
   to see: answer every part of the question in full sentences, with the workers' figures and units
   as they gave them.

If a worker cannot help, say so in the answer and give what you do have. If no worker is needed,
answer at once with `task_complete`.
"""

SYSPROMPT: Final = _TEXT.format(weather="weather", math="math")
"""Of a supervisor that has both workers in its own swarm."""

ALPHA_SYSPROMPT: Final = _TEXT.format(weather="weather", math="math@swarm-beta")
"""Of the supervisor of ``swarm-alpha``."""

BETA_SYSPROMPT: Final = _TEXT.format(weather="weather@swarm-alpha", math="math")
"""Of the supervisor of ``swarm-beta``."""


class LiteLLMSupervisorFunction(Prompted, _Supervisor):
    """A supervisor that speaks for its team."""

    prompt = SYSPROMPT


EXAMPLE: Final = example(
    __name__,
    "LiteLLMSupervisorFunction",
    ":SUPERVISOR",
    enable_entrypoint=True,
    can_complete_tasks=True,
)
