"""A model provider over real sockets: three wire formats, plain and streaming.

OpenAI chat completions, OpenAI Responses and Anthropic Messages::

    async with FakeProvider([when(system="weather").then(say("Sunny."))]) as provider:
        provider.faults.append(Fault(status=429, retry_after=0.1))
        ...  # let LiteLLM talk to provider.base_url, or as Anthropic to provider.root_url
        assert [seen.status for seen in provider.requests] == [429, 200]

Replies come from a script (`mail.llm.script`), one for all agents and formats: rules tell agents
apart by ``system`` or ``model``. `tests.support.provider.steps` adds what only a provider can do.
Requests that OpenAI or Anthropic would refuse get a 400 that says why. What single providers refuse
beyond that is in `tests.support.provider.personalities`: a request below
``provider.root_of("mistral")`` is answered as Mistral would. As a process of its own::

    python -m tests.support.provider --port 0 --port-file PORT --log REQUESTS.jsonl
"""

from tests.support.provider.faults import Fault
from tests.support.provider.issued import Issued
from tests.support.provider.personalities import PERSONALITIES
from tests.support.provider.record import Seen
from tests.support.provider.server import FakeProvider, default_script
from tests.support.provider.steps import (
    Cited,
    Found,
    OutOfTokens,
    PauseTurn,
    Redacted,
    Refuse,
    RunCode,
    Search,
)
from tests.support.provider.validate import problems_of

__all__ = [
    "PERSONALITIES",
    "Cited",
    "FakeProvider",
    "Fault",
    "Found",
    "Issued",
    "OutOfTokens",
    "PauseTurn",
    "Redacted",
    "Refuse",
    "RunCode",
    "Search",
    "Seen",
    "default_script",
    "problems_of",
]
