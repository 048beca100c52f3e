"""Files for agents: everything happens in one folder, ``[stdlib.fs] root`` of ``mail.toml``.

No symbolic link is ever followed. Each folder of a path is opened relative to the one before it,
and refused by the kernel when it is a link (``O_NOFOLLOW``). Nothing is checked first and opened
later, so nobody can swap a link in between.
"""

import asyncio
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Annotated, Final

from mail.config.stdlib import FsConfig
from mail.errors import ToolError
from mail.stdlib.settings import Workspace, workspace
from mail.stdlib.tools import ready_action

_MAX_BYTES: Final = 4096
_MAX_NAMES: Final = 64
_SHOWN: Final = 200

_MODE: Final = 0o700
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would wait for somebody to write to it.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Kind(StrEnum):
    """The kind of thing that a name in a folder stands for."""

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
        place.root.mkdir(_MODE, parents=True, exist_ok=True)
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
            os.mkdir(name, _MODE, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        found = kind_of(folder, name)
        if found is Kind.LINK:
            raise ToolError(f"{shown} leads through a symbolic link") from None
        if create:
            text = f"{shown} is not possible: a part of it is a file, not a directory"
            raise ToolError(text) from None
        raise ToolError(f"{shown} is not a directory") from None


def _kind(status: os.stat_result) -> Kind:
    for test, kind in (
        (stat.S_ISREG, Kind.FILE),
        (stat.S_ISDIR, Kind.FOLDER),
        (stat.S_ISLNK, Kind.LINK),
    ):
        if test(status.st_mode):
            return kind
    return Kind.SPECIAL


_HERE: Final = "relative to the workspace, for example notes/today.txt"
_File = Annotated[str, f"The file, {_HERE}"]
_Folder = Annotated[str, f"The directory, {_HERE}"]
_NOT_TEXT: Final = "`{}` must be a string"


@ready_action(idempotent=True, missing=_NOT_TEXT)
async def read_file(path: _File) -> str:
    """Read a text file of the workspace."""
    config = FsConfig()
    return await asyncio.to_thread(_read_text, workspace(config), path, config.max_bytes)


@ready_action(untrusted=False, missing=_NOT_TEXT)
async def write_file(path: _File, content: Annotated[str, "The whole new content"]) -> str:
    """Write a text file of the workspace, replacing it as a whole; missing directories are made."""
    config = FsConfig()
    return await asyncio.to_thread(_write_text, workspace(config), path, content, config.max_bytes)


@ready_action(untrusted=False, missing=_NOT_TEXT)
async def delete_file(path: _File) -> str:
    """Delete a file of the workspace."""
    return await asyncio.to_thread(_delete, workspace(FsConfig()), path)


@ready_action(untrusted=False, missing=_NOT_TEXT)
async def create_directory(path: _Folder) -> str:
    """Create a directory in the workspace, with the directories above it."""
    return await asyncio.to_thread(_create_folder, workspace(FsConfig()), path)


@ready_action(idempotent=True, missing=_NOT_TEXT)
async def read_directory(path: _Folder) -> str:
    """List the names in a directory of the workspace; "." is the workspace itself."""
    config = FsConfig()
    return await asyncio.to_thread(_list_folder, workspace(config), path, config.max_bytes)


_WRITABLE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS: Final = 0o777


def _read_text(place: Workspace, path: str, max_bytes: int) -> str:
    """Return the text of a file.

    Raises:
        ToolError: there is no such file, it is too large, or not UTF-8.
    """
    folders, name, shown = _file_place(path)
    with (
        _told(shown, f"file not found at {shown}"),
        opened_folder(place, folders, shown) as folder,
        opened_file(folder, name, shown) as handle,
        os.fdopen(handle, "rb", closefd=False) as file,
    ):
        data = file.read(max_bytes + 1)
        size = max(os.fstat(handle).st_size, len(data))
    if len(data) > max_bytes:
        raise ToolError(f"{shown} is too large to read: {size} bytes, the limit is {max_bytes}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ToolError(f"{shown} is not a text file in UTF-8 ({size} bytes)") from None


def _write_text(place: Workspace, path: str, content: str, max_bytes: int) -> str:
    """Write a file as a whole; readers see the old content or the new one, never a part.

    Raises:
        ToolError: the content is too large, or something else is in the way.
    """
    folders, name, shown = _file_place(path)
    try:
        data = content.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("`content` has characters that cannot be written as UTF-8") from None
    if len(data) > max_bytes:
        raise ToolError(f"`content` is too large: {len(data)} bytes, the limit is {max_bytes}")
    with _told(shown, f"file not found at {shown}"):
        _check_room(place, _size_of(place, folders, name, shown), len(data))
        with opened_folder(place, folders, shown, create=True) as folder:
            _replace(folder, name, data, shown)
    return f"successfully wrote to {shown}"


def _delete(place: Workspace, path: str) -> str:
    """Delete a file.

    Raises:
        ToolError: there is no such file.
    """
    folders, name, shown = _file_place(path)
    missing = f"file not found at {shown}"
    with _told(shown, missing), opened_folder(place, folders, shown) as folder:
        kind = kind_of(folder, name)
        if kind not in (Kind.FILE, Kind.MISSING):
            raise not_a(Kind.FILE, kind, shown)
        os.unlink(name, dir_fd=folder)
    return f"successfully deleted {shown}"


def _create_folder(place: Workspace, path: str) -> str:
    """Make a folder, and those above it.

    Raises:
        ToolError: it is there already, or a file is.
    """
    *folders, name = split_path(path) or [""]
    shown = shortened(path)
    with _told(shown, f"directory not found at {shown}"):
        if name:
            _check_room(place, _size_of(place, folders, name, shown), 0)
        with opened_folder(place, folders, shown, create=True) as parent:
            kind = kind_of(parent, name) if name else Kind.FOLDER
            if kind is Kind.FOLDER:
                raise ToolError(f"directory already exists at {shown}")
            if kind is not Kind.MISSING:
                raise ToolError(f"{shown} is {kind}, not a directory")
            os.mkdir(name, _MODE, dir_fd=parent)
    return f"successfully created directory at {shown}"


def _list_folder(place: Workspace, path: str, max_bytes: int) -> str:
    """Return the names in a folder, sorted, one a line.

    Raises:
        ToolError: there is no such folder, or its list is too long.
    """
    names, shown = split_path(path), shortened(path)
    found: list[str] = []
    size = 0
    with (
        _told(shown, f"directory not found at {shown}"),
        suppress(*() if names else (FileNotFoundError,)),  # nothing was written yet
        opened_folder(place, names, shown) as folder,
        os.scandir(folder) as entries,
    ):
        for entry in entries:
            found.append(_one_line(entry.name))
            size += len(found[-1]) + 1
            if size > max_bytes:
                raise ToolError(f"the list of {shown} is longer than {max_bytes} bytes")
    return "\n".join(sorted(found)) or "the directory is empty"


def _file_place(path: str) -> tuple[list[str], str, str]:
    """Return the folders of a path, the file's name, and the path as texts have it."""
    names, shown = split_path(path), shortened(path)
    if not names:
        raise ToolError(f"{shown or 'an empty path'} is not a file")
    return names[:-1], names[-1], shown


def _size_of(place: Workspace, folders: Sequence[str], name: str, shown: str) -> int | None:
    """Return the size of what a path stands for, or None when it leads to nothing."""
    with suppress(FileNotFoundError, ToolError), opened_folder(place, folders, shown) as folder:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    return None


def _check_room(place: Workspace, old: int | None, new: int) -> None:
    """Check that a workspace has room for what is to be written.

    The workspace is counted anew, because others may have changed it. Writes at the same time do
    not see each other: they exceed a limit by one file each at most.

    Args:
        place: The workspace.
        old: The size of what is replaced; None for something new.
        new: The size that it gets.

    Raises:
        ToolError: it is full.
    """
    grows = max(0, new - (old or 0))
    most_files, most_bytes = place.max_files, place.max_total_bytes
    if not ((old is None and most_files) or (grows and most_bytes)):
        return
    count, total = _use(place)
    if old is None and 0 < most_files <= count:
        raise ToolError(
            f"the workspace has {count:,} files and directories, and the limit is {most_files:,}; "
            "delete files that are not needed, or have the operator raise [stdlib.fs] max_files"
        )
    if grows and 0 < most_bytes < total + grows:
        raise ToolError(
            f"the workspace has {total:,} bytes, this would add {grows:,}, and the limit is "
            f"{most_bytes:,}; delete files that are not needed, or have the operator raise "
            "[stdlib.fs] max_total_bytes"
        )


def _use(place: Workspace) -> tuple[int, int]:
    """Return how many files and folders a workspace has, and their bytes, as far as they matter."""
    count = total = 0
    with suppress(FileNotFoundError, ToolError), opened_folder(place, (), ".") as folder:
        for size in _sizes(folder):
            count += 1
            total += size
            if 0 < place.max_files <= count:
                break
    return count, total


def _sizes(folder: int) -> Iterator[int]:
    """Yield the size of each file in an open folder and those in it; a folder counts as 0."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    yield entry.stat(follow_symlinks=False).st_size
                continue
            yield 0
            with suppress(OSError):  # deleted meanwhile, or not ours
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                try:
                    yield from _sizes(inner)
                finally:
                    os.close(inner)


def _replace(folder: int, name: str, data: bytes, shown: str) -> None:
    """Write beside the file, then take its place: renaming follows no link."""
    mode = None
    kind = kind_of(folder, name)
    if kind is Kind.FILE:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not mode & _WRITABLE:
            raise ToolError(f"{shown} is read-only")
    elif kind is not Kind.MISSING:
        raise not_a(Kind.FILE, kind, shown)
    draft = f".mail-{secrets.token_hex(8)}.part"
    handle = os.open(draft, _NEW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode & _PERMISSIONS)
            file.write(data)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(draft, dir_fd=folder)
        raise


def _one_line(name: str) -> str:
    readable = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in readable)


@contextmanager
def _told(shown: str, missing: str) -> Iterator[None]:
    """Turn the system's errors into texts that name only the agent's own path."""
    try:
        yield
    except FileNotFoundError:
        raise ToolError(missing) from None
    except OSError as error:
        raise ToolError(f"{shown}: {error.strerror or type(error).__name__}") from None
