"""The request of ``responses.create``: which fields there are, and what each may be."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from mail.core.tools.offer import Offer
from mail.responses_api.choice import Choice, read_choice
from mail.responses_api.formats import read_text_config
from mail.responses_api.items import Conversation, read_input
from mail.responses_api.problems import ResponsesError

__all__ = ["MAX_METADATA", "ResponseRequest", "RunLimits"]

MAX_METADATA: Final = 16

_IGNORED: Final = frozenset(
    {
        "include",
        "max_output_tokens",
        "max_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "stream_options",
        "temperature",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""Settings of a model; each agent of a swarm has its own."""

_REFUSED: Final = {
    "conversation": "continue with previous_response_id",
    "prompt": "give instructions instead",
}
"""Fields that would change what the request means."""

_log = logging.getLogger("mail.responses")

Name = Annotated[str, Field(max_length=256)]


class RunLimits(BaseModel):
    """``kwargs`` of a request: limits of the run."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    max_steps: Annotated[int, Field(ge=1)] | None = None
    timeout: Annotated[float, Field(gt=0, le=3600)] = 3600.0


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    input: str | list[Any]
    instructions: str | None = None
    model: Name | None = None
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: StrictBool = True
    previous_response_id: Name | None = None
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
        Field(max_length=MAX_METADATA),
    ] = {}
    store: StrictBool = True
    stream: StrictBool = False
    background: StrictBool = False
    text: dict[str, Any] = {}
    limits: Annotated[RunLimits, Field(alias="kwargs")] = RunLimits()

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, values: Any) -> Any:
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRequest:
    """A request that fits.

    Attributes:
        conversation: The input items in order.
        offer: The caller's tools and instructions, as the engine takes them.
        echo: The fields that the answer repeats.
    """

    conversation: Conversation
    offer: Offer
    echo: Mapping[str, Any]
    previous_response_id: str | None
    store: bool
    stream: bool
    background: bool
    limits: RunLimits

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "ResponseRequest":
        """Read a request's JSON object.

        Raises:
            ResponsesError: a field that is missing, wrong or not supported.
        """
        for name, instead in _REFUSED.items():
            if values.get(name) is not None:
                raise ResponsesError(f"'{name}' is not supported; {instead}", name)
        fields = _checked(values)
        _log_ignored(values)
        if fields.stream and fields.background:
            raise ResponsesError("a background response is not streamed; poll it", "stream")
        if fields.background and not fields.store:
            raise ResponsesError("a background response must be stored", "store")
        conversation = read_input(fields.input)
        choice = read_choice(fields.tools, fields.tool_choice)
        wording, text = read_text_config(fields.text)
        words = [fields.instructions or "", conversation.system, wording]
        return cls(
            conversation=conversation,
            offer=Offer(
                tools=choice.offered,
                instructions="\n\n".join(filter(None, words)),
                force=choice.force,
                parallel=fields.parallel_tool_calls,
            ),
            echo=_echo(fields, choice, text),
            previous_response_id=fields.previous_response_id or None,
            store=fields.store,
            stream=fields.stream,
            background=fields.background,
            limits=fields.limits,
        )


def _checked(values: Mapping[str, Any]) -> _Fields:
    if values.get("input") is None:
        raise ResponsesError(
            "Missing required parameter: 'input'.", "input", "missing_required_parameter"
        )
    try:
        return _Fields.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = [part for part in first["loc"] if part not in ("str", "list[any]", "dict[str,any]")]
        param = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in where).lstrip(".")
        raise ResponsesError(
            f"Invalid value for '{param}': {first['msg']}.", param, "invalid_type"
        ) from None


def _log_ignored(values: Mapping[str, Any]) -> None:
    known = {field.alias or name for name, field in _Fields.model_fields.items()}
    unknown = sorted(name[:64] for name in values.keys() - known - _IGNORED)
    if unknown:
        _log.warning("responses: unknown fields ignored: %s", ", ".join(map(repr, unknown[:10])))


def _echo(fields: _Fields, choice: Choice, text: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": fields.model,
        "instructions": fields.instructions,
        "tools": choice.tools,
        "tool_choice": choice.shown,
        "parallel_tool_calls": fields.parallel_tool_calls,
        "previous_response_id": fields.previous_response_id or None,
        "metadata": fields.metadata,
        "store": fields.store,
        "background": fields.background,
        "text": text,
    }
