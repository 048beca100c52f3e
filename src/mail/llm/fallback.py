"""What is made of a provider's refusal: another try in the provider's own way, or a reply.

A refusal that names something we can change alters the model's profile. That is no retry: the
request was not one that could heal, and the changed one goes out at once. What was changed is
remembered for the address, the key and the model for an hour, so that a process is refused once in
that time, but only if the model took the changed request: errors quote what they are about, which
others may have written.
"""

import hashlib
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from threading import Lock
from typing import Any, Final, NamedTuple

from mail.llm.failures import Named, RefusedCall
from mail.llm.profiles import SHORTEST_ID, Profile
from mail.llm.request import CallPiece, Delta
from mail.llm.settings import EFFORTS

_log = logging.getLogger(__name__)

_REFUSALS: Final = frozenset({400, 404, 422, 501})
_MOST_TRIES: Final = 6
_MOST_PLACES: Final = 1024
REMEMBERED: Final = 3600.0
"""Seconds for which a change is remembered: a provider that is mended is asked as usual again."""


class Place(NamedTuple):
    """Where something was learnt; the key is only there as a hash."""

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
    """What a refusal changes.

    ``kind`` names the change, ``fields`` are those of the profile, ``refused`` tells people what
    the model refused. What is not ``lasting`` holds for the call under way alone: another task's
    history may be fine.
    """

    kind: str
    fields: Mapping[str, Any]
    refused: str
    lasting: bool = True

    def remedy(self, model: str) -> str | None:
        """Return what to set so that not even a model's first call is refused, if that can be."""
        if not self.lasting:
            return None
        settings = ", ".join(f"{name} = {_toml(value)}" for name, value in self.fields.items())
        return f'set [models."{model}"] {settings} in mail.toml'


@dataclass(slots=True)
class Tries:
    """What one call has gone through: its changes, and the profile of its last try.

    ``base`` is the model's profile from tables and settings, ``fields`` are the changes of this
    call, and ``made`` those, each with the refusal, of which nobody knows yet whether they help.
    """

    kinds: set[str] = field(default_factory=set)
    fields: dict[str, Any] = field(default_factory=dict)
    made: list[tuple[Changed, RefusedCall]] = field(default_factory=list)
    base: Profile | None = None
    used: Profile | None = None


class Adaptations:
    """What models turned out to accept, for all agents of a process. Threads may share it.

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
            return tuple(changed for place in places for changed in self._at(place).values())

    def _at(self, place: Place) -> dict[str, Changed]:
        """Return what is known of a place, and forget what is too old; for holders of the lock."""
        known = self._known.get(place)
        if known is None:
            return {}
        now = self._clock()
        for kind in [kind for kind, (_, until) in known.items() if until <= now]:
            del known[kind]
        if not known:
            del self._known[place]
        return {kind: changed for kind, (changed, _) in known.items()}

    def applied(self, place: Place, profile: Profile) -> Profile:
        """Return a profile with what was learnt of the model since."""
        with self._lock:
            known = self._at(place)
            if not known:
                return profile
            self._known.move_to_end(place)
            fields: dict[str, Any] = {}
            for changed in known.values():
                fields |= changed.fields if changed.lasting else {}
        return replace(profile, **fields)

    def begin(self, place: Callable[[], Place], tries: Tries, base: Profile) -> Profile:
        """Return the profile of a call's next try.

        Args:
            place: Returns where the call goes; only asked if anything was learnt at all.
            tries: What the call has gone through; takes the profile.
            base: The model's profile from tables and settings.
        """
        now = self.applied(place(), base) if self else base
        tries.base, tries.used = base, replace(now, **tries.fields) if tries.fields else now
        return tries.used

    def another_way(self, place: Place, tries: Tries, error: RefusedCall) -> bool:
        """Change what is sent after a refusal; tell whether there is anything left to change.

        Args:
            place: Where the call went.
            tries: What it has gone through; takes the change.
            error: The refusal of the last try.
        """
        base, used = tries.base, tries.used
        if base is None or used is None or error.status not in _REFUSALS:
            return False
        if len(tries.kinds) == _MOST_TRIES:
            return False
        if replace(self.applied(place, base), **tries.fields) != used:
            tries.kinds.add(f"learnt by another call {len(tries.kinds)}")
            return True
        changed = _changed(used, error.named, tries.kinds | self._lasting(place))
        if changed is None:
            return False
        tries.kinds.add(changed.kind)
        tries.fields |= changed.fields
        tries.made.append((changed, error))
        return True

    def keep(self, place: Place, tries: Tries) -> None:
        """Remember what was changed in a call that the model took."""
        made, tries.made = tries.made, []
        for changed, error in made:
            if self._learn(place, changed):
                _tell(place, changed, error)

    def _lasting(self, place: Place) -> set[str]:
        with self._lock:
            known = self._at(place)
            return {kind for kind, changed in known.items() if changed.lasting}

    def _learn(self, place: Place, changed: Changed) -> bool:
        """Remember a change; tell whether it is new."""
        with self._lock:
            new = changed.kind not in self._at(place)
            known = self._known.setdefault(place, {})
            known[changed.kind] = changed, self._clock() + REMEMBERED
            self._known.move_to_end(place)
            while len(self._known) > _MOST_PLACES:
                self._known.popitem(last=False)
        return new


def _tell(place: Place, changed: Changed, error: RefusedCall) -> None:
    """Log a change, with what to set so that not even the first call is refused."""
    known = {"model": place.model, "reason": str(error)}
    if remedy := changed.remedy(place.model):
        known["remedy"] = remedy
    when = "from now on" if changed.lasting else "this time"
    _log.warning(
        "a model refused %s; it is asked another way %s", changed.refused, when, extra=known
    )


@cache
def process_adaptations() -> Adaptations:
    """Return what this process has learnt; the models of all its agents share it."""
    return Adaptations()


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items())
        return f"{{{pairs}}}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


_Fields = Mapping[str, Any] | None


class _Rule(NamedTuple):
    """What to change after a refusal whose text a pattern finds.

    ``fields`` returns what to change, or None where that would change nothing.
    """

    kind: str
    pattern: str
    fields: Callable[[Profile, Named, re.Match[str]], _Fields]
    refused: str
    lasting: bool = True


def _changed(profile: Profile, named: Named, done: set[str]) -> Changed | None:
    """Return the first change that a refusal calls for and that was not tried yet."""
    text = f"{named.param} | {named.code} | {named.text}"
    inert = frozenset[str]() if profile.wire == "completions" else _CHAT_ONLY
    for rule in _RULES:
        found = re.search(rule.pattern, text, re.IGNORECASE | re.DOTALL)
        if found is None:
            continue
        fields = rule.fields(profile, named, found) or {}
        fields = {name: value for name, value in fields.items() if name not in inert}
        kind = f"{rule.kind} {found[0].lower()}" if rule.kind == _ARGUMENTS else rule.kind
        news = any(getattr(profile, name) != value for name, value in fields.items())
        if news and kind not in done:
            return Changed(kind, fields, rule.refused, rule.lasting)
    return None


def _set(**fields: Any) -> Callable[[Profile, Named, re.Match[str]], _Fields]:
    return lambda profile, named, found: fields


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


def _thinking_off(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Force calls without thinking, where that can be switched off or is only asked for."""
    if profile.off_switch:
        return {"forced_any": "off", "forced_named": "off"}
    if profile.thinks == "asked":
        return {"forced_any": "unless_thinking", "forced_named": "off"}
    return None


def _one_tool(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Offer only the tool that must be called, where a model may be made to call any."""
    if profile.wire != "completions":
        return None
    return {"forced_named": "one"} if profile.forced_named in ("ok", "off") else None


def _never_off(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Leave thinking on: the model cannot do without."""
    fields: dict[str, Any] = {"off_switch": {}, "thinks": "always"}
    fields |= {
        name: "auto"
        for name in ("forced_any", "forced_named")
        if getattr(profile, name) in ("off", "unless_thinking")
    }
    return fields


def _supported_efforts(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Take the efforts that a refusal lists, as the provider spells them."""
    listed = re.findall(r"[\"'`]([a-z]{2,20})[\"'`]", found["listed"])
    if not listed or not set(listed) <= _EFFORT_WORDS:
        return None
    return {"efforts": tuple(sorted(set(listed), key=_EFFORT_ORDER.index))}


def _no_effort(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    fields: dict[str, Any] = {"effort_via": "none"}
    if profile.effort_via in ("adaptive", "thinking_budget") and profile.thinks == "asked":
        fields["thinks"] = "no"
    return fields


def _over_responses(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Speak the format that the provider names; LiteLLM has a route for it at its providers."""
    if profile.wire != "completions":
        return None
    return {
        "wire": "responses",
        "thinks": "default" if profile.thinks == "no" else profile.thinks,
        "effort_via": "reasoning",
        "send_back": "always",
    }


def _shorter_ids(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    longest = int(found["longest"])
    return {"longest_id": longest} if SHORTEST_ID <= longest < profile.longest_id else None


def _by_level(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Tell the effort in words where a number of tokens is refused."""
    return {"effort_via": "reasoning_effort"} if profile.effort_via == "thinking_budget" else None


def _other_thinking(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Change from a budget to an effort that the model adapts to, or back."""
    refused = found["kind"].lower()
    if refused == "disabled":
        return _never_off(profile, named, found)
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
"""What to change where one of our additions is unknown to a provider."""
_EFFORT_ORDER: Final = (*EFFORTS, "default")
_EFFORT_WORDS: Final = frozenset(_EFFORT_ORDER)
_OPTIONAL: Final = frozenset(
    {"include", "parallel_tool_calls", "store", "stream_options", "tool_stream", "verbosity"}
)
"""Arguments that can be left out without changing what is asked."""
_EFFORT_NAMES: Final = frozenset({"effort", "reasoning", "reasoning_effort", "thinking"})


def _without(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
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
            return _by_level(profile, named, found) or _no_effort(profile, named, found)
    return None


def _must_force(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Force every call: the server reads no calls that it did not force."""
    return {"forced_any": "ok", "forced_named": "ok", "no_auto": True}


def _bound(profile: Profile, named: Named, found: re.Match[str]) -> _Fields:
    """Have thoughts dropped that are bound to what was said before and has changed since."""
    if profile.effort_via != "adaptive" or profile.block_binding:
        return None
    return {"block_binding": "drop_block"}


_ARGUMENTS: Final = "argument"
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
        "summary",
        r"reasoning\.summary|reasoning summar",
        _set(summary=False),
        "a summary of its reasoning",
    ),
    _Rule(
        "stream",
        r"^stream \||verified to stream|'stream' does not support|streaming is not supported"
        r"|tool use in streaming mode",
        _set(stream=False),
        "to stream its reply",
    ),
    _Rule("nine", r"\b3280\b|length of 9\b", _set(call_id="nine"), "the ids of calls"),
    _Rule(
        "ids",
        r"(?:call_id|\bid)\b.{0,80}too long.{0,40}maximum length (?P<longest>\d{1,4})\b",
        _shorter_ids,
        "the length of the ids of calls",
    ),
    _Rule(
        "bridge",
        r"after role 'tool'|conversation blocks and tool result blocks",
        _set(bridge="(noted)"),
        "a user's message behind a tool's result",
    ),
    _Rule(
        "lone calls",
        r"conversation blocks and tool use blocks",
        _set(lone_calls=True),
        "calls with text beside them",
    ),
    _Rule(
        "thoughts back",
        r"reasoning_content\W.{0,80}(must be passed back|is missing)",
        _set(send_back="always", fill_reasoning=True),
        "a history without its reasoning",
    ),
    _Rule(
        "content",
        r"missing field `content`",
        _set(null_content=False),
        "a call without text",
    ),
    _Rule(
        "include",
        r"^include(?:\[\d+\])? \||encrypted content is not supported",
        lambda profile, named, found: {"without": (*profile.without, "include")},
        "its encrypted reasoning",
    ),
    _Rule("binding", r"bound to a different conversation", _bound, "its earlier thinking"),
    _Rule(
        "thoughts",
        r"bound to a different conversation|invalid `signature`|encrypted[_ ]content|"
        r"thought.?signature|blocks in the latest assistant message cannot be modified",
        _set(send_back="never", signed_ids=False),
        "its earlier thinking",
        lasting=False,
    ),
    _Rule(
        "auto",
        r"[\"'`]auto[\"'`] tool[_ ]choice requires",
        _must_force,
        "calls that are not forced",
    ),
    _Rule(
        "kind of thinking",
        r"thinking\.type\.(?P<kind>enabled|disabled|adaptive)\W{1,3}is not supported",
        _other_thinking,
        "how it is asked to think",
    ),
    _Rule(
        "always thinks",
        r"only type=enabled|only works in thinking mode|must be enabled|reasoning is mandatory",
        _never_off,
        "not to think",
    ),
    _Rule(
        "choice while thinking",
        rf"{_CHOICE}.{{0,200}}{_THINKING}|{_THINKING}.{{0,200}}{_CHOICE}",
        _thinking_off,
        "to be forced to call a tool while it thinks",
    ),
    _Rule(
        "routed choice",  # OpenRouter has no host for the model that takes a choice
        r"no endpoints found that support .{0,40}tool_choice",
        _set(**_TO_AUTO, omit_auto=True),
        "to be forced to call a tool",
    ),
    _Rule(
        "choice of one",
        r"tool_choice 'specified'|toolChoice\.tool\b",
        _one_tool,
        "to be forced to call a certain tool",
    ),
    _Rule(
        "choice",
        rf"{_CHOICE}.{{0,200}}{_NO}|{_NO}.{{0,200}}{_CHOICE}",
        _set(**_TO_AUTO),
        "to be forced to call a tool",
    ),
    _Rule("format", r"/v1/responses\b", _over_responses, "tools over chat completions"),
    _Rule(
        "efforts",
        r"(?:supported values are|(?:effort|think|reason).{0,200}?must be(?: one of)?)"
        r"(?P<listed>[^.;]{1,200})",
        _supported_efforts,
        "the effort",
    ),
    _Rule(
        "effort",
        r"reasoning[._ ]?effort|not support thinking|think(ing)? (value|level)\b",
        _no_effort,
        "an effort",
    ),
    _Rule(
        "budget",
        r"thinking[_. ]budget|budget_tokens|budget \d+ is invalid",
        _by_level,
        "the thinking budget",
    ),
    _Rule(_ARGUMENTS, _ARGUMENT, _without, "an argument that it does not know"),
)
"""What refusals ask for. The first that applies counts, so those of one thing come first."""


_UNACCEPTED: Final = "tool_use_failed"
_NO_CALL: Final = "did not call"
_NOT_WANTED: Final = "choice is none"
_TAGGED: Final = re.compile(r"<function[=/]\s*([\w.-]{1,128})\s*[=>(,]?\s*")
_MOST_CALLS: Final = 16


async def in_its_way(
    attempt: Callable[[float], AsyncGenerator[Delta, None]],
    seconds: float,
    another: Callable[[RefusedCall], bool],
    taken: Callable[[], None],
    model: str,
) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of an attempt, and after a refusal those of one in the provider's way.

    A reply that the provider did not accept as one is a reply, too. Groq checks what a model wrote:
    text in place of a call that was forced, or a call that it cannot read, is refused with the
    model's words in the error. The first is the answer, and the second goes to the agent's repair
    turn; the same request would only be paid again.

    Args:
        attempt: Starts a try that may take so many seconds.
        seconds: How long all of them may take together.
        another: Changes what is sent after a refusal; tells whether there is anything to change.
        taken: Called once a try is answered.
        model: The model's name, for the log.
    """
    end = time.monotonic() + seconds
    while True:
        begun = said = False
        written: Delta | None = None
        try:
            async with aclosing(attempt(end - time.monotonic())) as deltas:
                async for delta in deltas:
                    begun = True
                    if not said and (delta.text or delta.reasoning or delta.calls):
                        said = True
                        taken()
                    yield delta
        except RefusedCall as error:
            written = _written(error.named)
            if written is None:
                if said or not another(error):
                    raise
                continue
            known = {"model": model, "reason": str(error)}
            _log.info(
                "the provider did not accept what the model wrote; it is a reply", extra=known
            )
        if not said:
            taken()
        if written is not None:
            if begun:
                yield Delta(restart=True)
            yield written
        return


def _written(named: Named) -> Delta | None:
    """Return what the model wrote, if that is why the provider failed the call."""
    if _UNACCEPTED not in (named.code, named.kind) or _NOT_WANTED in named.text.lower():
        return None
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
