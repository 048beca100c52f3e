"""Addresses of agents, people and the system, and the ``role:id@swarm`` strings of contributors."""

from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from mail.errors import AddressError

AddressType = Literal["admin", "agent", "user", "system"]


class MAILAddress(TypedDict):
    """A sender or recipient: the kind of party, and its name."""

    address_type: Annotated[AddressType, Field(description="The kind of party.")]
    address: Annotated[str, Field(description="The name of the party.")]


MAIL_ALL_LOCAL_AGENTS: Final[MAILAddress] = {"address_type": "agent", "address": "all"}
"""Every agent of the local swarm, written as one recipient."""


class Contributor(NamedTuple):
    """A runtime that takes part in a task, written ``role:id@swarm``."""

    role: str
    id: str
    swarm: str


def create_address(address: str, address_type: AddressType) -> MAILAddress:
    """Build an address of any kind."""
    return {"address_type": address_type, "address": address}


def create_agent_address(address: str) -> MAILAddress:
    """Build the address of an agent: ``name`` or ``name@swarm``."""
    return {"address_type": "agent", "address": address}


def create_admin_address(address: str) -> MAILAddress:
    """Build the address of an administrator."""
    return {"address_type": "admin", "address": address}


def create_user_address(address: str) -> MAILAddress:
    """Build the address of a user."""
    return {"address_type": "user", "address": address}


def create_system_address(address: str) -> MAILAddress:
    """Build the address of the system itself, named after its swarm."""
    return {"address_type": "system", "address": address}


def get_address_string(address: MAILAddress) -> str:
    """Return the name part of an address."""
    return address["address"]


def get_address_type(address: MAILAddress) -> AddressType:
    """Return the kind of an address."""
    return address["address_type"]


def parse_agent_address(address: str) -> tuple[str, str | None]:
    """Split ``agent@swarm`` at its first ``@``; a local address has no swarm.

    >>> parse_agent_address("weather@beta")
    ('weather', 'beta')
    >>> parse_agent_address("weather")
    ('weather', None)
    """
    name, found, swarm = address.partition("@")
    return (name.strip(), swarm.strip()) if found else (name.strip(), None)


def is_remote_target(target: str) -> bool:
    """Tell whether a communication target may name agents of other swarms.

    That is ``agent@swarm``, ``*@swarm`` (each agent of a swarm) or ``*@*`` (each of any swarm).
    """
    name, swarm = parse_agent_address(target)
    if not (name and swarm) or "@" in swarm or ":" in target or name.lower() == "all":
        return False
    return name == "*" or swarm != "*"


def format_agent_address(name: str, swarm: str | None = None) -> MAILAddress:
    """Build an agent address from its parts."""
    return create_agent_address(f"{name}@{swarm}" if swarm else name)


def local_agent_name(address: str, swarm: str) -> str:
    """Drop the swarm part when it names the local swarm: ``x@local`` is ``x`` (MAIL-ADDR-2)."""
    name, target = parse_agent_address(address)
    return name if target is None or target == swarm else f"{name}@{target}"


def format_contributor(role: str, identifier: str, swarm: str) -> str:
    """Write a contributor as ``role:id@swarm``."""
    return f"{role}:{identifier}@{swarm}"


def parse_task_contributor(contributor: str) -> Contributor:
    """Read ``role:id@swarm``; the id may itself contain ``:`` and ``@``.

    Raises:
        AddressError: a part is missing or empty.

    >>> parse_task_contributor("user:bob@corp.example@alpha")
    Contributor(role='user', id='bob@corp.example', swarm='alpha')
    """
    role, colon, rest = contributor.partition(":")
    identifier, at, swarm = rest.rpartition("@")
    if not (colon and at and role and identifier and swarm):
        raise AddressError("task contributor must be in the format 'role:id@swarm'")
    return Contributor(role, identifier, swarm)


def parse_task_contributors(contributors: list[str]) -> list[Contributor]:
    """Read several contributor strings.

    Raises:
        AddressError: one of them cannot be read.
    """
    return [parse_task_contributor(contributor) for contributor in contributors]
