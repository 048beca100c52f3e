"""A model provider over real sockets: OpenAI chat completions, plain and streaming.

::

    async with FakeProvider([when(system="weather").then(say("Sunny."))]) as provider:
        provider.faults.append(Fault(status=429, retry_after=0.1))
        ...  # let LiteLLM talk to provider.base_url
        assert [seen.status for seen in provider.requests] == [429, 200]

Replies come from a script (`mail.llm.script`), one for all agents: rules tell them apart by
``system`` or ``model``. Requests that OpenAI or Anthropic would refuse get a 400 that says why. As
a process of its own::

    python -m tests.support.provider --port 0 --port-file PORT --log REQUESTS.jsonl
"""

from tests.support.provider.faults import Fault
from tests.support.provider.record import Seen
from tests.support.provider.server import FakeProvider, default_script
from tests.support.provider.validate import problems_of

__all__ = ["FakeProvider", "Fault", "Seen", "default_script", "problems_of"]
