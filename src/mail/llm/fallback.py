"""Changes to a request that a provider refused.

A refusal that names something we can change alters the model's profile, and the changed request
goes out at once. What was changed is remembered for the address, the key and the model for an hour,
so that a process is refused once in that time, but only if the model took the changed request:
errors quote what they are about, which others may have written.
"""

import hashlib
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from threading import Lock
from typing import Any, Final, NamedTuple

from mail.errors import ModelError
from mail.llm.failures import Named, RefusedCall
from mail.llm.profiles import SHORTEST_ID, Profile
from mail.llm.request import CallPiece, Delta
from mail.llm.settings import EFFORTS

_log = logging.getLogger(__name__)

_REFUSALS: Final = frozenset({400, 404, 422, 501})
_MOST_CHANGES: Final = 6
_MOST_PLACES: Final = 1024
REMEMBERED: Final = 3600.0
"""Seconds for which a change is remembered: a provider that is mended is asked as usual again."""


class Place(NamedTuple):
    """The address, key (as a hash), model and format of calls: where something was learnt."""

    address: str
    key: str
    model: str
    tool_format: str

    @classmethod
    def of(cls, address: str, key: str, model: str, tool_format: str) -> "Place":
        """Return the place of calls with a key."""
        digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]
        return cls(address, digest, model, tool_format)


class Changed(NamedTuple):
    """A change of a profile after a refusal.

    ``refused`` tells people what the model refused, ``fields`` are those of the profile. What is
    not ``lasting`` holds for the call under way alone: another task's history may be fine.
    """

    refused: str
    fields: Mapping[str, Any]
    lasting: bool = True

    @property
    def settings(self) -> str:
        """The fields as ``mail.toml`` would have them."""
        return ", ".join(f"{name} = {_toml(value)}" for name, value in self.fields.items())

    def remedy(self, model: str) -> str:
        """Return what to set so that not even a model's first call is refused."""
        return f'set [models."{model}"] {self.settings} in mail.toml'


class Adaptations:
    """The changes that models needed, for all agents of a process. Threads may share it.

    Args:
        clock: Tells the time in seconds; what was learnt is forgotten after `REMEMBERED`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[Place, dict[str, tuple[Changed, float]]] = OrderedDict()
        self._lock = Lock()

    def __bool__(self) -> bool:
        return bool(self._known)

    def changes(self, model: str) -> tuple[Changed, ...]:
        """Return what was changed for a model, wherever it is."""
        with self._lock:
            places = [place for place in self._known if place.model == model]
            return tuple(changed for place in places for changed in self._at(place))

    def applied(self, place: Place, profile: Profile) -> Profile:
        """Return a profile with what was learnt of the model since."""
        with self._lock:
            fields = {k: v for changed in self._at(place) for k, v in changed.fields.items()}
        return replace(profile, **fields) if fields else profile

    def learn(self, place: Place, changed: Changed) -> bool:
        """Remember a change; tell whether it is new."""
        with self._lock:
            new = changed not in self._at(place)
            known = self._known.setdefault(place, {})
            known.pop(changed.settings, None)  # the latest comes last, and wins
            known[changed.settings] = changed, self._clock() + REMEMBERED
            self._known.move_to_end(place)
            while len(self._known) > _MOST_PLACES:
                self._known.popitem(last=False)
        return new

    def _at(self, place: Place) -> list[Changed]:
        """Return what is known of a place, and forget what is too old; for holders of the lock."""
        known, now = self._known.get(place, {}), self._clock()
        for name in [name for name, (_, until) in known.items() if until <= now]:
            del known[name]
        if not known:
            self._known.pop(place, None)
        return [changed for changed, _ in known.values()]


@cache
def process_adaptations() -> Adaptations:
    """Return what this process has learnt; the models of all its agents share it."""
    return Adaptations()


class Tries:
    """The tries of one call: the changes made so far, and the profile of the last try.

    Args:
        adaptations: The lessons of earlier refusals; those of this call are added.
        place: Returns where the call goes; only asked if anything is or was learnt.
    """

    def __init__(self, adaptations: Adaptations, place: Callable[[], Place]) -> None:
        self._adaptations = adaptations
        self._place = place
        self._base: Profile | None = None
        self._used: Profile | None = None
        self._fields: dict[str, Any] = {}
        self._changes = 0
        self._made: list[tuple[Changed, RefusedCall]] = []

    @property
    def base(self) -> Profile | None:
        """The model's profile from tables and settings, once the first try has found it."""
        return self._base

    @property
    def changed(self) -> bool:
        """Whether the next try differs from the first."""
        return self._changes > 0

    def begin(self, base: Profile) -> Profile:
        """Return the profile of the next try, given the one from tables and settings."""
        self._base, self._used = base, self._now(base)
        return self._used

    def _now(self, base: Profile) -> Profile:
        known = self._adaptations.applied(self._place(), base) if self._adaptations else base
        return replace(known, **self._fields) if self._fields else known

    def another_way(self, error: ModelError) -> bool:
        """Change what is sent after a refusal; tell whether there is anything left to change."""
        base, used = self._base, self._used
        if not isinstance(error, RefusedCall) or error.status not in _REFUSALS:
            return False
        if base is None or used is None or self._changes == _MOST_CHANGES:
            return False
        if self._now(base) == used:  # else another call has learnt something meanwhile
            changed = _change(used, error.named)
            if changed is None or any(changed == made for made, _ in self._made):
                return False
            self._fields |= changed.fields
            self._made.append((changed, error))
        self._changes += 1
        return True

    def keep(self) -> None:
        """Remember what was changed: the model took the last try."""
        made, self._made = self._made, []
        for changed, error in made:
            place = self._place()
            if changed.lasting and not self._adaptations.learn(place, changed):
                continue
            known = {"model": place.model, "reason": str(error)}
            if changed.lasting:
                known["remedy"] = changed.remedy(place.model)
            when = "from now on" if changed.lasting else "this time"
            told = "a model refused %s; it is asked another way %s"
            _log.warning(told, changed.refused, when, extra=known)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items())
        return f"{{{pairs}}}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


_Fields = Mapping[str, Any] | None
_Fixed = Mapping[str, Any]


class _Rule(NamedTuple):
    """A change to make after a refusal whose text a pattern finds.

    ``fields`` are what to change, or return it, or None where that would change nothing.
    """

    pattern: str
    refused: str
    fields: _Fixed | Callable[[Profile, re.Match[str]], _Fields]
    lasting: bool = True


def _change(profile: Profile, named: Named) -> Changed | None:
    """Return the first change that a refusal calls for and that changes anything."""
    text = f"{named.param} | {named.code} | {named.text}"
    inert = frozenset[str]() if profile.wire == "completions" else _CHAT_ONLY
    for rule in _RULES:
        found = re.search(rule.pattern, text, re.IGNORECASE | re.DOTALL)
        if found is None:
            continue
        fields = rule.fields(profile, found) if callable(rule.fields) else rule.fields
        fields = {name: value for name, value in (fields or {}).items() if name not in inert}
        if any(getattr(profile, name) != value for name, value in fields.items()):
            return Changed(rule.refused, fields, rule.lasting)
    return None


_CHAT_ONLY: Final = frozenset(
    {
        "bridge",
        "fill_reasoning",
        "lone_calls",
        "null_content",
        "omit_auto",
        "on_switch",
        "raw_choice",
    }
)
"""Fields that change nothing in the other formats: learnt there, they cost a refusal in vain."""
_TO_AUTO: Final = {"forced_any": "auto", "forced_named": "auto"}


def _thinking_off(profile: Profile, found: re.Match[str]) -> _Fields:
    """Force calls without thinking, where that can be switched off or is only asked for."""
    if profile.off_switch:
        return {"forced_any": "off", "forced_named": "off"}
    if profile.thinks == "asked":
        return {"forced_any": "unless_thinking", "forced_named": "off"}
    return None


def _one_tool(profile: Profile, found: re.Match[str]) -> _Fields:
    """Offer only the tool that must be called, where a model may be made to call any."""
    if profile.wire != "completions":
        return None
    return {"forced_named": "one"} if profile.forced_named in ("ok", "off") else None


def _never_off(profile: Profile, found: re.Match[str]) -> _Fields:
    """Leave thinking on: the model cannot do without."""
    fields: dict[str, Any] = {"off_switch": {}, "thinks": "always"}
    fields |= {
        name: "auto"
        for name in ("forced_any", "forced_named")
        if getattr(profile, name) in ("off", "unless_thinking")
    }
    return fields


def _supported_efforts(profile: Profile, found: re.Match[str]) -> _Fields:
    """Take the efforts that a refusal lists, as the provider spells them."""
    listed = re.findall(r"[\"'`]([a-z]{2,20})[\"'`]", found["listed"])
    if not listed or not set(listed) <= _EFFORT_WORDS:
        return None
    return {"efforts": tuple(sorted(set(listed), key=_EFFORT_ORDER.index))}


def _no_effort(profile: Profile, found: re.Match[str]) -> _Fields:
    fields: dict[str, Any] = {"effort_via": "none"}
    if profile.effort_via in ("adaptive", "thinking_budget") and profile.thinks == "asked":
        fields["thinks"] = "no"
    return fields


def _over_responses(profile: Profile, found: re.Match[str]) -> _Fields:
    """Speak the format that the provider names; LiteLLM has a route for it at its providers."""
    if profile.wire != "completions":
        return None
    return {
        "wire": "responses",
        "thinks": "default" if profile.thinks == "no" else profile.thinks,
        "effort_via": "reasoning",
        "send_back": "always",
    }


def _shorter_ids(profile: Profile, found: re.Match[str]) -> _Fields:
    longest = int(found["longest"])
    return {"longest_id": longest} if SHORTEST_ID <= longest < profile.longest_id else None


def _by_level(profile: Profile, found: re.Match[str]) -> _Fields:
    """Tell the effort in words where a number of tokens is refused."""
    return {"effort_via": "reasoning_effort"} if profile.effort_via == "thinking_budget" else None


def _other_thinking(profile: Profile, found: re.Match[str]) -> _Fields:
    """Change from a budget to an effort that the model adapts to, or back."""
    refused = found["kind"].lower()
    if refused == "disabled":
        return _never_off(profile, found)
    other = {
        "enabled": ("thinking_budget", "adaptive"),
        "adaptive": ("adaptive", "thinking_budget"),
    }
    mine, instead = other[refused]
    return {"effort_via": instead} if profile.effort_via == mine else None


_LEFT_OUT: Final[Mapping[str, Mapping[str, Any]]] = {
    "block_binding": {"block_binding": ""},
    "cache_control": {"cache_marks": False},
    "enable_thinking": {"off_switch": {}, "on_switch": {}},
    "reasoning_content": {"send_back": "never"},
    "summary": {"summary": False},
    "thinking_blocks": {"send_back": "never"},
}
"""The changes for additions of ours that a provider does not know."""
_EFFORT_ORDER: Final = (*EFFORTS, "default")
_EFFORT_WORDS: Final = frozenset(_EFFORT_ORDER)
_OPTIONAL: Final = frozenset(
    {"include", "parallel_tool_calls", "store", "stream_options", "tool_stream", "verbosity"}
)
"""Arguments that can be left out without changing what is asked."""
_EFFORT_NAMES: Final = frozenset({"effort", "reasoning", "reasoning_effort", "thinking"})


def _without(profile: Profile, found: re.Match[str]) -> _Fields:
    """Leave out what the provider does not know."""
    path = next(filter(None, found.groups()))
    for name in reversed(re.findall(r"[a-z_]+", path.lower())):
        if name in _LEFT_OUT:
            return _LEFT_OUT[name]
        if name == "tool_choice":
            if profile.wire == "completions":
                return _TO_AUTO | {"omit_auto": True}
            return _TO_AUTO | {"without": (*profile.without, name)}
        if name in _OPTIONAL:
            return {"without": tuple(dict.fromkeys((*profile.without, name)))}
        if name in _EFFORT_NAMES:
            return _by_level(profile, found) or _no_effort(profile, found)
    return None


def _bound(profile: Profile, found: re.Match[str]) -> _Fields:
    """Have thoughts dropped that are bound to what was said before and has changed since."""
    if profile.effort_via != "adaptive" or profile.block_binding:
        return None
    return {"block_binding": "drop_block"}


_NO: Final = r"(\bnot\b|n't\b|incompatible|must be|\bonly\b|unsupported|invalid|\bset to\b)"
_CHOICE: Final = r"(tool[_ ]?choice|forced tool use)"
_THINKING: Final = r"\b(thinking|reasoning)\b"
_ARGUMENT: Final = (
    r"(?<![\w.\[\]])([\w.\[\]]+): extra inputs are not permitted"
    r"|(?:unsupported|unknown|unrecognized|unexpected)(?: request)? (?:argument|parameter|field)"
    r"(?:\(s\)|s)?(?: supplied)?\W{1,4}([\w.\[\]]+)"
    r"|not support (?:the )?parameters?:? \W{0,3}([\w.]+)"
    r"|property '([\w.]+)' is (?:unsupported|not allowed)"
    r"|properties are not allowed \('([\w.]+)'"
)

_RULES: Final = (
    _Rule(
        r"reasoning\.summary|reasoning summar",
        "a summary of its reasoning",
        {"summary": False},
    ),
    _Rule(
        r"^stream \||verified to stream|'stream' does not support|streaming is not supported"
        r"|tool use in streaming mode",
        "to stream its reply",
        {"stream": False},
    ),
    _Rule(r"\b3280\b|length of 9\b", "the ids of calls", {"call_id": "nine"}),
    _Rule(
        r"(?:call_id|\bid)\b.{0,80}too long.{0,40}maximum length (?P<longest>\d{1,4})\b",
        "the length of the ids of calls",
        _shorter_ids,
    ),
    _Rule(
        r"after role 'tool'|conversation blocks and tool result blocks",
        "a user's message behind a tool's result",
        {"bridge": "(noted)"},
    ),
    _Rule(
        r"conversation blocks and tool use blocks",
        "calls with text beside them",
        {"lone_calls": True},
    ),
    _Rule(
        r"reasoning_content\W.{0,80}(must be passed back|is missing)",
        "a history without its reasoning",
        {"send_back": "always", "fill_reasoning": True},
    ),
    _Rule(r"missing field `content`", "a call without text", {"null_content": False}),
    _Rule(
        r"^include(?:\[\d+\])? \||encrypted content is not supported",
        "its encrypted reasoning",
        lambda profile, found: {"without": (*profile.without, "include")},
    ),
    _Rule(r"bound to a different conversation", "its earlier thinking", _bound),
    _Rule(
        r"bound to a different conversation|invalid `signature`|encrypted[_ ]content|"
        r"thought.?signature|blocks in the latest assistant message cannot be modified",
        "its earlier thinking",
        {"send_back": "never", "signed_ids": False},
        lasting=False,
    ),
    _Rule(
        r"[\"'`]auto[\"'`] tool[_ ]choice requires",
        "calls that are not forced",  # the server reads no calls that it did not force
        {"forced_any": "ok", "forced_named": "ok", "no_auto": True},
    ),
    _Rule(
        r"thinking\.type\.(?P<kind>enabled|disabled|adaptive)\W{1,3}is not supported",
        "how it is asked to think",
        _other_thinking,
    ),
    _Rule(
        r"only type=enabled|only works in thinking mode|must be enabled|reasoning is mandatory",
        "not to think",
        _never_off,
    ),
    _Rule(
        rf"{_CHOICE}.{{0,200}}{_THINKING}|{_THINKING}.{{0,200}}{_CHOICE}",
        "to be forced to call a tool while it thinks",
        _thinking_off,
    ),
    _Rule(
        r"no endpoints found that support .{0,40}tool_choice",
        "to be forced to call a tool",  # OpenRouter has no host for the model that takes a choice
        _TO_AUTO | {"omit_auto": True},
    ),
    _Rule(
        r"tool_choice 'specified'|toolChoice\.tool\b",
        "to be forced to call a certain tool",
        _one_tool,
    ),
    _Rule(
        rf"{_CHOICE}.{{0,200}}{_NO}|{_NO}.{{0,200}}{_CHOICE}",
        "to be forced to call a tool",
        _TO_AUTO,
    ),
    _Rule(r"/v1/responses\b", "tools over chat completions", _over_responses),
    _Rule(
        r"(?:supported values are|(?:effort|think|reason).{0,200}?must be(?: one of)?)"
        r"(?P<listed>[^.;]{1,200})",
        "the effort",
        _supported_efforts,
    ),
    _Rule(
        r"reasoning[._ ]?effort|not support thinking|think(ing)? (value|level)\b",
        "an effort",
        _no_effort,
    ),
    _Rule(
        r"thinking[_. ]budget|budget_tokens|budget \d+ is invalid",
        "the thinking budget",
        _by_level,
    ),
    _Rule(_ARGUMENT, "an argument that it does not know", _without),
)
"""The changes that refusals ask for. The first that applies counts: narrow ones come first."""


_UNACCEPTED: Final = "tool_use_failed"
_NO_CALL: Final = "did not call"
_NOT_WANTED: Final = "choice is none"
_TAGGED: Final = re.compile(r"<function[=/]\s*([\w.-]{1,128})\s*[=>(,]?\s*")
_MOST_CALLS: Final = 16


def written_reply(error: ModelError) -> Delta | None:
    """Return what the model wrote, if that is why the provider failed the call.

    Groq checks what a model wrote: text in place of a call that was forced, or a call that it
    cannot read, is refused with the model's words in the error. The first is the answer, and the
    second goes to the agent's repair turn; the same request would only be paid again.
    """
    named = error.named if isinstance(error, RefusedCall) else Named()
    if _UNACCEPTED not in (named.code, named.kind) or _NOT_WANTED in named.text.lower():
        return None
    _log.info("a reply was refused for what the model wrote", extra={"reason": str(error)})
    text = named.generation or ""
    if _NO_CALL in named.text.lower() or not text.strip():
        return Delta(text=text, finish="stop")
    calls = list(_calls_in(text)) or [("", text)]
    pieces = (CallPiece(at, name=name, arguments=given) for at, (name, given) in enumerate(calls))
    return Delta(calls=tuple(pieces), finish="tool_calls")


def _calls_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and arguments of calls in the forms in which open models write them."""
    tags = list(_TAGGED.finditer(text))[:_MOST_CALLS]
    for tag in tags:
        value, end = _json_at(text, tag.end())
        yield tag[1], text[tag.end() : end] if isinstance(value, dict) else text[tag.end() :]
    if tags:
        return
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    value, _ = _json_at(text, start) if start >= 0 else (None, 0)
    for one in (value if isinstance(value, list) else [value])[:_MOST_CALLS]:
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            given = one.get("arguments", one.get("parameters", {}))
            yield one["name"], given if isinstance(given, str) else json.dumps(given)


def _json_at(text: str, start: int) -> tuple[Any, int]:
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
