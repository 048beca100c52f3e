"""The request of ``responses.create``: which fields there are, and what each may be."""

import logging
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from mail.core.schema import problem_text
from mail.core.tools.offer import Offer
from mail.responses_api.items import Conversation, ResponsesError, read_input

MAX_TOOLS: Final = 128
"""As many as OpenAI takes."""
_VERBOSITY: Final = ("low", "medium", "high")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_JSON_OBJECT: Final = "The final answer must be one JSON object and nothing else."
_JSON_SCHEMA: Final = "The final answer must be JSON that matches this schema, and nothing else:\n"


def read_text_config(text: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Read ``text`` of a request.

    Returns:
        What asks an agent for the wanted format (a swarm cannot be forced to it), and the field as
        the response repeats it.

    Raises:
        ResponsesError: a format or a verbosity that there is not.
    """
    verbosity, wanted = text.get("verbosity"), text.get("format")
    if verbosity is not None and verbosity not in _VERBOSITY:
        raise ResponsesError(
            f"Invalid value for 'text.verbosity': {verbosity!r}; expected one "
            f"of {', '.join(_VERBOSITY)}.",
            "text.verbosity",
            "invalid_value",
        )
    wanted = {} if wanted is None else wanted
    if not isinstance(wanted, Mapping):
        raise ResponsesError("Invalid type for 'text.format': expected an object.", "text.format")
    words, shown = _format(wanted)
    return words, {"format": shown} | ({"verbosity": verbosity} if verbosity else {})


def _format(wanted: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = wanted.get("type", "text")
    if kind == "text":
        return "", {"type": "text"}
    if kind == "json_object":
        return _JSON_OBJECT, {"type": "json_object"}
    if kind == "json_schema":
        from pydantic_core import to_json

        shown = _schema_format(wanted)
        return _JSON_SCHEMA + to_json(shown["schema"]).decode(), shown
    raise ResponsesError(f"Invalid value for 'text.format.type': {kind!r}.", "text.format.type")


def _schema_format(wanted: Mapping[str, Any]) -> dict[str, Any]:
    name, schema = wanted.get("name"), wanted.get("schema")
    description, strict = wanted.get("description"), wanted.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong_format("name", "1 to 64 of a-z, A-Z, 0-9, _ and -")
    if not isinstance(schema, Mapping):
        raise _wrong_format("schema", "an object")
    if description is not None and not isinstance(description, str):
        raise _wrong_format("description", "a string")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong_format("strict", "a boolean")
    return {
        "type": "json_schema",
        "name": name,
        "description": description,
        "schema": dict(schema),
        "strict": strict,
    }


def _wrong_format(field: str, wanted: str) -> ResponsesError:
    where = f"text.format.{field}"
    return ResponsesError(f"Invalid '{where}': expected {wanted}.", where)


_MODES: Final = ("none", "auto", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a request makes of its functions.

    Attributes:
        tools: All of them, as the response repeats them.
        offered: The declarations to offer, as the engine takes them.
        force: What the agent is forced to; see `mail.core.tools.offer.Offer.force`.
        shown: The choice as the response repeats it.
    """

    tools: list[dict[str, Any]]
    offered: tuple[dict[str, Any], ...]
    force: str | None
    shown: str | dict[str, Any]


def read_choice(tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any]) -> Choice:
    """Read ``tools`` and ``tool_choice``; the layouts of chat completions are taken, too.

    Raises:
        ResponsesError: a tool that is no function, or a choice that names none of them.
    """
    shown = [_shown(tool, index) for index, tool in enumerate(tools)]
    declared = [_declared(tool) for tool in shown]
    offered, force, repeated = _chosen(declared, choice)
    return Choice(tools=shown, offered=tuple(offered), force=force, shown=repeated)


def _chosen(
    declared: list[dict[str, Any]], choice: str | Mapping[str, Any]
) -> tuple[list[dict[str, Any]], str | None, str | dict[str, Any]]:
    if isinstance(choice, str):
        return *_by_mode(declared, choice), choice
    kind = choice.get("type")
    if kind == "function":
        name = _known(_name_of(choice), _names(declared), "tool_choice.name")
        return declared, name, {"type": "function", "name": name}
    if kind == "allowed_tools":
        mode = choice.get("mode", "auto")
        if mode == "none":  # is said without a list
            raise ResponsesError("Invalid value for 'tool_choice.mode'.", "tool_choice.mode")
        allowed = _allowed(choice, declared)
        listed = [{"type": "function", "name": tool["name"]} for tool in allowed]
        repeated = {"type": "allowed_tools", "mode": mode, "tools": listed}
        return *_by_mode(allowed, mode), repeated
    raise ResponsesError(f"tool_choice of type {kind!r} is not supported.", "tool_choice.type")


def _name_of(choice: Mapping[str, Any]) -> object:
    nested = choice.get("function")
    return nested.get("name") if isinstance(nested, Mapping) else choice.get("name")


def _by_mode(tools: list[dict[str, Any]], mode: object) -> tuple[list[dict[str, Any]], str | None]:
    if mode not in _MODES:
        raise ResponsesError(
            f"Invalid value for 'tool_choice': {mode!r}; expected one of {', '.join(_MODES)}.",
            "tool_choice",
            "invalid_value",
        )
    if mode == "none":
        return [], None
    if mode == "required" and not tools:
        raise ResponsesError("tool_choice 'required' needs 'tools'.", "tool_choice")
    return tools, "required" if mode == "required" else None


def _allowed(choice: Mapping[str, Any], declared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    listed = choice.get("tools")
    if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
        raise ResponsesError("'tool_choice.tools' must be a list of tools.", "tool_choice.tools")
    known = _names(declared)
    names = {_known(_name_of(item), known, "tool_choice.tools") for item in listed}
    return [tool for tool in declared if tool["name"] in names]


def _names(declared: Sequence[Mapping[str, Any]]) -> Set[str]:
    return {tool["name"] for tool in declared}


def _known(name: object, names: Set[str], param: str) -> str:
    if isinstance(name, str) and name in names:
        return name
    raise ResponsesError(f"Tool choice {name!r} not found in 'tools' parameter.", param)


def _shown(tool: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return one function as the response repeats it."""
    where = f"tools[{index}]"
    if tool.get("type") != "function":
        raise ResponsesError(
            f"Tools of type {tool.get('type')!r} are not supported; only functions are.",
            f"{where}.type",
            "invalid_value",
        )
    nested = tool.get("function")
    body = {**tool, **nested} if isinstance(nested, Mapping) else tool
    name, description, strict = body.get("name"), body.get("description"), body.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ResponsesError(
            f"Invalid '{where}.name': 1 to 64 of a-z, A-Z, 0-9, _ and -.", f"{where}.name"
        )
    if description is not None and not isinstance(description, str):
        raise _wrong(f"{where}.description", "a string")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong(f"{where}.strict", "a boolean")
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": _parameters(body.get("parameters"), f"{where}.parameters"),
        "strict": strict,
    }


def _parameters(parameters: object, where: str) -> dict[str, Any] | None:
    if parameters is None:
        return None
    if not isinstance(parameters, Mapping):
        raise _wrong(where, "an object")
    if parameters.get("type", "object") != "object":
        raise _wrong(f"{where}.type", "'object'")
    if not isinstance(parameters.get("properties", {}), Mapping):
        raise _wrong(f"{where}.properties", "an object")
    return dict(parameters)


def _declared(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return one function as the engine takes it."""
    return {
        "type": "function",
        "name": shown["name"],
        "description": shown["description"] or "",
        "parameters": {"type": "object", "properties": {}, **(shown["parameters"] or {})},
        "strict": bool(shown["strict"]),
    }


def _wrong(where: str, wanted: str) -> ResponsesError:
    return ResponsesError(f"Invalid type for '{where}': expected {wanted}.", where)


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
    "prompt": "use instructions instead",
}
"""Fields that would change what the request means."""

_log = logging.getLogger("mail.responses")

Name = Annotated[str, Field(max_length=256)]


class RunLimits(BaseModel):
    """``kwargs`` of a request: limits of the run."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    max_steps: Annotated[int, Field(ge=1)] | None = None
    timeout: Annotated[float, Field(gt=0, le=3600)] = 3600.0


def _few(value: object) -> object:
    """Count the entries of an object before each is looked at."""
    if isinstance(value, dict) and len(value) > MAX_METADATA:
        raise ValueError(f"must have at most {MAX_METADATA} entries")
    return value


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    input: str | list[Any]
    instructions: str | None = None
    model: Name | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: StrictBool = True
    previous_response_id: Name | None = None
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
        Field(max_length=MAX_METADATA),
        BeforeValidator(_few),
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
            raise ResponsesError(
                "a background response cannot be streamed; poll it instead", "stream"
            )
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
            f"Invalid value for '{param}': {problem_text(first)}.", param, "invalid_type"
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
