"""The agent function of the example supervisor."""

from typing import Any

from mail.examples.supervisor.prompts import SYSPROMPT
from mail.factories.supervisor import LiteLLMSupervisorFunction as _Supervisor


class LiteLLMSupervisorFunction(_Supervisor):
    """A supervisor that speaks for its team; the prompt of this package is its default."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMSupervisorFunction`."""
        super().__init__(**{"system": SYSPROMPT, **params})
