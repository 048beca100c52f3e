"""Facts about models, as data: what each accepts and needs.

What comes later wins: LiteLLM's tables, the entries of ``models.toml`` beside this module that fit
the model, ``[models]`` in ``mail.toml``, and what an agent sets itself. Whoever builds a request
reads the profile. Docs: ``docs/models.md``.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from mail.config.toml import find_config_file, read_config
from mail.core.schema import problem_text
from mail.errors import ConfigError
from mail.llm.provider_env import asks_openai
from mail.llm.request import ToolFormat, Wire
from mail.llm.settings import EFFORTS, SAMPLING

T = TypeVar("T")

PROXY_PREFIX: Final = "litellm_proxy/"

LIKE: Final = "like"
"""The field of settings that names another model, which one is like."""

REGISTERED: Final = "mail"
"""The ``source`` of what we put ourselves into LiteLLM's tables for models that they lack."""

Forced = Literal["ok", "off", "one", "auto", "unless_thinking"]
"""The way to make a model call a tool.

``ok`` sends the choice as it is, ``off`` sends it together with what switches thinking off, ``one``
(chat completions only; ``ok`` elsewhere) offers only the tool in question and asks for any,
``auto`` never forces, and ``unless_thinking`` forces only in calls that do not ask the model to
think, and switches its thinking off there.
"""

Thinks = Literal["no", "asked", "default", "always"]
"""The condition for thinking: never, if asked to, unless told not to, or always."""

SHORTEST_ID: Final = 9
"""The fewest characters that a ``longest_id`` may be: fewer cannot tell the calls apart."""

IN_WORDS: Final = ("reasoning", "reasoning_effort")
"""The ways to tell an effort that mean what the format has for it."""
_EXTRA_BODY: Final = "extra_body"
WAYS: Final[Mapping[Wire, tuple[str, ...]]] = {
    "completions": (*IN_WORDS, "thinking_budget", "adaptive", _EXTRA_BODY),
    "responses": IN_WORDS,
    "anthropic": ("adaptive", "thinking_budget"),
}
"""The ways to tell an effort that each format has."""
_PATH: Final = re.compile(rf"{_EXTRA_BODY}:[\w-]+(\.[\w-]+)*")
NUMBERS: Final = ("max_tokens", "budget")
"""Ends of the paths whose value is a number of tokens."""
_NEEDED: Final = ("input", "instructions", "messages", "model", "tools")
"""Arguments that say what is asked of whom."""


def _way(via: str) -> str:
    named = ("none", *WAYS["completions"][:-1])
    if via in named or _PATH.fullmatch(via):
        return via
    raise ValueError(f"'{via}' is none of {', '.join(named)}, {_EXTRA_BODY}: and a dotted path")


def _dispensable(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name in _NEEDED:
            raise ValueError(f"no call can be made without '{name}'")
    return names


_Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "default"]
_Tokens = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The facts about a model. The defaults are those of one that nobody knows.

    Attributes:
        wire: The format in which it is spoken to.
        tools: Whether it can call tools at all.
        chat_tools: Whether it can call them over chat completions too, however it thinks.
        forced_any: The way to ask for "call any tool".
        forced_named: The way to ask for one certain tool.
        off_switch: Arguments that switch thinking off where it is not left to the model.
        on_switch: Arguments that a call needs in which the model thinks (chat completions only).
        omit_auto: Whether the tool choice ``auto`` is left out: some servers refuse the word (chat
            completions only).
        no_auto: Whether every call is forced, because the server reads no calls that are not.
        raw_choice: Whether the tool choice goes around LiteLLM, which would change it (chat
            completions only).
        bridge: Assistant text between a tool's result and a user's message, where the provider
            wants one; empty for none (chat completions only).
        call_id: The shape of call ids: ``any``, or ``nine`` letters and digits.
        longest_id: The most characters of a call id.
        signed_ids: Whether call ids carry a signature that must come back whole (Gemini).
        null_content: Whether the content of a message with calls may be null (chat completions
            only).
        lone_calls: Whether the text beside calls is left out, because the provider takes no
            message with both (chat completions only).
        thinks: The conditions under which it thinks.
        signed: Whether it signs its thinking (Claude).
        send_back: The calls in which its reasoning goes back to it: ``never``, those that do not
            switch ``thinking`` off, or ``always``.
        fill_reasoning: Whether calls without reasoning go back with a blank in its place (chat
            completions only).
        efforts: The efforts that it takes, the least first; none means any.
        effort_via: The parameter for it: ``none``, ``reasoning_effort`` or ``reasoning`` (either
            means what the wire has for it), ``thinking_budget``, ``adaptive`` (Claude), or
            ``extra_body:`` and a dotted path; the path of a number of tokens ends in
            ``max_tokens`` or ``budget``.
        least_budget: The fewest thinking tokens that it takes.
        largest_budget: The most, or None.
        summary: Whether a summary of its reasoning may be asked for.
        block_binding: The treatment of thinking that is bound to other messages
            (``drop_block``, with the header that it needs); empty sends nothing.
        headers: Further HTTP headers of its calls.
        cache_marks: Whether parts of a request can be marked for its cache.
        stream: Whether its replies are streamed.
        silence: The least ``timeout`` in seconds that it needs, or None.
        total: The least ``deadline`` in seconds that it needs, or None.
        store: The value of ``store``; None sends nothing.
        max_tokens: The cap of a reply for which none is asked, where there has to be one.
        arguments: Further arguments of every call.
        without: Names of arguments that are left out, because the provider refuses them; what is
            said and what may be called is no such argument.
        row: The ids of the table's entries that fit it.
    """

    wire: Wire = "completions"
    tools: bool = True
    chat_tools: bool = True
    forced_any: Forced = "ok"
    forced_named: Forced = "ok"
    off_switch: Mapping[str, Any] = field(default_factory=dict)
    on_switch: Mapping[str, Any] = field(default_factory=dict)
    omit_auto: bool = False
    no_auto: bool = False
    raw_choice: bool = False
    bridge: str = ""
    call_id: Literal["any", "nine"] = "any"
    longest_id: Annotated[int, Field(ge=SHORTEST_ID)] = 64
    signed_ids: bool = False
    null_content: bool = True
    lone_calls: bool = False
    thinks: Thinks = "no"
    signed: bool = False
    send_back: Literal["never", "thinking", "always"] = "never"
    fill_reasoning: bool = False
    efforts: tuple[_Effort, ...] = ()
    effort_via: Annotated[str, AfterValidator(_way)] = "reasoning_effort"
    summary: bool = True
    block_binding: Literal["", "drop_block"] = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    cache_marks: bool = False
    stream: bool = True
    least_budget: _Tokens = 1
    largest_budget: _Tokens | None = None
    silence: _Seconds | None = None
    total: _Seconds | None = None
    store: bool | None = None
    max_tokens: _Tokens | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    without: Annotated[tuple[str, ...], AfterValidator(_dispensable)] = ()
    row: str = ""

    def nearest(self, effort: str) -> str:
        """Return the effort nearest to one that is asked for, of those that the model takes.

        Of two equally near the one closer to ``high`` counts; only who asks for none gets none.
        """
        if not self.efforts or effort in self.efforts:
            return effort
        able: list[str] = [one for one in self.efforts if one != "none"] or [*self.efforts]
        if not set(able) <= set(EFFORTS):
            return able[0]  # a word of the provider's own
        asked, high = EFFORTS.index(effort), EFFORTS.index("high")
        places = map(EFFORTS.index, able)
        return EFFORTS[min(places, key=lambda at: (abs(at - asked), abs(at - high)))]


_SETTABLE: Final = tuple(sorted(one.name for one in fields_of(Profile) if one.name != "row"))

UNKNOWN: Final = Profile()
"""The profile of a model of which nothing is known: no thinking, any choice, an effort as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An entry of the table: which models it is about, and what is known of them.

    Attributes:
        id: Its name.
        example: The name of one of its models.
        models: All of them in words, for people.
        provider: A pattern of the whole name of LiteLLM's provider, in lower case.
        model: A pattern of a part of the model's name without provider and proxy, in lower case.
        fields: Fields of a `Profile`.
    """

    id: str
    example: str
    models: str
    provider: str = ".*"
    model: str = ""
    fields: Mapping[str, Any]

    def fits(self, provider: str, name: str) -> bool:
        """Tell whether the entry is about a model."""
        if re.fullmatch(self.provider, provider.lower()) is None:
            return False
        return re.search(self.model, name.lower()) is not None


def _read() -> Iterable[Row]:
    text = (files("mail.llm") / "models.toml").read_text(encoding="utf-8")
    own = {one.name for one in fields_of(Row)}
    for table in tomllib.loads(text)["models"]:
        found = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
        about: dict[str, Any] = {name: found.pop(name) for name in own & found.keys()}
        yield Row(**about, fields=found)


ROWS: Final = tuple(_read())
"""The table. Every entry that fits counts; a later one comes before an earlier one."""


@lru_cache(maxsize=256)
def facts_of(provider: str, name: str) -> Mapping[str, Any]:
    """Return the fields of a profile that the table knows, ``row`` with the entries' names.

    Args:
        provider: LiteLLM's name of the provider.
        name: The model's name without it.
    """
    rows = [row for row in ROWS if row.fits(provider, name)]
    fields: dict[str, Any] = {"row": ", ".join(row.id for row in rows)}
    for row in rows:
        fields |= row.fields
    return MappingProxyType(fields)


def merged(arguments: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with more of them; mappings that both have are merged."""
    both = dict(arguments)
    for key, value in more.items():
        old = both.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            both[key] = merged(old, value)
        else:
            both[key] = deepcopy(value)
    return both


@cache
def _adapter() -> TypeAdapter[Profile]:
    return TypeAdapter(Profile)


@cache
def _arguments() -> TypeAdapter[Any]:
    """Return the arguments whose types are the same everywhere; providers have more."""
    types: dict[Any, tuple[str, ...]] = {
        float: ("min_p", "repeat_penalty"),
        int: ("num_predict",),
        _Tokens: ("max_completion_tokens", "max_output_tokens", "max_tokens", "num_ctx"),
        dict[str, Any]: (_EXTRA_BODY, "metadata", "reasoning", "thinking"),
        dict[str, float]: ("logit_bias",),
        dict[str, str]: ("extra_headers",),
        bool: ("parallel_tool_calls",),
        str: ("reasoning_effort", "service_tier", "user"),
    }
    known = {name: kind for kind, names in types.items() for name in names} | dict(SAMPLING)
    shape: dict[str, Any] = {name: (kind, None) for name, kind in known.items()}
    strict = ConfigDict(extra="allow", strict=True)
    return TypeAdapter(create_model("Arguments", __config__=strict, **shape))


def checked_fields(given: object, place: str) -> dict[str, Any]:
    """Return fields of a profile that somebody sets, once they make sense.

    Args:
        given: Fields of `Profile` with their values, as TOML or JSON has them, and `LIKE`.
        place: Their name in errors.

    Raises:
        ConfigError: an unknown field, or a value of the wrong type.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place} must be a table of fields")
    fields = dict(given)
    like = fields.pop(LIKE, "x")
    if not isinstance(like, str) or not like.strip():
        raise ConfigError(f"{place} '{LIKE}' must be the name of a model")
    for name in fields:
        if name not in _SETTABLE:
            text = f"{place} has no field '{name}'; the fields are {', '.join(_SETTABLE)}"
            raise ConfigError(text)
    checked = _valid(_adapter(), fields, place)
    found = {name: getattr(checked, name) for name in fields}
    for name in ("arguments", "off_switch", "on_switch"):
        _check_arguments(found.get(name, {}), place, name)
    return found if LIKE not in given else {LIKE: like, **found}


def _valid(adapter: TypeAdapter[T], value: object, place: str, within: str = "") -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(filter(None, (within, *map(str, first["loc"]))))
        raise ConfigError(f"{place} '{where}': {problem_text(first)}") from None


def _check_arguments(arguments: Mapping[str, Any], place: str, within: str) -> None:
    """Refuse arguments that no request can have; providers have some of their own, so any name."""
    for name, value in arguments.items():
        where = f"{place} '{within}.{name}'"
        if name in (*_NEEDED, "stream"):
            raise ConfigError(f"{where}: MAIL sets this argument of every call itself")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise ConfigError(f"{where}: JSON has no such value") from None
    _valid(_arguments(), arguments, place, within)


def configured_models() -> dict[str, dict[str, Any]]:
    """Return the fields that the ``[models."NAME"]`` tables of ``mail.toml`` set, by model.

    Raises:
        ConfigError: the file cannot be read, or a table sets what no profile has.
    """
    path = find_config_file()
    tables = read_config(path).get("models", {})
    if not isinstance(tables, dict):
        raise ConfigError(f"{path}: 'models' must be a table")
    return {
        name: checked_fields(table, f'{path}: [models."{name}"]') for name, table in tables.items()
    }


def overrides_for(
    model: str, own: Mapping[str, Any], *, also: Iterable[str] = ()
) -> dict[str, Any]:
    """Return what the operator sets for a model, and before it what its agent sets.

    Args:
        model: Its name; a proxy's prefix may be missing in the operator's table.
        own: The settings of the agent.
        also: Further names of the model; the first that has a table counts.

    Raises:
        ConfigError: see `configured_models`.
    """
    tables = configured_models()
    names = (model, model.removeprefix(PROXY_PREFIX), *also)
    return {**next((tables[name] for name in names if tables.get(name)), {}), **own}


def profile_of(
    litellm: Any,
    model: str,
    tool_format: ToolFormat,
    overrides: Mapping[str, Any] = MappingProxyType({}),
    *,
    address: str = "",
) -> Profile:
    """Find out what a model accepts and needs.

    Args:
        litellm: The library, whose tables fill in what ours leaves open.
        model: A model's name; what a proxy stands for decides, not the proxy.
        tool_format: The agent's tool format.
        overrides: Fields of the profile that come before all tables; ``like`` names another model,
            whose profile it is then.
        address: The address of the agent's own endpoint, if it has one.
    """
    given = dict(overrides)
    known = _Known.look_up(litellm, model, str(given.pop(LIKE, "")), address)
    fields = {**facts_of(known.provider, known.name), **given}
    fields = {**known.fields(fields, tool_format), **fields}
    if fields["wire"] == "responses" and fields["effort_via"] in _OF_CHAT:
        fields["effort_via"] = given.get("effort_via", "reasoning")
    return Profile(**fields)


_OF_CHAT: Final = frozenset({"adaptive", "reasoning_effort", "thinking_budget"})
"""Ways to tell an effort that the Responses format does not have."""
_OPENAI: Final = "openai"
_OWN_NAMES: Final = re.compile(r"(ft:)?(gpt-\d|o\d|codex|computer-use)")
_UNLISTED_CLAUDE: Final = 64_000
"""The longest reply of a Claude model that LiteLLM does not know, and would cut at 4,096 tokens."""
_BLOCK_HOSTS: Final = frozenset({"anthropic", "azure_ai", "vertex_ai"})
"""The providers whose Claude models LiteLLM speaks to in Anthropic's message blocks."""
_MARKED_HOSTS: Final = frozenset({*_BLOCK_HOSTS, "bedrock"})
"""The providers at which Claude's requests can be marked for the cache."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The facts that LiteLLM's tables have of a model.

    ``model`` is its name without a proxy's prefix, ``name`` also without the provider's.
    """

    litellm: Any
    model: str
    proxied: bool
    name: str
    provider: str
    address: str = ""

    @classmethod
    def look_up(cls, litellm: Any, model: str, like: str = "", address: str = "") -> "_Known":
        """Find a model, or the one that it is like."""
        inner = (like or model).removeprefix(PROXY_PREFIX)
        proxied = model.startswith(PROXY_PREFIX)
        found = _asked(litellm.get_llm_provider, model=inner)
        name, provider = (str(found[0]), str(found[1])) if found else (inner, "")
        if provider == _OPENAI and not proxied and _is_elsewhere(litellm, name, address):
            provider = "openai-compatible"
        return cls(litellm, inner, proxied, name, provider, address)

    @property
    def is_claude(self) -> bool:
        return self.provider == "anthropic" or "claude" in self.name.lower()

    def fields(self, set_already: Mapping[str, Any], tool_format: ToolFormat) -> dict[str, Any]:
        """Return the fields of a profile, as far as the tables and those set already tell."""
        chats = bool(set_already.get("chat_tools", self._table.get("mode") != "responses"))
        wire: Wire = set_already.get("wire") or self.wire(tool_format, chat_tools=chats)
        asks = "thinking" in (
            _asked(self.litellm.get_supported_openai_params, model=self.model) or ()
        )
        able = asks
        if wire == "responses":
            able = bool(_asked(self.litellm.supports_reasoning, model=self.model))
        always = self._table.get("thinking_always_on") is True
        thinks = set_already.get("thinks") or ("always" if always else "asked" if able else "no")
        fields: dict[str, Any] = {
            "wire": wire,
            "thinks": thinks,
            "effort_via": "reasoning_effort" if wire == "completions" else "none",
            "efforts": self._efforts(),
            "signed": self.is_claude,
            "cache_marks": self.is_claude
            and self.provider in _MARKED_HOSTS
            and bool(_asked(self.litellm.utils.supports_prompt_caching, model=self.model)),
            "store": False if self.provider == _OPENAI else None,
            "stream": self._table.get("supports_native_streaming") is not False,
        }
        if thinks == "no":
            return fields
        if wire == "responses":
            fields |= {"effort_via": "reasoning", "send_back": "always"}
        elif asks:
            adapts = self._able("supports_adaptive_thinking")
            budgets = not self.is_claude or not adapts or self._able("supports_legacy_thinking")
            via = "thinking_budget" if budgets else "adaptive"
            fields |= {"effort_via": via, "send_back": "thinking"}
            fields |= {"forced_any": "unless_thinking", "forced_named": "off"}
        if wire == "anthropic" and not self._table.get("max_output_tokens"):
            fields["max_tokens"] = _UNLISTED_CLAUDE
        if self._table.get("supports_forced_tool_use") is False:
            fields |= {"forced_any": "auto", "forced_named": "auto"}
        return fields

    def wire(self, tool_format: ToolFormat, *, chat_tools: bool = True) -> Wire:
        """Return the format of the model's provider that suits an agent's tool format.

        Claude models are spoken to in Anthropic's blocks, whatever the tool format is;
        ``responses`` applies to providers that have that API, and to a proxy, which has it for
        every model; all others speak chat completions.
        """
        if self.provider in _BLOCK_HOSTS and self.is_claude:
            return "anthropic"
        imitated = self.provider == _OPENAI and not self.proxied and not asks_openai(self.address)
        wanted = tool_format == "responses" or not (chat_tools or imitated)
        if wanted and self.proxied:
            return "responses"
        host = _asked(lambda: self.litellm.LlmProviders(self.provider)) if wanted else None
        asked = self.litellm.utils.ProviderConfigManager.get_provider_responses_api_config
        has_responses = host is not None and _asked(asked, model=self.name, provider=host)
        return "responses" if has_responses else "completions"

    @property
    def _table(self) -> Mapping[str, Any]:
        """The model's entry in LiteLLM's own table."""
        table: Mapping[str, Mapping[str, Any]] = self.litellm.model_cost
        return table.get(f"{self.provider}/{self.name}") or table.get(self.name) or {}

    def _efforts(self) -> tuple[str, ...]:
        """Return the efforts of which the table says that the model takes them, if it says so."""
        listed = self._table.get("reasoning_effort_levels") or ()
        told = {name: self._table.get(f"supports_{name}_reasoning_effort") for name in EFFORTS}
        if listed or set(told.values()) == {None}:
            return tuple(sorted(listed, key=EFFORTS.index))
        usual = ("low", "medium", "high")
        return tuple(
            name for name, able in told.items() if able or (able is None and name in usual)
        )

    def _able(self, ability: str) -> bool:
        asked = self.litellm.AnthropicConfig.supports_model_capability
        given = {"key": ability, "custom_llm_provider": self.provider}
        return bool(_asked(asked, model=self.name, **given))


def _is_elsewhere(litellm: Any, name: str, address: str) -> bool:
    """Tell whether a model is none of OpenAI's, but of a server that speaks like OpenAI's."""
    if asks_openai(address):
        return False
    entries = (litellm.model_cost.get(one) for one in (name, f"{_OPENAI}/{name}"))
    known = any(one is not None and one.get("source") != REGISTERED for one in entries)
    return not known and _OWN_NAMES.match(name) is None


def _asked(question: Callable[..., Any], **arguments: Any) -> Any:
    """Ask the library about a model that it may not know."""
    try:
        return question(**arguments)
    except Exception:  # noqa: BLE001 - it knows no such model: the call itself says so
        return None
