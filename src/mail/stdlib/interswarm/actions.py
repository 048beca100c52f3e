"""The public facts of any MAIL server: its identity, its health, the swarms that it knows."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from mail.egress.bodies import LimitedBody
from mail.errors import ToolError
from mail.stdlib.tools import exchange, ready_action

if TYPE_CHECKING:
    import httpx

_OK: Final = 200
_UNAVAILABLE: Final = 503
_NOT_MAIL: Final = "remote URL is not a valid MAIL swarm"
_Url = Annotated[str, "The base address of a MAIL server, for example https://example.com"]


@ready_action(idempotent=True)
async def ping_swarm(url: _Url) -> str:
    """Check whether a MAIL swarm runs at an address."""
    answer = await _read(url, "/")
    swarm = answer.get("swarm")
    known = (
        answer.get("name") == "mail"
        and isinstance(swarm, dict)
        and all(isinstance(swarm.get(key), str) for key in ("name", "entrypoint"))
    )
    if not known or not isinstance(answer.get("status"), str):
        raise ToolError(_NOT_MAIL)
    if answer["status"] != "running":
        raise ToolError(f"the remote swarm is {answer['status'][:100]}, not running")
    return "pong"


@ready_action(idempotent=True)
async def get_swarm_health(url: _Url) -> str:
    """Ask a MAIL swarm how it is: healthy, degraded, draining, …"""
    answer = await _read(url, "/health")
    status = answer.get("status")
    for value in (status, answer.get("swarm_name")):
        if not isinstance(value, str) or not value:
            raise ToolError(_NOT_MAIL)
    return str(status)


@ready_action(idempotent=True)
async def get_swarm_registry(url: _Url) -> str:
    """List the public swarms that a MAIL swarm knows, each as name@address."""
    answer = await _read(url, "/swarms")
    swarms = answer.get("swarms")
    if not isinstance(swarms, list):
        raise ToolError(_NOT_MAIL)
    return "\n".join(_entry(swarm) for swarm in swarms) or "the registry is empty"


def _entry(swarm: object) -> str:
    if not isinstance(swarm, dict):
        raise ToolError(_NOT_MAIL)
    name, base_url = swarm.get("swarm_name"), swarm.get("base_url")
    if not isinstance(name, str) or not isinstance(base_url, str):
        raise ToolError(_NOT_MAIL)
    return f"{name}@{base_url}"


async def _read(url: str, path: str) -> dict[str, Any]:
    def read(response: "httpx.Response", body: LimitedBody) -> dict[str, Any]:
        # A server that stops says so with a 503, in a body like any other.
        answered = (_OK, _UNAVAILABLE) if path == "/health" else (_OK,)
        answer = _parsed(body) if response.status_code in answered else None
        if response.status_code != _OK and not (answer and "swarm_name" in answer):
            raise ToolError(f"remote URL returned status code {response.status_code}")
        if answer is None:
            raise ToolError(_NOT_MAIL)
        return answer

    return await exchange("GET", url.rstrip("/") + path, read)


def _parsed(body: LimitedBody) -> dict[str, Any] | None:
    from pydantic_core import from_json

    try:
        answer = from_json(body.data) if body.complete else None
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
