"""The commands of ``mail client``: one function each, and how its arguments are parsed."""

import json
import sys
from typing import Any, Final

import click

from mail.cli import tasks, undelivered
from mail.cli.common import DONE, FAILED, PAUSED
from mail.cli.credentials import read_token
from mail.cli.repl import approvals, desk, memory
from mail.cli.repl.screen import Part, exit_code, show_event
from mail.cli.repl.session import Section, Session
from mail.cli.repl.talk import follow, show_end
from mail.cli.table import Namespace, argument, flag, option
from mail.errors import ConfigError, MAILError

_RESERVED: Final = frozenset(
    {
        *("body", "subject", "msg_type", "entrypoint", "show_events", "task_id", "resume_from"),
        *("self", "stream_tokens", "idempotency_key"),
        *("input", "tools", "instructions", "previous_response_id", "tool_choice"),
        "parallel_tool_calls",
    }
)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    value = _read(text)
    if not isinstance(value, dict):
        raise click.BadParameter("must be a JSON object, for example '{\"max_steps\": 5}'")
    return value


def run_options(text: str) -> dict[str, Any]:
    """Read the JSON object of ``--kwargs``."""
    value = json_object(text)
    for name in value:
        if name in _RESERVED:
            raise click.BadParameter(f"'{name}' is not an option of the run; use its own flag")
    return value


def json_list(text: str) -> list[Any]:
    """Read a JSON list."""
    value = _read(text)
    if not isinstance(value, list):
        raise click.BadParameter("must be a JSON list")
    return value


def json_or_text(text: str) -> Any:
    """Read a JSON object; anything else is plain text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def targets(text: str) -> list[str]:
    """Read addresses: a JSON list, or ``agent@swarm`` separated by commas."""
    if not text.lstrip().startswith("["):
        return [target for part in text.split(",") if (target := part.strip())]
    value = json_list(text)
    if not all(isinstance(target, str) for target in value):
        raise click.BadParameter("must be a JSON list of strings")
    return value


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"not valid JSON: {error}") from None


_KEY: Final = option(
    *("-ik", "--idempotency-key"),
    metavar="KEY",
    told="a unique name for this request, which makes it safe to repeat",
)
_server, _messages = Section("The server and you"), Section("Messages to agents")
_swarms, _debug = Section("Other swarms"), Section("For development")
SECTIONS: Final = (
    *(_server, _messages, tasks.section, approvals.section, undelivered.section),
    *(memory.section, desk.section, _swarms, _debug),
)


@_server("ping p", "show the server's name and version", "pinging")
async def _ping(session: Session, arguments: Namespace) -> int:
    root: dict[str, Any] = {**await session.client.ping()}
    version, swarm = root.get("version"), root.get("swarm")
    name = f"{root.get('name')} {version}" if version else f"{root.get('name')}"
    # Servers that follow the older openapi.yaml name the swarm, newer ones describe it.
    shown = f"{swarm.get('name')} {swarm.get('version')}" if isinstance(swarm, dict) else f"{swarm}"
    line = f"pong: {name} (protocol {root.get('protocol_version')}), swarm {shown}"
    return session.tell(arguments, root, line)


@_server("health h", "show the server's health", "getting health")
async def _health(session: Session, arguments: Namespace) -> int:
    health = await session.client.get_health()
    return session.tell(arguments, health, f"health: {health.get('status')}")


@_server(
    "health-update hu",
    "set the server's health (admins)",
    "updating health",
    argument("status", "the status for GET /health to report"),
)
async def _health_update(session: Session, arguments: Namespace) -> int:
    health = await session.client.update_health(arguments.status)
    return session.tell(arguments, health, f"successfully updated health to {health.get('status')}")


@_server("whoami me id", "show who you are", "getting whoami")
async def _whoami(session: Session, arguments: Namespace) -> int:
    who = await session.client.get_whoami()
    return session.tell(arguments, who, f"role {who.get('role')} with ID {who.get('id')}")


@_server("status s", "show the state of your instance", "getting status")
async def _status(session: Session, arguments: Namespace) -> int:
    status = await session.client.get_status()
    told, use = [], status.get("storage")  # which older servers do not tell
    if isinstance(use, dict):
        known = map(use.get, ("bytes", "max_bytes", "open_tasks"))
        taken, most, tasks = (f"{n:,}" if isinstance(n, int) else "any number" for n in known)
        told = [f"storage: {taken} of {most} bytes, {tasks} open tasks"]
    return session.tell(
        arguments,
        status,
        f"user MAIL {'IS' if status.get('user_mail_ready') else 'IS NOT'} ready",
        f"user task {'IS' if status.get('user_task_running') else 'IS NOT'} running",
        *told,
    )


@_server(
    "login l",
    "switch to another key",
    "logging in",
    argument("api_key", "the new key (default: ask for it)", metavar="[KEY]", required=False),
)
async def _login(session: Session, arguments: Namespace) -> int:
    if arguments.api_key is None and not sys.stdin.isatty():
        raise ConfigError("give the key")  # the next line is the next command
    key = arguments.api_key or read_token(session.client.base_url)
    who = await session.client.login(key)
    return session.tell(
        arguments,
        who,
        f"successfully logged into {session.client.base_url}",
        f"> role: {who.get('role')}",
        f"> id: {who.get('id')}",
    )


@_server("logout lo", "stop using a key", "logging out")
async def _logout(session: Session, arguments: Namespace) -> int:
    client = session.client
    if client.api_key is None:
        raise MAILError("not currently logged in")
    client.api_key, client.user_id, client.user_role = None, "unknown", "unknown"
    answer = {"url": client.base_url, "status": "logged_out"}
    return session.tell(arguments, answer, f"successfully logged out of {client.base_url}")


_BODY: Final = argument(
    "body", "the message; on the command line of the shell, - for standard input"
)
_TASK_ID: Final = option(
    "-tid", "--task-id", metavar="ID", told="the task to continue, or a name for a new one"
)
_POSTING: Final = (
    _BODY,
    option("-s", "--subject", default="New Message", told="the subject"),
    option(
        *("-t", "--msg-type"),
        default="request",
        type=click.Choice(("request", "response", "broadcast", "interrupt")),
        told="default: request",
    ),
    _TASK_ID,
    option("-e", "--entrypoint", metavar="AGENT", told="the agent that receives it"),
    option(
        *("-rf", "--resume-from"),
        type=click.Choice(("user_response", "breakpoint_tool_call")),
        told="how to continue the task",
    ),
    _KEY,
    option(
        *("-k", "--kwargs"),
        metavar="JSON",
        type=run_options,
        default="{}",
        told="options of the run, for example '{\"max_steps\": 5}'",
    ),
)

_POSTED: Final = frozenset(
    {"body", "subject", "msg_type", "entrypoint", "task_id", "resume_from", "idempotency_key"}
)


@_messages(
    "message m msg",
    "send a message and wait for the answer",
    "posting message",
    *_POSTING,
    flag("-se", "--show-events", told="also show the events"),
)
async def _message(session: Session, arguments: Namespace) -> int:
    answer = await session.client.post_message(
        **_fields(arguments), show_events=arguments.show_events, **arguments.kwargs
    )
    session.talk.task_id = answer.get("task_id", session.talk.task_id)
    if session.wants_json(arguments):
        session.screen.show_json(answer)
    else:
        for event in answer.get("events") or ():
            show_event(session.screen, event["event"], event["data"])
        await show_end(session, answer)
    return exit_code(answer.get("status"), answer.get("ended_by"))


@_messages(
    "message-stream ms msg-s",
    "send a message and show its events",
    "streaming message",
    *_POSTING,
    flag("-st", "--stream-tokens", told="show model output as it is generated"),
)
async def _message_stream(session: Session, arguments: Namespace) -> int:
    stream = await session.client.post_message_stream(
        **_fields(arguments), stream_tokens=arguments.stream_tokens, **arguments.kwargs
    )
    return await follow(session, stream, as_json=session.wants_json(arguments))


@_messages(
    "message-interswarm mi msg-i",
    "send a message to agents of other swarms",
    "posting interswarm message",
    _BODY,
    argument("targets", "'[\"agent@swarm\"]' or agent@swarm", type=targets),
    argument("user_token", "your token for the other swarm ('' for agents of this server)"),
    option("-s", "--subject", told="the subject"),
    option(
        "-t", "--msg-type", type=click.Choice(("request", "broadcast")), told="default: request"
    ),
    _TASK_ID,
    option("-ri", "--routing-info", metavar="JSON", type=json_object, told="routing hints"),
    flag("--stream", told="show the events of the run as they happen"),
)
async def _message_interswarm(session: Session, arguments: Namespace) -> int:
    names = ("subject", "targets", "msg_type", "task_id", "routing_info")
    message: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    client, said = session.client, (arguments.body, arguments.user_token)
    if arguments.stream:
        stream = await client.stream_interswarm_message(*said, **message)
        return await follow(session, stream, as_json=session.wants_json(arguments))
    answer = await client.send_interswarm_message(*said, **message)
    responses = answer.get("responses") or {"": answer.get("response")}
    texts = {swarm: _text_of(response) for swarm, response in responses.items()}
    if session.wants_json(arguments) or None in texts.values():
        session.screen.show_json(answer)
    else:
        for swarm, text in texts.items():
            session.screen.say((f"{swarm}: " if swarm else "", "dim"), str(text))
    return DONE


def _text_of(response: object) -> str | None:
    """Return the text of a message, which some servers send alone."""
    content = response.get("message") if isinstance(response, dict) else None
    text = content.get("body") if isinstance(content, dict) else response
    return text if isinstance(text, str) else None


def _fields(arguments: Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in _POSTED}


@_swarms("swarms-get sg swarms-g", "list the swarms that the server knows", "getting swarms")
async def _swarms_get(session: Session, arguments: Namespace) -> int:
    answer = await session.client.get_swarms()
    swarms = answer.get("swarms") or []
    lines: list[list[Part]] = [[f"found {len(swarms)} swarms:"]]
    for swarm in swarms:
        state = "" if swarm.get("is_active", True) else "  (not responding)"
        lines.append([f"{swarm.get('swarm_name')}@{swarm.get('base_url')}", (state, "dim")])
    return session.tell(arguments, answer, *lines)


_NAME: Final = argument("name", "the other swarm's name")


@_swarms(
    "swarm-register sr swarm-r",
    "register another swarm (admins)",
    "registering swarm",
    _NAME,
    argument("base_url", "the base URL of its server"),
    argument("auth_token", "the token this server uses to call it", required=False),
    flag("-V", "--volatile", told="forget it when the server stops"),
    option("-k", "--public-key", metavar="THUMBPRINT", told="the key with which it signs its mail"),
)
async def _swarm_register(session: Session, arguments: Namespace) -> int:
    from mail.net.endpoints import token_variable

    answer = await session.client.register_swarm(
        arguments.name,
        arguments.base_url,
        auth_token=arguments.auth_token,
        volatile=arguments.volatile,
        public_key=arguments.public_key,
    )
    lines = [f"swarm {answer.get('swarm_name')} registered"]
    if arguments.auth_token and not arguments.volatile:
        variable = token_variable(arguments.name)
        lines.append(f"the server does not store the token: set {variable} in its environment")
    return session.tell(arguments, answer, *lines)


@_swarms(
    "swarms-registry sgr swarms-r",
    "list all swarms that the server knows, and proposed ones (admins)",
    "getting registry",
)
async def _swarms_registry(session: Session, arguments: Namespace) -> int:
    answer = await session.client.get_swarm_registry()
    lines: list[list[Part]] = []
    for swarm in answer["swarms"]:
        facts = [
            *(["volatile"] if swarm["volatile"] else []),
            *([] if swarm["is_active"] else ["not responding"]),
            *([] if swarm["has_token"] or not swarm["token_variable"] else ["no token"]),
            *(f"key {key['kid']}" for key in swarm.get("public_keys") or ()),
        ]
        place = f"{swarm['swarm_name']}@{swarm['base_url']}"
        lines.append([place, (f"  ({', '.join(facts)})" if facts else "", "dim")])
    for proposed in answer["proposed"]:
        place = f"{proposed['swarm_name']}@{proposed['base_url']}"
        lines.append([place, (f"  (proposed by {proposed['listed_by']})", "dim")])
    return session.tell(arguments, answer, *lines)


@_swarms(
    "swarms-discover sdi swarms-d",
    "ask servers which swarms they list, and propose the new ones (admins)",
    "discovering swarms",
    argument("urls", "the base URL of a MAIL server", metavar="URL...", nargs=-1, required=True),
)
async def _swarms_discover(session: Session, arguments: Namespace) -> int:
    answer = await session.client.discover_swarms(arguments.urls)
    lines = [f"swarm {name} is proposed" for name in answer["proposed"]] or ["no new swarms"]
    problems = [f"{each['field']}: {each['problem']}" for each in answer["problems"]]
    return session.tell(arguments, answer, *lines, *problems)


@_swarms("swarm-accept sa swarm-a", "register a proposed swarm (admins)", "accepting swarm", _NAME)
async def _swarm_accept(session: Session, arguments: Namespace) -> int:
    answer = await session.client.accept_swarm(arguments.name)
    return session.tell(arguments, answer, f"swarm {answer.get('swarm_name')} registered")


@_swarms(
    "swarm-remove srm swarm-rm",
    "remove another swarm, or its proposal (admins)",
    "removing swarm",
    _NAME,
    flag("--cancel-tasks", told="cancel its open tasks, too"),
)
async def _swarm_remove(session: Session, arguments: Namespace) -> int:
    cancel = arguments.cancel_tasks
    answer = await session.client.unregister_swarm(arguments.name, cancel_tasks=cancel)
    name, left = answer.get("swarm_name"), answer.get("open_tasks")
    told = f"; {left} of its tasks go on: swarm-remove {name} --cancel-tasks" if left else ""
    return session.tell(arguments, answer, f"swarm {name} removed{told}")


@_swarms("swarm-dump sd swarm-d", "write the swarm to the server's log (admins)", "dumping swarm")
async def _swarm_dump(session: Session, arguments: Namespace) -> int:
    answer = await session.client.dump_swarm()
    return session.tell(arguments, answer, f"swarm '{answer.get('swarm_name')}' dumped")


@_swarms(
    "swarm-load-from-json sl swarm-l",
    "replace the server's swarm (admins)",
    "loading swarm from JSON",
    argument("swarm_json", "the definition of one swarm, as JSON", metavar="JSON"),
)
async def _swarm_load(session: Session, arguments: Namespace) -> int:
    answer = await session.client.load_swarm_from_json(arguments.swarm_json)
    return session.tell(arguments, answer, f"swarm '{answer.get('swarm_name')}' loaded")


@_debug(
    "responses r resp",
    "call OpenAI's Responses API (servers with --debug)",
    "posting responses",
    argument("input", "input items, as a JSON list", type=json_list),
    argument("tools", "your tools, as a JSON list ('[]' for none)", type=json_list),
    option("-i", "--instructions", metavar="TEXT", told="a system prompt"),
    option("-pr", "--previous-response-id", metavar="ID", told="the response to continue"),
    option("-tc", "--tool-choice", metavar="CHOICE", type=json_or_text, told="a name or JSON"),
    option(
        *("-ptc", "--parallel-tool-calls/--no-parallel-tool-calls"),
        default=None,
        told="whether the model may call several tools at once",
    ),
    _KEY,
    option(
        *("-k", "--kwargs"),
        metavar="JSON",
        type=run_options,
        default="{}",
        told="more request fields",
    ),
)
async def _responses(session: Session, arguments: Namespace) -> int:
    response = await session.client.debug_post_responses(
        arguments.input,
        arguments.tools,
        instructions=arguments.instructions,
        previous_response_id=arguments.previous_response_id,
        tool_choice=arguments.tool_choice,
        parallel_tool_calls=arguments.parallel_tool_calls,
        idempotency_key=arguments.idempotency_key,
        **arguments.kwargs,
    )
    if session.wants_json(arguments):
        session.screen.show_json(response.model_dump(mode="json"))
    else:
        _show_response(session, response)
    return _response_code(response)


def _response_code(response: Any) -> int:
    if response.status in ("failed", "cancelled"):
        return FAILED
    answered = {i.call_id for i in response.output if i.type == "function_call_output"}
    calls = {i.call_id for i in response.output if i.type == "function_call"}
    return PAUSED if calls - answered else DONE


def _show_response(session: Session, response: Any) -> None:
    for item in response.output:
        if item.type == "function_call":
            session.screen.say((item.name, "bold yellow"), f"({item.arguments})")
            session.screen.note((f"  call_id: {item.call_id}", "dim"))
        elif item.type == "message":
            session.screen.say("".join(getattr(p, "text", "") for p in item.content))
        else:
            session.screen.note((f"[{item.type}]", "dim"))
    if response.error is not None:
        session.screen.fail(f"error: {response.error.message}")
    state = f" {response.status}" if response.status else ""
    session.screen.note((f"response {response.id}{state}, model {response.model}", "dim"))


COMMANDS: Final = tuple(command for section in SECTIONS for command in section.commands)
