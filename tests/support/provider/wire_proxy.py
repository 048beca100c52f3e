"""A LiteLLM proxy in front of Claude: chat completions outside, Anthropic Messages inside.

LiteLLM's own code translates both ways, here as in the proxy: the request before it is checked
and answered as an Anthropic one, and the reply's events to chunks whose deltas carry
``thinking_blocks`` and ``provider_specific_fields``.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mail.llm.litellm_model import load_library
from tests.support.provider.faults import Fault
from tests.support.provider.record import Seen
from tests.support.provider.wire import Event, Reply, Wire, openai_error
from tests.support.provider.wire_anthropic import ANTHROPIC

__all__ = ["PROXY", "inner_request", "is_claude"]

_CLAUDE = re.compile("claude|anthropic", re.IGNORECASE)
_NOT_OPTIONS = {"model", "messages", "stream_options", "user_token"}
_HEADERS = {"anthropic-version": "2023-06-01"}


def is_claude(seen: Seen) -> bool:
    """Whether a chat request asks for a model of Anthropic's."""
    return seen.wire == "completions" and _CLAUDE.search(seen.model) is not None


def inner_request(seen: Seen) -> Seen:
    """Return the request that the proxy sends on to Anthropic.

    Raises:
        ValueError: LiteLLM cannot translate it; the text says why.
    """
    load_library()
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig
    from litellm.utils import get_optional_params

    body = copy.deepcopy(dict(seen.body))
    name = seen.model.rpartition("/")[2]
    options = {key: value for key, value in body.items() if key not in _NOT_OPTIONS}
    try:
        wanted = get_optional_params(model=name, custom_llm_provider="anthropic", **options)
        translated = AnthropicConfig().transform_request(
            model=name,
            messages=body.get("messages") or [],
            optional_params=wanted,
            litellm_params={},
            headers={},
        )
    except Exception as error:
        raise ValueError(str(error)) from error
    headers = {**_HEADERS, **seen.headers}
    return replace(seen, wire="anthropic", body=translated, headers=headers)


def _whole(reply: Reply) -> dict[str, Any]:
    import httpx
    from litellm import ModelResponse
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig

    response = AnthropicConfig().transform_parsed_response(
        completion_response=ANTHROPIC.whole(reply),
        raw_response=httpx.Response(200),
        model_response=ModelResponse(),
    )
    return dict(response.model_dump(exclude_none=True))


def _events(reply: Reply) -> Iterator[Event]:
    """Yield the chunks; usage comes last, where it was asked for."""
    from litellm.llms.anthropic.chat.handler import ModelResponseIterator

    parser = ModelResponseIterator(streaming_response=iter(()), sync_stream=True)
    usage: Mapping[str, Any] = {}
    first = True
    for event in ANTHROPIC.events(reply):
        parsed: Any = parser.chunk_parser(event.data)
        chunk: dict[str, Any] = parsed.model_dump(exclude_none=True, exclude_unset=True)
        usage = chunk.pop("usage", usage)
        choice = chunk["choices"][0]
        if choice["delta"] == {"content": ""} and not choice.get("finish_reason"):
            continue
        if first:
            choice["delta"]["role"] = "assistant"
            first = False
        yield Event(chunk, content=event.content)
    if not reply.counted:
        return
    empty = [{"index": 0, "delta": {}}]
    frame = {"id": parser.response_id, "object": "chat.completion.chunk", "choices": empty}
    yield Event({**frame, "model": reply.seen.model, "usage": usage})


def _broken(reply: Reply, fault: Fault, sent: int) -> Event:
    message = f"litellm.InternalServerError: AnthropicException - {fault.error_event}"
    return Event({"error": {"message": message, "type": None, "param": None, "code": "500"}})


PROXY = Wire(
    whole=_whole, events=_events, error=openai_error, broken=_broken, done=b"data: [DONE]\n\n"
)
