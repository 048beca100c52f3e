"""Open what lies below one folder, without ever following a symbolic link.

Each folder of a path is opened relative to the one before it, and refused by the kernel when it is
a link (``O_NOFOLLOW``). Nothing is checked first and opened later, so nobody can swap a link in
between.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Final

from mail.errors import ToolError
from mail.stdlib.settings import Workspace

__all__ = ["Kind", "kind_of", "not_a", "opened_file", "opened_folder", "shortened", "split_path"]

_MAX_BYTES: Final = 4096
_MAX_NAMES: Final = 64
_SHOWN: Final = 200

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would wait for somebody to write to it.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Kind(StrEnum):
    """What a name in a folder stands for."""

    MISSING = "missing"
    FILE = "a file"
    FOLDER = "a directory"
    LINK = "a symbolic link"
    SPECIAL = "a device, pipe or socket"


def split_path(path: str) -> list[str]:
    """Return the names of a relative path; none for the workspace itself.

    Raises:
        ToolError: the path is absolute, could lead outside the workspace, or is too long or deep.
    """
    if "\0" in path:
        raise ToolError("`path` must not contain NUL characters")
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise ToolError("`path` contains characters that are not allowed in file names") from None
    if size > _MAX_BYTES:
        raise ToolError(f"`path` is too long: {size} bytes, the limit is {_MAX_BYTES}")
    if path.startswith("/"):
        raise ToolError(
            f"{shortened(path)} is an absolute path; paths are relative to the workspace"
        )
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ToolError(f"{shortened(path)} could lead outside the workspace; '..' is not allowed")
    if len(names) > _MAX_NAMES:
        raise ToolError(f"`path` is too deep: {len(names)} names, the limit is {_MAX_NAMES}")
    return names


def shortened(path: str) -> str:
    """Return a path as texts have it: a long one is cut."""
    return path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…"


@contextmanager
def opened_folder(
    place: Workspace, names: Sequence[str], shown: str, *, create: bool = False
) -> Iterator[int]:
    """Open a folder of the workspace and give its file descriptor.

    Args:
        place: The workspace. Its root may be reached through links, since the operator named it.
        names: The folders on the way, from the workspace.
        shown: The path as the agent wrote it.
        create: Make the folders that are missing, the root too.

    Raises:
        FileNotFoundError: one of them is missing.
        ToolError: one of them is a link or no folder.
    """
    if create:
        place.root.mkdir(parents=True, exist_ok=True)
    here = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in (*place.folders, *names):
            inner = _enter(here, name, shown, create)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


@contextmanager
def opened_file(folder: int, name: str, shown: str) -> Iterator[int]:
    """Open a regular file of an open folder for reading.

    Raises:
        FileNotFoundError: there is none.
        ToolError: the name stands for something else.
    """
    kind = kind_of(folder, name)  # opening a device can do something; the check below decides
    if kind not in (Kind.FILE, Kind.MISSING):
        raise not_a(Kind.FILE, kind, shown)
    try:
        handle = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise not_a(Kind.FILE, Kind.LINK, shown) from None
        raise
    try:
        found = _kind(os.fstat(handle))
        if found is not Kind.FILE:
            raise not_a(Kind.FILE, found, shown)
        yield handle
    finally:
        os.close(handle)


def kind_of(folder: int, name: str) -> Kind:
    """Say what a name in an open folder stands for; links are not followed."""
    try:
        return _kind(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return Kind.MISSING


def not_a(wanted: Kind, found: Kind, shown: str) -> ToolError:
    """Return the error that says what is in the way."""
    reason = f": it is {found}" if found in (Kind.LINK, Kind.SPECIAL) else ""
    return ToolError(f"{shown} is not {wanted}{reason}")


def _enter(folder: int, name: str, shown: str, create: bool) -> int:
    if create and kind_of(folder, name) is Kind.MISSING:
        with suppress(FileExistsError):  # somebody was faster; what it is, opening will show
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        found = kind_of(folder, name)
        if found is Kind.LINK:
            raise ToolError(f"{shown} leads through a symbolic link") from None
        raise ToolError(f"{shown} is not a directory" if not create else _in_way(shown)) from None


def _in_way(shown: str) -> str:
    return f"{shown} is not possible: a part of it is a file, not a directory"


def _kind(status: os.stat_result) -> Kind:
    for test, kind in (
        (stat.S_ISREG, Kind.FILE),
        (stat.S_ISDIR, Kind.FOLDER),
        (stat.S_ISLNK, Kind.LINK),
    ):
        if test(status.st_mode):
            return kind
    return Kind.SPECIAL
