"""Files for agents: everything happens in one folder, ``[stdlib.fs] root`` of ``mail.toml``."""

import asyncio
from typing import Any, Final

from mail.config.stdlib import FsConfig
from mail.stdlib.fs import files
from mail.stdlib.settings import workspace
from mail.stdlib.tools import make_action, text_argument

__all__ = ["create_directory", "delete_file", "read_directory", "read_file", "write_file"]

_NOT_TEXT: Final = "`{name}` must be a string"


def _path(what: str) -> dict[str, Any]:
    return {
        "type": "string",
        "description": f"{what}, relative to the workspace, for example notes/today.txt",
    }


async def _read_file(args: dict[str, Any]) -> str:
    """Read a text file of the workspace."""
    path = text_argument(args, "path", _NOT_TEXT)
    config = FsConfig()
    return await asyncio.to_thread(files.read_text, workspace(config), path, config.max_bytes)


async def _write_file(args: dict[str, Any]) -> str:
    """Write a text file of the workspace, replacing it as a whole; missing directories are made."""
    path = text_argument(args, "path", _NOT_TEXT)
    content = text_argument(args, "content", _NOT_TEXT)
    config = FsConfig()
    return await asyncio.to_thread(
        files.write_text, workspace(config), path, content, config.max_bytes
    )


async def _delete_file(args: dict[str, Any]) -> str:
    """Delete a file of the workspace."""
    path = text_argument(args, "path", _NOT_TEXT)
    return await asyncio.to_thread(files.delete, workspace(FsConfig()), path)


async def _create_directory(args: dict[str, Any]) -> str:
    """Create a directory in the workspace, with the directories above it."""
    path = text_argument(args, "path", _NOT_TEXT)
    return await asyncio.to_thread(files.create_folder, workspace(FsConfig()), path)


async def _read_directory(args: dict[str, Any]) -> str:
    """List the names in a directory of the workspace; "." is the workspace itself."""
    path = text_argument(args, "path", _NOT_TEXT)
    config = FsConfig()
    return await asyncio.to_thread(files.list_folder, workspace(config), path, config.max_bytes)


read_file: Final = make_action(_read_file, {"path": _path("The file")}, ("path",), idempotent=True)
write_file: Final = make_action(
    _write_file,
    {
        "path": _path("The file"),
        "content": {"type": "string", "description": "The whole new content"},
    },
    ("path", "content"),
)
delete_file: Final = make_action(_delete_file, {"path": _path("The file")}, ("path",))
create_directory: Final = make_action(
    _create_directory, {"path": _path("The directory")}, ("path",)
)
read_directory: Final = make_action(
    _read_directory, {"path": _path("The directory")}, ("path",), idempotent=True
)
