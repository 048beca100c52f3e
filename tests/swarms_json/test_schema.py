"""The formal schema agrees with the loader, and definitions of any shape never crash it."""

import json
import logging
import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from mail import MAILSwarmTemplate
from mail.errors import ConfigError
from mail.swarms_json import (
    build_action_from_swarms_json,
    build_agent_from_swarms_json,
    build_swarms_from_swarms_json,
    load_swarms_json_from_string,
)
from mail.swarms_json.references import ReferencePolicy
from mail.swarms_json.types import (
    SwarmsJSONAction,
    SwarmsJSONAgent,
    SwarmsJSONMCPServer,
    SwarmsJSONParticipant,
    SwarmsJSONSwarm,
    SwarmsJSONTeam,
)
from tests.docs.pages import PAGES, blocks
from tests.swarms_json.definitions import ROOT, SCHEMA, fits, good

QUICK = settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Keep the warnings about unknown fields to ourselves; there are thousands."""
    logger = logging.getLogger("mail.swarms_json.fields")
    logger.disabled = True
    yield
    logger.disabled = False


# --- what is generated --------------------------------------------------------------------------

NAMES = ("boss", "clerk", "bos", "all", "a@b", "a:b", "a b", "", "dig", "help", "x@other", "json")
TEXTS = ("json:dumps", "python::json:dumps", "url::https://x.example/y", "responses", "team")
WORDS = st.sampled_from(NAMES + TEXTS)
NUMBERS = st.one_of(st.integers(-3, 3), st.floats(allow_nan=True, allow_infinity=True))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=6), WORDS)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(WORDS, st.text(max_size=4)), inner, max_size=3),
    ),
    max_leaves=8,
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.sampled_from(["object", ["object", "null"]])},
    optional={
        "properties": st.dictionaries(WORDS, st.just({"type": "string"}), max_size=2),
        "$defs": st.just({"a": {"type": "object"}}),
        "$schema": st.just("http://json-schema.org/draft-07/schema#"),
    },
)
BROKEN_SCHEMAS = st.fixed_dictionaries(
    {"type": st.sampled_from(["object", "string", "thing", []])},
    optional={
        "properties": st.dictionaries(WORDS, ANYTHING, max_size=2),
        "$ref": st.sampled_from(["#", "#/$defs/a", "https://x.example/", 5]),
        "$schema": st.sampled_from(["nope", 5, "https://json-schema.org/draft/2020-12/schema"]),
        "required": st.lists(WORDS, max_size=2),
        "pattern": st.just("("),
    },
)
ODD = st.one_of(ANYTHING, BROKEN_SCHEMAS, st.sampled_from(["chat", ["halp"], -1, 0.0]))


def _mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return mostly good values, some that may be anything."""
    return st.integers(0, 29).flatmap(lambda pick: ODD if pick == 20 else good)


def _mapping(**fields: Any) -> dict[str, st.SearchStrategy[Any]]:
    return {name: _mostly(strategy) for name, strategy in fields.items()}


FLAG = st.booleans()
AGENT_NAMES = st.sampled_from(["boss", "clerk"])
DIG = {"name": "dig", "description": "Dig.", "parameters": {}, "function": "json:dumps"}
REFERENCES = st.sampled_from(["python::json:dumps", "mail.factories:LiteLLMAgentFunction"])
ACTIONS = st.fixed_dictionaries(
    _mapping(
        name=st.sampled_from(["fetch", "ask"]),
        description=st.just("Dig."),
        parameters=SCHEMAS,
        function=REFERENCES,
    ),
    optional=_mapping(
        idempotent=FLAG,
        completes=FLAG,
        untrusted=FLAG,
        timeout=st.sampled_from([None, 1, 0.5]),
    ),
)
AGENTS = st.fixed_dictionaries(
    _mapping(
        factory=REFERENCES,
        comm_targets=st.lists(AGENT_NAMES, min_size=1, max_size=2),
        agent_params=st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
    ),
    optional=_mapping(
        enable_interswarm=FLAG,
        tool_format=st.sampled_from(["completions", "responses"]),
        actions=st.lists(st.just("dig"), max_size=1),
        exclude_tools=st.lists(st.just("help"), max_size=1),
        note=st.text(max_size=3),
    ),
)
PARTICIPANTS = st.fixed_dictionaries(
    _mapping(name=st.sampled_from(["editor", "boss", "reviewer"])),
    optional=_mapping(description=st.text(max_size=4), note=st.text(max_size=3)),
)
TEAMS = st.fixed_dictionaries(
    _mapping(
        id=st.sampled_from(["alpha", "beta"]),
        lead=st.sampled_from(["boss", "nobody"]),
        members=st.lists(st.sampled_from(["clerk", "boss", "lead"]), min_size=1, max_size=2),
    ),
    optional=_mapping(note=st.text(max_size=3)),
)


@st.composite
def swarms(draw: st.DrawFn) -> Any:
    """A swarm that often is good: the first agent leads it."""
    agents = draw(st.lists(AGENTS, min_size=2, max_size=3))
    for name, agent in zip(("boss", "clerk", "scout"), agents, strict=False):
        agent["name"] = draw(_mostly(st.just(name)))
    agents[0] |= {"enable_entrypoint": True, "can_complete_tasks": draw(_mostly(st.just(True)))}
    fields: dict[str, Any] = {
        "name": draw(_mostly(st.just("team"))),
        "version": draw(_mostly(st.just("1.0.0"))),
        "entrypoint": draw(_mostly(st.just("boss"))),
        "agents": agents,
        "actions": [DIG, *draw(st.lists(ACTIONS, max_size=1))],
    }
    optional = _mapping(
        action_imports=st.just([]),
        enable_interswarm=FLAG,
        breakpoint_tools=st.lists(st.just("dig"), max_size=1),
        exclude_tools=st.lists(st.just("help"), max_size=1),
        description=st.text(max_size=5),
        keywords=st.lists(st.sampled_from(["a", "b"]), max_size=2),
        participants=st.lists(PARTICIPANTS, max_size=2),
        teams=st.lists(TEAMS, max_size=2),
        public=FLAG,
        enable_db_agent_histories=FLAG,
    )
    fields |= draw(st.fixed_dictionaries({}, optional=optional))
    return draw(_mostly(st.just(fields)))


FILES = _mostly(st.lists(swarms(), max_size=2))


def _accepted(build: Any, candidate: Any) -> bool:
    """Tell whether the loader takes a candidate; anything but its own error is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            build(candidate)
        except ConfigError:
            return False
    return True


# --- the two agree ------------------------------------------------------------------------------


@QUICK
@given(FILES)
def test_what_the_loader_accepts_the_schema_accepts(definition: Any) -> None:
    before = deepcopy(definition)
    if isinstance(definition, list) and _accepted(build_swarms_from_swarms_json, definition):
        assert fits(definition)
        assert str(definition) == str(before)


def test_the_generated_definitions_are_good_often_enough() -> None:
    counted: dict[bool, int] = {True: 0, False: 0}

    @QUICK
    @given(swarms())
    def count(swarm: Any) -> None:
        counted[_accepted(build_swarms_from_swarms_json, [swarm])] += 1

    count()
    assert min(counted.values()) > 30, counted


@QUICK
@given(_mostly(AGENTS), _mostly(ACTIONS))
def test_agents_and_actions_alone_agree_too(agent: Any, action: Any) -> None:
    if isinstance(agent, dict):
        agent = {"name": "boss", "enable_entrypoint": True, "can_complete_tasks": True, **agent}
    for kind, build, candidate in (
        ("agent", build_agent_from_swarms_json, agent),
        ("action", build_action_from_swarms_json, action),
    ):
        if _accepted(build, candidate):
            part = {"$ref": f"#/$defs/{kind}"}
            whole = json.loads(SCHEMA.read_text(encoding="utf-8"))
            good_name = candidate | {"name": "fine"}  # names are checked across the parts
            assert Draft202012Validator({"$defs": whole["$defs"], **part}).is_valid(good_name)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("swarm", SwarmsJSONSwarm),
        ("agent", SwarmsJSONAgent),
        ("action", SwarmsJSONAction),
        ("participant", SwarmsJSONParticipant),
        ("team", SwarmsJSONTeam),
        ("mcpServer", SwarmsJSONMCPServer),
    ],
)
def test_the_schema_has_the_fields_of_the_loader(kind: str, shape: type) -> None:
    part = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"][kind]
    loaded = TypeAdapter(shape).json_schema()
    assert set(part["properties"]) == set(loaded["properties"])
    assert set(part.get("required", ())) == set(loaded.get("required", ()))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert not fits({})
    assert not fits([{}])


def _samples() -> list[Any]:
    texts = [(ROOT / "swarms.json").read_text(encoding="utf-8"), json.dumps(good())]
    for page in PAGES:
        texts += [block.code for block in blocks(page, "json") if '"entrypoint"' in block.code]
    return [value for value in map(json.loads, texts) if isinstance(value, list)]


def test_the_shipped_file_and_the_samples_of_the_docs_are_valid() -> None:
    samples = _samples()
    assert len(samples) >= 3
    for sample in samples:
        assert fits(sample)
        assert load_swarms_json_from_string(json.dumps(sample))


# --- nothing crashes ----------------------------------------------------------------------------


@QUICK
@given(st.one_of(st.text(max_size=40), FILES.map(json.dumps)))
def test_any_text_is_loaded_or_refused(text: str) -> None:
    _accepted(load_swarms_json_from_string, text)


def _unreachable(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"a connection to {request.url} was attempted")


@settings(QUICK, max_examples=120)
@given(swarms())
def test_any_swarm_makes_a_template_or_is_refused(swarm: Any) -> None:
    remote = ReferencePolicy(
        imports=("mail.factories", "json"),
        resolve=lambda host, port: ["127.0.0.1"],
        transport=httpx.MockTransport(_unreachable),
    )
    _accepted(lambda given: MAILSwarmTemplate.from_swarms_json(given, references=remote), swarm)
