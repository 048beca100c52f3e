"""``mail models``: what is known of models, and a check of one with a real conversation."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mail.cli.common import (
    DONE,
    FAILED,
    USAGE,
    cleaned,
    configured,
    in_columns,
    one_line,
    tell,
)
from mail.cli.swarms import find_code, silent, stdout_to_stderr
from mail.cli.table import CONFIG, JSON, Group, Namespace, argument, flag, option, positive
from mail.core.suggest import hinted
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.api import MAILAgent
    from mail.core.agents import AgentFunction
    from mail.llm.provider_env import ModelUse
    from mail.llm.request import ToolFormat
    from mail.testing.model_check import ModelCheck

_SECONDS: Final = 300.0
_CHECKER: Final = "check"
_STAND_IN: Final = "not-set-0123456789"
_NO_ADDRESS: Final = "https://address-not-set.invalid"
_ADDRESS_ENDS: Final = ("_BASE", "_URL", "_ENDPOINT", "_HOST")


@click.group("models", cls=Group, invoke_without_command=True, params=[JSON])
@click.pass_context
def models(ctx: click.Context, json: bool) -> int | None:
    """Check a model, and show what is known of models."""
    if ctx.invoked_subcommand is None:
        return _print_rows(Namespace(json=json))
    ctx.default_map = {name: {"json": json} for name in models.commands}
    return None


_TOOL_FORMAT: Final = option(
    "--tool-format",
    type=click.Choice(("completions", "responses")),
    told="without --agent: the tool format (default responses)",
)


@models.add("list", "list what is known of models (the default)", JSON)
def _list(arguments: Namespace) -> int:
    return _print_rows(arguments)


def _print_rows(arguments: Namespace) -> int:
    """Print the rows of the table of models."""
    from mail.llm.profiles import ROWS

    lines = [("ROW", "PROVIDER", "MODELS", "FORCED TOOLS", "THINKS", "EFFORTS")]
    lines += [
        (
            row.id,
            row.provider,
            one_line(row.models, 50),
            "/".join(str(row.fields.get(name, "?")) for name in ("forced_any", "forced_named")),
            str(row.fields.get("thinks", "?")),
            " ".join(row.fields.get("efforts", "?")),
        )
        for row in ROWS
    ]
    return tell(arguments, [_fields(row) for row in ROWS], *in_columns(lines))


@models.add(
    "show",
    "show what is known of one model",
    argument("model", "for example openai/gpt-5-mini"),
    _TOOL_FORMAT,
    JSON,
)
def _show(arguments: Namespace) -> int:
    """Print the profile of one model."""
    profile = _profile(arguments.model, arguments.tool_format or "responses")
    lines = [("FIELD", "VALUE"), *((name, _said(value)) for name, value in profile.items())]
    return tell(arguments, {"model": arguments.model, **profile}, *in_columns(lines, 2000))


def _profile(model: str, tool_format: "ToolFormat") -> dict[str, Any]:
    from mail.llm.litellm_model import load_library
    from mail.llm.ollama import names_of
    from mail.llm.profiles import overrides_for, profile_of
    from mail.llm.provider_env import name_problem

    with stdout_to_stderr():
        given = overrides_for(model, {}, also=names_of(model))
        litellm = load_library()
        problem = name_problem(litellm, model)
        if problem and not given:
            raise ConfigError(f"model '{model}': {problem}")
        return _fields(profile_of(litellm, model, tool_format, given))


def _fields(record: Any) -> dict[str, Any]:
    """Return data for JSON."""
    found = {field.name: getattr(record, field.name) for field in fields(record)}
    return json.loads(json.dumps(found, default=dict))  # type: ignore[no-any-return]


def _said(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in ("", None, {}):
        return "-"
    return json.dumps(value) if isinstance(value, dict) else str(value)


@dataclass(frozen=True, slots=True)
class _Subject:
    """The subject of a check: an agent function, the model that it asks, and whether it ends tasks.

    ``llm`` is the model that it is to ask in place of its own.
    """

    title: str
    function: "AgentFunction"
    use: "ModelUse"
    llm: str | None = None
    ends: bool = True


@models.add(
    "check",
    "have a tiny conversation with a model",
    argument("model", "by default the agent's model", required=False),
    option("--agent", metavar="NAME", told="as this agent of your swarm asks it"),
    option(
        "--swarm",
        metavar="[FILE/]NAME",
        told="the agent's swarm, a swarms file, or both (default: the server's)",
    ),
    CONFIG,
    option("--effort", metavar="EFFORT", told="without --agent: reasoning_effort of the model"),
    flag("--dry-run", told="show what would be sent, and send nothing"),
    flag("--show-request", told="show what was sent, too"),
    option(
        *("-t", "--timeout"),
        type=positive,
        default=_SECONDS,
        metavar="SECONDS",
        told=f"the longest that it may take (default {_SECONDS:g})",
    ),
    _TOOL_FORMAT,
    JSON,
)
def _check(arguments: Namespace) -> int:
    from mail.llm.litellm_model import load_library
    from mail.llm.ollama import names_of
    from mail.llm.profiles import PROXY_PREFIX, overrides_for, profile_of
    from mail.llm.provider_env import missing_variables, model_problem
    from mail.testing.model_check import Finding

    with configured(arguments.config):
        with stdout_to_stderr():
            subject = _subject(arguments)
            use, litellm = subject.use, load_library()
            problem = model_problem(litellm, use, in_name=False)
            missing = missing_variables(litellm, use)
        if problem and not missing:
            raise ConfigError(f"model '{use.model}' cannot be used: {problem}")
        bare = use.model.removeprefix(PROXY_PREFIX)
        name = f"{PROXY_PREFIX}{bare}" if use.use_proxy else use.model
        own = {} if subject.llm else getattr(subject.function, "model_profile", {})
        given = overrides_for(name, own, also=names_of(name))
        profile = profile_of(litellm, name, use.tool_format, given, address=use.endpoint.base)
        sends = not (problem or arguments.dry_run)
        with stdout_to_stderr(), silent(), _stand_ins([] if sends else missing):
            check = asyncio.run(_converse(subject, arguments.timeout, send=sends))
    rows = "row" if "," not in profile.row else "rows"
    told = f"{rows} {profile.row or '-'} of 'mail models', wire format {profile.wire}"
    told += f"; set by you: {', '.join(given)}" if given else ""
    check.findings.append(Finding("profile", "ok", told))
    return _tell(arguments, subject, check, problem, None if sends else missing)


def _subject(arguments: Namespace) -> _Subject:
    """Return what is to be checked.

    Raises:
        ConfigError: there is no such agent or swarm, or the arguments do not fit together.
    """
    from mail.llm.provider_env import ModelUse
    from mail.llm.request import DEFAULT_ENDPOINT
    from mail.llm.resolve import is_scripted

    if arguments.agent is None and arguments.swarm is None:
        return _bare(arguments)
    for given in ("effort", "tool_format"):
        if getattr(arguments, given):
            name = given.replace("_", "-")
            raise ConfigError(f"--{name} goes without --agent: an agent has settings of its own")
    agent, place = _agent(arguments)
    own, function, llm = agent.agent_params, agent.function, arguments.model
    use_proxy, endpoint = own.get("use_proxy"), DEFAULT_ENDPOINT
    if use_proxy is None:
        use_proxy = bool(getattr(function, "use_proxy", False))
    if not llm:
        llm = str(own.get("llm", getattr(function, "llm", "")))
        endpoint = getattr(function, "endpoint", endpoint)
        if not llm or is_scripted(llm) or own.get("model") is not None:
            raise ConfigError(
                f"agent '{agent.name}' asks no provider's model; name one to check the agent with: "
                f"mail models check MODEL --agent {agent.name}"
            )
    use = ModelUse(agent.name, llm, agent.tool_format, use_proxy, endpoint)
    title = f"{llm}, as {agent.name} of {place} asks it"
    return _Subject(title, function, use, arguments.model, agent.can_complete_tasks)


def _bare(arguments: Namespace) -> _Subject:
    from mail.factories import LiteLLMSupervisorFunction
    from mail.llm.provider_env import ModelUse
    from mail.llm.resolve import is_scripted

    model = arguments.model
    if not model:
        raise ConfigError("name a model, such as openai/gpt-5-mini, or an agent with --agent")
    if is_scripted(model):
        raise ConfigError(f"'{model}' is a script; there is no provider to check")
    tool_format: ToolFormat = arguments.tool_format or "responses"
    function = LiteLLMSupervisorFunction(
        name=_CHECKER,
        comm_targets=[],
        tools=[],
        llm=model,
        tool_format=tool_format,
        reasoning_effort=arguments.effort,
        use_proxy=False,
    )
    return _Subject(model, function, ModelUse(_CHECKER, model, tool_format, use_proxy=False))


def _agent(arguments: Namespace) -> "tuple[MAILAgent, str]":
    """Return an agent of a swarm in a file, and where it is."""
    from mail.api import MAILSwarmTemplate

    file, name = _place(arguments)
    find_code(Path.cwd(), file.parent)
    template = MAILSwarmTemplate.from_swarm_json_file(name, file)
    swarm = template.instantiate({"user_token": ""}, print_llm_streams=False)
    wanted = arguments.agent or swarm.entrypoint
    agents = {agent.name: agent for agent in swarm.agents}
    if wanted not in agents:
        text = f"swarm '{name}' of {file} has no agent '{wanted}', but {', '.join(agents)}"
        raise ConfigError(hinted(text, wanted, agents))
    return agents[wanted], f"{name} ({file})"


def _place(arguments: Namespace) -> tuple[Path, str]:
    """Return the swarms file and the swarm in it."""
    from mail.config.server import ServerConfig, resolve_swarms_file
    from mail.swarms_json.utils import load_swarms_json_from_file

    served = ServerConfig().swarm
    given: str = arguments.swarm or served.name
    before, _, after = given.rpartition("/")
    if before and Path(before).is_file():
        return Path(before), after
    if not Path(given).is_file():
        return resolve_swarms_file(served), given
    names = [swarm["name"] for swarm in load_swarms_json_from_file(given)]
    if served.name in names or len(names) == 1:
        return Path(given), served.name if served.name in names else names[0]
    raise ConfigError(f"{given} has {len(names)} swarms: say which, --swarm {given}/{names[0]}")


@contextmanager
def _stand_ins(missing: list[str]) -> Iterator[None]:
    """Set the variables that are not set, so that a request can be made that is not sent."""
    for name in missing:
        os.environ[name] = _NO_ADDRESS if name.endswith(_ADDRESS_ENDS) else _STAND_IN
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


async def _converse(subject: _Subject, timeout: float, *, send: bool) -> "ModelCheck":
    from mail.llm.litellm_model import close_clients
    from mail.testing.model_check import check_model

    how: dict[str, Any] = {"llm": subject.llm, "ends": subject.ends, "send": send}
    try:
        return await check_model(subject.function, subject.use.agent, timeout=timeout, **how)
    finally:
        await close_clients()


def _tell(
    arguments: Namespace,
    subject: _Subject,
    check: "ModelCheck",
    problem: str | None,
    missing: list[str] | None,
) -> int:
    """Print what was found; if nothing was sent, what is ``missing`` and what would be sent."""
    use, found = subject.use, check.findings
    sent = missing is None
    shows = arguments.show_request or not sent
    if arguments.json:
        answer = {
            "ok": check.ok and not problem,
            "model": use.model,
            "agent": None if use.agent == _CHECKER else use.agent,
            "tool_format": use.tool_format,
            "use_proxy": use.use_proxy,
            **({} if sent else {"problem": problem, "missing": missing if problem else []}),
            "findings": [finding._asdict() for finding in found],
            **(
                {"usage": check.usage.to_dict(), "seconds": round(check.seconds, 3)} if sent else {}
            ),
            **({"requests": [call.to_dict() for call in check.requests]} if shows else {}),
        }
        print(json.dumps(answer, indent=2))
    else:
        print(cleaned(subject.title))
        if not sent:
            reason = f"{problem}; nothing was sent" if problem else "nothing was sent"
            print(f"{'error' if problem else 'ok':<8} {'request':<11} {one_line(reason, 1000)}")
        for part, status, text in found:
            print(f"{status:<8} {part:<11} {one_line(text, 1000)}")
        for number, call in enumerate(check.requests if shows else [], 1):
            text = call.text() if sent else call.request_text()
            print(f"\n--- request {number} ---\n{cleaned(text)}")
    if problem:
        return USAGE
    return DONE if check.ok else FAILED
