"""The settings of the ready-made actions, read from ``mail.toml`` at the time of the call."""

import hashlib
import string
from inspect import unwrap
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mail.auth.callers import ROLES
from mail.config.stdlib import FsConfig, HttpConfig, StdlibConfig
from mail.core.call_context import current_call
from mail.egress.rules import EgressPolicy
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.api import MAILSwarmTemplate

_PLAIN: Final = frozenset(string.ascii_lowercase + string.digits + "-_.")
_LONGEST_NAME: Final = 120
_SHOWN: Final = 3
_FS_ACTIONS: Final = "mail.stdlib.fs.actions"


class Workspace(NamedTuple):
    """The place of file actions: a folder that the operator named, and folders of ours in it.

    Attributes:
        root: The operator's folder.
        folders: The way from there to the workspace.
        max_total_bytes: The limit of all files together; 0 for none.
        max_files: The largest number of files and folders; 0 for any number.
    """

    root: Path
    folders: tuple[str, ...] = ()
    max_total_bytes: int = 0
    max_files: int = 0


def workspace(config: FsConfig) -> Workspace:
    """Return the workspace of the caller whose agent is at work; it need not exist yet.

    A caller has the folder ``ROLE/ID`` in the root. Where the root is shared, and for a program
    that calls an action by hand, outside of any agent's turn, it is the root itself. Such a program
    is the operator's, and may fill it.
    """
    root = Path(config.root).expanduser().absolute()
    owner = current_call().owner
    if owner is None:
        return Workspace(root)
    _, role, identifier = owner
    folders = () if config.shared else (_folder_name(role), _folder_name(identifier))
    return Workspace(root, folders, config.max_total_bytes, config.max_files)


def stray_files(template: "MAILSwarmTemplate") -> str | None:
    """Say which files in the workspace's root no caller sees, if the swarm has file actions."""
    config = FsConfig()
    actions = chain(template.actions, *(agent.actions for agent in template.agents))
    homes = {getattr(unwrap(action.function), "__module__", None) for action in actions}
    if config.shared or _FS_ACTIONS not in homes:
        return None
    root = workspace(config).root
    try:
        found = sorted({path.name for path in root.iterdir()} - set(ROLES))
    except OSError:
        return None
    if not found:
        return None
    names = ", ".join(map(repr, found[:_SHOWN])) + (", …" if len(found) > _SHOWN else "")
    return (
        f"the workspace {root} holds files that no caller's agents see ({names}): "
        "move them to ROLE/ID in it, or set shared = true under [stdlib.fs]"
    )


def _folder_name(identifier: str) -> str:
    """Return a folder's name for any text: no two texts have one, on no file system.

    Capitals are encoded too, because some file systems do not tell them apart.
    """
    name = "".join(c if c in _PLAIN else _encoded(c) for c in identifier)
    if name.startswith("."):
        name = _encoded(".") + name[1:]
    if len(name) <= _LONGEST_NAME:
        return name or "%"
    digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: _LONGEST_NAME // 2]}~{digest[: _LONGEST_NAME // 2 - 1]}"


def _encoded(character: str) -> str:
    return "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def egress_policy(config: HttpConfig) -> EgressPolicy:
    """Return where requests may go.

    Raises:
        ConfigError: an entry of ``allow`` is no host, address or network.
    """
    try:
        return EgressPolicy(allow=tuple(config.allow))
    except ConfigError as error:
        raise ConfigError(f"[{HttpConfig.table}] 'allow': {error}") from None


def check_settings() -> None:
    """Check the ``[stdlib]`` tables, so that a wrong one stops the start and not the first call.

    Raises:
        ConfigError: naming the file, the key and what is expected.
    """
    config = StdlibConfig()
    egress_policy(config.http)
    config.email.check()
