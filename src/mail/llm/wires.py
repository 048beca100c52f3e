"""The codecs of the wire formats: a model's profile says which one it is spoken to in."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mail.errors import ModelError
from mail.llm import anthropic, completions, responses
from mail.llm.profiles import Profile, merged
from mail.llm.request import Delta, ModelRequest, Wire

_BAD_REQUEST: Final = 400
_BETA: Final = "anthropic-beta"
_BINDING: Final = "thinking-binding-controls-2026-08-01"
"""Without this, Anthropic refuses the argument that ``block_binding`` becomes."""


def encoded(request: ModelRequest, profile: Profile) -> dict[str, Any]:
    """Build the arguments of LiteLLM's call in the model's wire format.

    Raises:
        ModelError: the model cannot call tools.
    """
    if request.tools and not profile.tools:
        text = f"model call failed: {request.model} cannot call tools; agents need a model that can"
        raise ModelError(text, status=_BAD_REQUEST)
    arguments = merged(_ENCODERS[profile.wire](request, profile), profile.arguments)
    arguments.update(request.settings.sampling)
    if profile.no_auto and request.tools and arguments.get("tool_choice", "auto") == "auto":
        arguments["tool_choice"] = "required"
    headers = dict(profile.headers)
    if profile.block_binding:
        headers[_BETA] = ",".join(filter(None, (headers.get(_BETA), _BINDING)))
    if headers:
        arguments = merged({"extra_headers": headers}, arguments)
    return {name: value for name, value in arguments.items() if name not in profile.without}


def decoder_of(wire: Wire) -> Callable[[Any], Delta | None]:
    """Return what reads the pieces of a wire's stream; of a piece that says nothing it is None."""
    return _DECODERS[wire]


_ENCODERS: Final[Mapping[Wire, Callable[[ModelRequest, Profile], dict[str, Any]]]] = {
    "completions": completions.encode,
    "responses": responses.encode,
    "anthropic": anthropic.encode,
}
_DECODERS: Final[Mapping[Wire, Callable[[Any], Delta | None]]] = {
    "completions": completions.decode,
    "responses": responses.decode,
    "anthropic": anthropic.decode,
}
