"""The request of ``responses.create``: which fields there are, and what each may be."""

import logging
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import to_json

from mail.core.schema import problem_text
from mail.core.tools.offer import Offer
from mail.responses_api.items import Conversation, ResponsesError, read_input

MAX_TOOLS: Final = 128
"""As many as OpenAI takes."""
MAX_METADATA: Final = 16

_JSON_OBJECT: Final = "The final answer must be one JSON object and nothing else."
_JSON_SCHEMA: Final = "The final answer must be JSON that matches this schema, and nothing else:\n"
_MODES: Final = ("none", "auto", "required")
_PLAIN: Final = "plain"
_SCHEMA: Final = "json_schema"
_TAGS: Final = frozenset({"str", "list[any]", "dict[str,any]", _PLAIN, _SCHEMA})
"""Parts of pydantic's locations that name an alternative and no field."""

_IGNORED: Final = frozenset(
    {
        *("include", "max_output_tokens", "max_tool_calls", "prompt_cache_key", "temperature"),
        *("prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "top_p"),
        *("stream_options", "top_logprobs", "truncation", "user"),
    }
)
"""Settings of a model; each agent of a swarm has its own."""

_REFUSED: Final = {
    "conversation": "continue with previous_response_id",
    "prompt": "use instructions instead",
}
"""Fields that would change what the request means."""

_log = logging.getLogger("mail.responses")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


def _few(value: object) -> object:
    """Count the entries of an object before each is looked at."""
    if isinstance(value, dict) and len(value) > MAX_METADATA:
        raise ValueError(f"must have at most {MAX_METADATA} entries")
    return value


def _plain_name(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        raise ValueError("must have 1 to 64 of a-z, A-Z, 0-9, _ and -")
    return name


Name = Annotated[str, Field(max_length=256)]
_PlainName = Annotated[str, AfterValidator(_plain_name)]


class RunLimits(_Part):
    """``kwargs`` of a request: limits of the run."""

    max_steps: Annotated[int, Field(ge=1)] | None = None
    timeout: Annotated[float, Field(gt=0, le=3600)] = 3600.0


def _of_object(parameters: dict[str, Any]) -> dict[str, Any]:
    if parameters.get("type", "object") != "object":
        raise ResponsesError("The parameters of a function must be of type 'object'.", "type")
    if not isinstance(parameters.get("properties", {}), dict):
        raise ResponsesError("Invalid value for 'properties': must be an object.", "properties")
    return parameters


class _Function(_Part):
    """One of ``tools``; the layout of chat completions is taken, too."""

    type: Literal["function"]
    name: _PlainName
    description: str | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(_of_object)] | None = None
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, tool: Any) -> Any:
        if not isinstance(tool, dict):
            return tool
        if tool.get("type") != "function":
            raise ResponsesError(
                f"Tools of type {tool.get('type')!r} are not supported; only functions are.",
                "type",
                "invalid_value",
            )
        nested = tool.get("function")
        return {**tool, **nested} if isinstance(nested, dict) else tool

    def declared(self) -> dict[str, Any]:
        """Return the function as the engine takes it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description or "",
            "parameters": {"type": "object", "properties": {}, **(self.parameters or {})},
            "strict": bool(self.strict),
        }


class _PlainFormat(_Part):
    type: Literal["text", "json_object", "json_schema"] = "text"


class _SchemaFormat(_Part):
    type: Literal["json_schema"]
    name: _PlainName
    description: str | None = None
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


def _format_of(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return _SCHEMA if kind == _SCHEMA else _PLAIN


class _Text(_Part):
    format: Annotated[
        Annotated[_PlainFormat, Tag(_PLAIN)] | Annotated[_SchemaFormat, Tag(_SCHEMA)],
        Discriminator(_format_of),
    ] = _PlainFormat()
    verbosity: Literal["low", "medium", "high"] | None = None

    @property
    def words(self) -> str:
        """The words that ask for the wanted format: a swarm cannot be forced to it."""
        if isinstance(self.format, _SchemaFormat):
            return _JSON_SCHEMA + to_json(self.format.json_schema).decode()
        return _JSON_OBJECT if self.format.type == "json_object" else ""

    @property
    def shown(self) -> dict[str, Any]:
        """The field as the response repeats it."""
        shown = {"format": self.format.model_dump(by_alias=True)}
        return shown | ({"verbosity": self.verbosity} if self.verbosity else {})


class _Fields(_Part):
    input: str | list[Any]
    instructions: str | None = None
    model: Name | None = None
    tools: Annotated[list[_Function], Field(max_length=MAX_TOOLS)] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: StrictBool = True
    previous_response_id: Name | None = None
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
        BeforeValidator(_few),
    ] = {}
    store: StrictBool = True
    stream: StrictBool = False
    background: StrictBool = False
    text: _Text = _Text()
    limits: Annotated[RunLimits, Field(alias="kwargs")] = RunLimits()


class Choice(NamedTuple):
    """The functions that ``tool_choice`` leaves, and what it forces.

    Attributes:
        offered: The declarations to offer, as the engine takes them.
        force: The tools that the agent is forced to call; see `mail.core.tools.offer.Offer.force`.
        shown: The choice as the response repeats it.
    """

    offered: list[dict[str, Any]]
    force: str | None
    shown: str | dict[str, Any]


def read_choice(declared: list[dict[str, Any]], choice: str | Mapping[str, Any]) -> Choice:
    """Read ``tool_choice``; the layout of chat completions is taken, too.

    Raises:
        ResponsesError: it names none of the functions, or is of an unknown kind.
    """
    names = {tool["name"] for tool in declared}
    if isinstance(choice, str):
        return Choice(*_by_mode(declared, choice), choice)
    kind = choice.get("type")
    if kind == "function":
        name = _known(choice, names, "tool_choice.name")
        return Choice(declared, name, {"type": "function", "name": name})
    if kind != "allowed_tools":
        raise ResponsesError(f"tool_choice of type {kind!r} is not supported.", "tool_choice.type")
    mode, listed = choice.get("mode", "auto"), choice.get("tools")
    if mode == "none":  # is said without a list
        raise ResponsesError("Invalid value for 'tool_choice.mode'.", "tool_choice.mode")
    if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
        raise ResponsesError("'tool_choice.tools' must be a list of tools.", "tool_choice.tools")
    chosen = {_known(item, names, "tool_choice.tools") for item in listed}
    allowed = [tool for tool in declared if tool["name"] in chosen]
    repeated = [{"type": "function", "name": tool["name"]} for tool in allowed]
    shown = {"type": "allowed_tools", "mode": mode, "tools": repeated}
    return Choice(*_by_mode(allowed, mode), shown)


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


def _known(tool: Mapping[str, Any], names: Set[str], param: str) -> str:
    nested = tool.get("function")
    name = nested.get("name") if isinstance(nested, Mapping) else tool.get("name")
    if isinstance(name, str) and name in names:
        return name
    raise ResponsesError(f"Tool choice {name!r} not found in 'tools' parameter.", param)


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
        choice = read_choice([tool.declared() for tool in fields.tools], fields.tool_choice)
        words = [fields.instructions or "", conversation.system, fields.text.words]
        return cls(
            conversation=conversation,
            offer=Offer(
                tools=tuple(choice.offered),
                instructions="\n\n".join(filter(None, words)),
                force=choice.force,
                parallel=fields.parallel_tool_calls,
            ),
            echo=_echo(fields, choice),
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
        where = [part for part in first["loc"] if part not in _TAGS]
        param = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in where).lstrip(".")
        refused = first.get("ctx", {}).get("error")
        if isinstance(refused, ResponsesError):
            raise ResponsesError(str(refused), f"{param}.{refused.param}", refused.code) from None
        raise ResponsesError(
            f"Invalid value for '{param}': {problem_text(first)}.", param, "invalid_type"
        ) from None


def _log_ignored(values: Mapping[str, Any]) -> None:
    known = {field.alias or name for name, field in _Fields.model_fields.items()}
    unknown = sorted(name[:64] for name in values.keys() - known - _IGNORED)
    if unknown:
        _log.warning("responses: unknown fields ignored: %s", ", ".join(map(repr, unknown[:10])))


def _echo(fields: _Fields, choice: Choice) -> dict[str, Any]:
    return {
        "model": fields.model,
        "instructions": fields.instructions,
        "tools": [tool.model_dump() for tool in fields.tools],
        "tool_choice": choice.shown,
        "parallel_tool_calls": fields.parallel_tool_calls,
        "previous_response_id": fields.previous_response_id or None,
        "metadata": fields.metadata,
        "store": fields.store,
        "background": fields.background,
        "text": fields.text.shown,
    }
