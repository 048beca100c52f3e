"""A swarm behind OpenAI's Responses API: items in, items out, events, and what is kept of each.

`SwarmOAIClient` is the library's face of it, ``/responses`` of the server the other one. Nothing
here knows HTTP, and the ``openai`` package is imported only where its types are made.
"""

from mail.lazy import lazy_exports

__all__ = ["ResponseRequest", "ResponsesBridge", "ResponsesError", "SwarmOAIClient"]

__getattr__ = lazy_exports(
    __name__,
    {
        "ResponseRequest": "mail.responses_api.request",
        "ResponsesBridge": "mail.responses_api.bridge",
        "ResponsesError": "mail.responses_api.items",
        "SwarmOAIClient": "mail.responses_api.client",
    },
)
