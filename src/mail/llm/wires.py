"""The codecs of the wire formats: a model's profile says which one it is spoken to in."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mail.llm import anthropic, completions, responses
from mail.llm.profiles import Profile, merged
from mail.llm.request import Delta, ModelRequest, Wire

__all__ = ["decoder_of", "encoded"]


def encoded(request: ModelRequest, profile: Profile) -> dict[str, Any]:
    """Build the arguments of LiteLLM's call in the model's wire format."""
    arguments = merged(_ENCODERS[profile.wire](request, profile), profile.arguments)
    if profile.headers:
        arguments = merged({"extra_headers": profile.headers}, arguments)
    return {name: value for name, value in arguments.items() if name not in profile.without}


def decoder_of(wire: Wire) -> Callable[[Any], Delta]:
    """Return what reads the pieces of a wire's stream."""
    return _DECODERS[wire]


_ENCODERS: Final[Mapping[Wire, Callable[[ModelRequest, Profile], dict[str, Any]]]] = {
    "completions": completions.encode,
    "responses": responses.encode,
    "anthropic": anthropic.encode,
}
_DECODERS: Final[Mapping[Wire, Callable[[Any], Delta]]] = {
    "completions": completions.decode,
    "responses": responses.decode,
    "anthropic": anthropic.decode,
}
