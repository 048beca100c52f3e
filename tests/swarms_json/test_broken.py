"""Swarms files with one mistake each: one clear error that names the place."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mail.api.definitions import check_swarms_file
from mail.errors import ConfigError
from tests.swarms_json.definitions import fits, good

GONE = object()
BOSS = "0.agents.0"
CLERK = "0.agents.1"
PAY = "0.actions.0"
EDITOR = "0.participants.0"
TEAM = "0.teams.0"
ALPHA = {"id": "alpha", "lead": "boss", "members": ["clerk"]}
DIG = {"name": "dig", "description": "Dig.", "parameters": {}, "function": "json:dumps"}
FORMAT = "must be a Python reference such as 'python::module:object'"

# Where, the new value (or GONE), what the error must say. The last column tells whether the formal
# schema sees the mistake, too.
BROKEN: list[tuple[str, Any, tuple[str, ...], bool]] = [
    # fields of a swarm
    ("0.name", GONE, ("'name' of swarm is missing", "number 1 of the list"), True),
    ("0.version", GONE, ("'version' of swarm 'office' is missing",), True),
    ("0.entrypoint", GONE, ("'entrypoint' of swarm 'office' is missing",), True),
    ("0.agents", GONE, ("'agents' of swarm 'office' is missing",), True),
    ("0.actions", GONE, ("'actions' of swarm 'office' is missing",), True),
    ("0.version", 1.3, ("'version' of", "must be a string, actually got float"), True),
    ("0.agents", {}, ("'agents' of", "must be a list, actually got dict"), True),
    ("0.public", "yes", ("'public' of", "must be true or false, actually got str"), True),
    ("0.description", ["x"], ("'description' of", "must be a string, actually got list"), True),
    ("0.keywords", "office", ("'keywords' of", "must be a list, actually got str"), True),
    ("0.keywords", [""], ("'keywords.0' of swarm 'office' must not be empty",), True),
    (
        "0.enable_db_agent_histories",
        1,
        ("'enable_db_agent_histories' of", "must be true or false"),
        True,
    ),
    ("0.enable_interswarm", None, ("'enable_interswarm' of", "must be true or false"), True),
    (
        "0.breakpoint_tools",
        [7],
        ("'breakpoint_tools.0' of swarm", "must be a string, actually got int"),
        True,
    ),
    ("0.name", 1, ("'name' of swarm must be a string, actually got int",), True),
    ("0.action_imports", [1], ("'action_imports.0' of swarm", "must be a string"), True),
    ("0.name", "", ("swarm name must be at least 1 character",), True),
    ("0.name", "a:b", ("swarm name 'a:b' must not contain ':'",), True),
    ("0.name", "head office", ("swarm name 'head office' must not contain white space",), True),
    ("0.name", "office@home", ("swarm name 'office@home' must not contain '@'", "'name'"), True),
    ("1.name", "office", ("duplicate swarm name 'office'",), False),
    # participants
    ("0.participants", {}, ("'participants' of", "must be a list, actually got dict"), True),
    (f"{EDITOR}.name", GONE, ("'participants.0.name' of swarm 'office' is missing",), True),
    (f"{EDITOR}", "editor", ("'participants.0' of swarm 'office' must be an object",), True),
    (
        f"{EDITOR}.description",
        7,
        ("'description' of participant 'editor'", "must be a string"),
        True,
    ),
    (f"{EDITOR}.name", "All", ("participant name 'All' is reserved", "'participants'"), True),
    (f"{EDITOR}.name", "system", ("participant name 'system' is reserved",), True),
    (f"{EDITOR}.name", "e@x", ("participant name 'e@x' must not contain '@'",), True),
    (f"{EDITOR}.name", "", ("participant name must be at least 1 character",), True),
    (f"{EDITOR}.name", "reviewer", ("duplicate participant name 'reviewer'",), False),
    (f"{EDITOR}.name", "clerk", ("'clerk' is the name of an agent", "'participants'"), False),
    ("0.participants", [{"name": f"p{n}"} for n in range(1001)], ("at most 1000 entries",), True),
    # fields of an agent
    (f"{CLERK}.name", GONE, ("'agents.1.name' of swarm 'office' is missing",), True),
    (f"{CLERK}.factory", GONE, ("'factory' of agent 'clerk', swarm 'office' is missing",), True),
    (
        f"{BOSS}.comm_targets",
        GONE,
        ("'comm_targets' of agent 'boss', swarm 'office' is missing",),
        True,
    ),
    (
        f"{CLERK}.agent_params",
        GONE,
        ("'agent_params' of agent 'clerk', swarm 'office' is missing",),
        True,
    ),
    (
        f"{CLERK}.agent_params",
        [],
        ("'agent_params' of", "must be an object, actually got list"),
        True,
    ),
    (f"{CLERK}.tool_format", "response", ("field 'tool_format'", "mean 'responses'?"), True),
    (
        f"{CLERK}.can_complete_tasks",
        "no",
        ("'can_complete_tasks' of", "must be true or false"),
        True,
    ),
    (f"{CLERK}.factory", "mail.factories.X", ("field 'factory'", FORMAT), True),
    (f"{CLERK}.factory", "url::https://x.example/f", ("field 'factory'", "fetches is text"), True),
    (f"{CLERK}.factory", "python::mail.factories:Nobody", ("factory of agent 'clerk'",), False),
    (f"{CLERK}.factory", "python::no_such_module:X", ("no_such_module", "'clerk'"), False),
    (f"{CLERK}.factory", "python::mail.version:VERSION", ("callable", "'clerk'"), False),
    (f"{CLERK}.agent_params.system", "python::json:NOBODY", ("agent_params", "NOBODY"), False),
    (f"{CLERK}.name", "ALL", ("agent name 'ALL' is reserved", "field 'name'"), True),
    (f"{CLERK}.name", "cl:erk", ("agent name 'cl:erk' must not contain ':'", "'name'"), True),
    (f"{CLERK}.name", "the clerk", ("agent name 'the clerk' must not contain white space",), True),
    (f"{CLERK}.name", "", ("agent name must be at least 1 character",), True),
    (f"{CLERK}.name", "cl\x00erk", ("must not contain control characters",), False),
    (f"{CLERK}.factory", None, ("'factory' of agent 'clerk'", "must be a string"), True),
    (f"{CLERK}.comm_targets", ["boss", 2], ("'comm_targets.1' of", "must be a string"), True),
    (f"{CLERK}.tool_format", 1, ("'tool_format' of agent 'clerk'", "must be"), True),
    (f"{CLERK}.actions", "dig", ("'actions' of agent 'clerk'", "must be a list"), True),
    (f"{CLERK}.exclude_tools", {}, ("'exclude_tools' of agent 'clerk'", "must be a list"), True),
    # teams
    ("0.teams", {}, ("'teams' of", "must be a list, actually got dict"), True),
    (TEAM, "alpha", ("'teams.0' of swarm 'office' must be an object, actually got str",), True),
    (f"{TEAM}.id", GONE, ("'teams.0.id' of swarm 'office' is missing",), True),
    (f"{TEAM}.id", "", ("team id must be at least 1 character long", "'teams'"), True),
    (f"{TEAM}.id", "a/b", ("team id 'a/b' must not contain '/'", "'teams'"), True),
    (f"{TEAM}.id", "..", ("team id '..' must not contain '/' or be", "'teams'"), True),
    (f"{TEAM}.id", "a b", ("team id 'a b' must not contain white space",), True),
    (f"{TEAM}.lead", GONE, ("'lead' of team 'alpha', swarm 'office' is missing",), True),
    (f"{TEAM}.lead", "bos", ("team 'alpha' names 'bos'", "mean 'boss'?"), False),
    (f"{TEAM}.members", ["clerk", "edito"], ("names 'edito'", "mean 'editor'?"), False),
    (f"{TEAM}.members", [], ("'members' of team 'alpha', swarm 'office' must not be empty",), True),
    (f"{TEAM}.members", ["clerk", "clerk"], ("team 'alpha' has the member 'clerk' twice",), True),
    (f"{TEAM}.members", ["boss"], ("has its lead 'boss' among its members",), False),
    (
        f"{TEAM}.members",
        ["m"] * 256,
        ("'members' of team 'alpha'", "must have at most 255 entries"),
        True,
    ),
    ("0.teams", [ALPHA, ALPHA], ("duplicate team name 'alpha'", "'teams'"), False),
    # across the parts
    (
        "0.agents.2",
        "clerk",
        ("'agents.2' of swarm 'office' must be an object, actually got str",),
        True,
    ),
    ("0.agents.2.name", "clerk", ("duplicate agent name 'clerk'", "field 'agents'"), False),
    ("0.entrypoint", "bos", ("entrypoint 'bos'", "Did you mean 'boss'?"), False),
    (f"{BOSS}.enable_entrypoint", False, ("agent 'boss' does not have 'enable_entry",), True),
    ("0.entrypoint", "clerk", ("entrypoint agent 'clerk' does not have 'enable_entry",), False),
    (
        f"{BOSS}.enable_entrypoint",
        "true",
        ("'enable_entrypoint' of", "must be true or false"),
        True,
    ),
    (
        f"{BOSS}.can_complete_tasks",
        1,
        ("'can_complete_tasks' of", "must be true or false", "office"),
        True,
    ),
    (f"{BOSS}.can_complete_tasks", False, ("no agent has 'can_complete_tasks' set",), True),
    (f"{BOSS}.comm_targets", ["clark"], ("comm_target 'clark'", "mean 'clerk'?"), False),
    (f"{CLERK}.comm_targets", ["x@till"], ("target 'x@till'", "enable_interswarm"), False),
    (f"{CLERK}.comm_targets", [], ("at least one communication target", "'comm_targets'"), True),
    (f"{CLERK}.actions", ["send_paymant"], ("'send_paymant'", "mean 'send_payment'?"), False),
    (f"{CLERK}.actions", ["get_weather"], ("mean 'get_weather_forecast'?", "'actions'"), False),
    ("0.breakpoint_tools", ["send_paiment"], ("'breakpoint_tools'", "'send_payment'?"), False),
    ("0.exclude_tools", ["send_interupt"], ("'exclude_tools'", "mean 'send_interrupt'?"), False),
    (f"{CLERK}.exclude_tools", ["halp"], ("'exclude_tools' of agent 'clerk'", "'help'?"), False),
    (f"{BOSS}.comm_targets", ["no@office"], ("comm_target 'no@office'", "not a defined"), False),
    ("0.breakpoint_tools", ["zzz"], ("breakpoint tool 'zzz' not found in swarm (field",), False),
    # actions
    (
        f"{PAY}.function",
        GONE,
        ("'function' of action 'send_payment', swarm 'office' is missing",),
        True,
    ),
    (f"{PAY}.function", "url::https://x.example/f", ("field 'function'", "fetches is text"), True),
    (f"{PAY}.function", "json", ("field 'function'", FORMAT, "'send_payment'"), True),
    (f"{PAY}.function", "json:dumbs", ("function of action 'send_payment'", "'dumps'?"), False),
    (f"{PAY}.function", "asyncio:get_running_loop", ("exactly one argument", "'function'"), False),
    (f"{PAY}.function", "mail.version:VERSION", ("callable, got str", "'function'"), False),
    (
        f"{PAY}.description",
        " ",
        ("'description' of action 'send_payment'", "must not be empty"),
        True,
    ),
    (f"{PAY}.parameters", [], ("'parameters' of", "must be an object, actually got list"), True),
    (f"{PAY}.parameters.type", "objekt", ("parameters of action 'send_payment'", "objekt"), True),
    (f"{PAY}.parameters.type", "string", ("parameters of action", "describe an object"), True),
    (f"{PAY}.parameters", {"sum": {"type": "integer"}}, ("'sum' outside 'properties'",), False),
    (f"{PAY}.timeout", -1, ("'timeout' of action 'send_payment'", "must be greater than 0"), True),
    (f"{PAY}.timeout", True, ("'timeout' of", "must be a number, actually got bool"), True),
    (f"{PAY}.timeout", "5", ("'timeout' of", "must be a number, actually got str"), True),
    (f"{PAY}.function", 1, ("'function' of action", "must be a string"), True),
    (f"{PAY}.idempotent", 1, ("'idempotent' of action", "must be true or false"), True),
    (f"{PAY}.completes", "yes", ("'completes' of action", "must be true or false"), True),
    (f"{PAY}.untrusted", "yes", ("'untrusted' of action", "must be true or false"), True),
    (f"{PAY}.name", "a b", ("action name 'a b' must not contain white space",), True),
    (f"{PAY}.name", "", ("action name must be at least 1 character",), True),
    ("0.actions", [DIG, DIG], ("duplicate action definition for 'dig'", "'actions'"), False),
    (f"{PAY}.name", "send_request", ("action name 'send_request' is the name of a MAIL",), False),
    ("0.action_imports", ["json"], ("'action_imports.0' of swarm", FORMAT), True),
    ("0.action_imports", ["json:nobody"], ("action_imports", "'json:nobody'"), False),
    ("0.action_imports", ["json:loads"], ("'json:loads'", "to a MAILAction", "imports"), False),
]


def _changed(where: str, value: Any) -> list[dict[str, Any]]:
    definition = deepcopy(good())
    *path, last = [int(part) if part.isdigit() else part for part in where.split(".")]
    holder: Any = definition
    for part in path:
        holder = holder[part]
    if value is GONE:
        del holder[last]
    else:
        holder[last] = value
    return definition


def _problem(definition: object, folder: Path) -> str:
    path = folder / "swarms.json"
    path.write_text(json.dumps(definition), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        check_swarms_file(path)
    return str(caught.value)


def test_the_file_that_is_broken_here_is_good(tmp_path: Path) -> None:
    path = tmp_path / "swarms.json"
    path.write_text(json.dumps(good()), encoding="utf-8")
    (office, actions), (till, none) = check_swarms_file(path)
    assert (office["name"], till["name"]) == ("office", "till")
    assert actions == ["get_weather_forecast", "send_payment"]
    assert none == []
    assert fits(good())


def test_there_are_enough_ways_to_break_it() -> None:
    assert len(BROKEN) >= 50
    assert len({(where, repr(value)) for where, value, *_ in BROKEN}) == len(BROKEN)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [row[:3] for row in BROKEN],
    ids=[f"{where}={'gone' if value is GONE else value}" for where, value, *_ in BROKEN],
)
def test_a_mistake_is_one_error_that_names_the_place(
    where: str, value: Any, words: tuple[str, ...], tmp_path: Path
) -> None:
    text = _problem(_changed(where, value), tmp_path)
    for word in words:
        assert word in text
    assert "\n" not in text
    if "name" not in where and not where.startswith("1"):
        assert "'office'" in text


@pytest.mark.parametrize(
    ("where", "misspelt", "meant"),
    [
        ("0", "entry_point", "entrypoint"),
        ("0", "breakpoint_tool", "breakpoint_tools"),
        ("0", "breakpoints", "breakpoint_tools"),
        ("0", "exclude", "exclude_tools"),
        (CLERK, "exclude", "exclude_tools"),
        ("0", "action_import", "action_imports"),
        ("0", "keyword", "keywords"),
        (BOSS, "can_complete_task", "can_complete_tasks"),
        (BOSS, "comm_target", "comm_targets"),
        (BOSS, "agent_param", "agent_params"),
        (CLERK, "factroy", "factory"),
        (CLERK, "nmae", "name"),
        (CLERK, "action", "actions"),
        (PAY, "paramters", "parameters"),
        (PAY, "fuction", "function"),
        (PAY, "timout", "timeout"),
    ],
)
def test_a_misspelt_field_gets_the_right_spelling(
    where: str, misspelt: str, meant: str, tmp_path: Path
) -> None:
    definition = _changed(f"{where}.{misspelt}", "x")
    holder: Any = definition
    for part in where.split("."):
        holder = holder[int(part) if part.isdigit() else part]
    holder[misspelt] = holder.pop(meant)
    text = _problem(definition, tmp_path)
    assert f"'{misspelt}'" in text
    assert f"Did you mean '{meant}'?" in text


@pytest.mark.parametrize("name", ["note", "comment", "$comment", "public_key", "description_de"])
def test_fields_of_other_programs_are_let_be(name: str, tmp_path: Path) -> None:
    path = tmp_path / "swarms.json"
    path.write_text(json.dumps(_changed(f"0.{name}", "x")), encoding="utf-8")
    assert check_swarms_file(path)[0][0]["name"] == "office"


@pytest.mark.parametrize(("where", "value"), [row[:2] for row in BROKEN if row[3]])
def test_the_formal_schema_sees_mistakes_of_structure(where: str, value: Any) -> None:
    assert not fits(_changed(where, value))
