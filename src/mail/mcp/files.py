"""Files on the disk of the machine where an MCP client runs: only inside folders that were opened.

A path is followed from the folder down, and no step of it may be a link by then: what changes
meanwhile leads nowhere else. What is not a regular file is refused.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple

from mail.errors import ConfigError, ToolError

_PIECE: Final = 256 * 1024
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_AT_ONCE: Final = getattr(os, "O_NONBLOCK", 0)


class LocalFile(NamedTuple):
    """An open file: its name, and how many bytes it has."""

    name: str
    size: int
    file: IO[bytes]

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield its bytes, as many as it had when it was opened.

        Raises:
            ToolError: there are fewer by now.
        """
        left = self.size
        while left:
            piece = await asyncio.to_thread(self.file.read, min(left, _PIECE))
            if not piece:
                raise ToolError(f"'{self.name}' became shorter while it was read")
            left -= len(piece)
            yield piece


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The folders that tools may read files from, and save files to."""

    roots: tuple[Path, ...] = ()

    @classmethod
    def inside(cls, folders: list[str]) -> "LocalFiles":
        """Open folders.

        Raises:
            ConfigError: one is none.
        """
        for folder in folders:
            if not Path(folder).is_dir():
                raise ConfigError(f"--root: '{folder}' is no folder")
        return cls(tuple(Path(folder).resolve() for folder in folders))

    @contextmanager
    def reading(self, path: str) -> Iterator[LocalFile]:
        """Open a file for reading.

        Raises:
            ToolError: it is outside the folders, no regular file, or cannot be read.
        """

        def begin(name: str, folder: int) -> int:
            _check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
            return os.open(name, os.O_RDONLY | _NO_LINK | _AT_ONCE, dir_fd=folder)

        with self._opened("source_path", path, begin, "rb") as (name, file):
            known = os.fstat(file.fileno())
            _check_regular(known)
            yield LocalFile(name, known.st_size, file)

    async def save(self, path: str, pieces: AsyncIterable[bytes], sha256: str) -> None:
        """Write a new file.

        Raises:
            ToolError: the path is outside the folders, there is something, it cannot be written, or
                what comes has another hash. No file is left then.
        """
        made: list[tuple[str, int]] = []

        def begin(name: str, folder: int) -> int:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
            opened = os.open(name, flags, 0o600, dir_fd=folder)
            made.append((name, os.dup(folder)))
            return opened

        whole = False
        try:
            with self._opened("save_as", path, begin, "wb") as (_, file):
                found = hashlib.sha256()
                async for piece in pieces:
                    found.update(piece)
                    await asyncio.to_thread(file.write, piece)
                file.flush()
                os.fsync(file.fileno())
            if found.hexdigest() != sha256:
                raise ToolError("the file did not arrive as it was sent; try again")
            whole = True
        finally:
            for name, folder in made:
                if not whole:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
                os.close(folder)

    @contextmanager
    def _opened(
        self, argument: str, path: str, begin: Callable[[str, int], int], mode: str
    ) -> Iterator[tuple[str, IO[bytes]]]:
        root, parts = self._place(argument, path)
        try:
            with _folder(root, parts[:-1]) as folder:
                opened = begin(parts[-1], folder)
            with os.fdopen(opened, mode) as file:
                yield parts[-1], file
        except FileExistsError:
            raise ToolError(f"{argument}: there is something at that path already") from None
        except OSError as error:
            raise ToolError(f"{argument}: {error.strerror or 'cannot be used'}") from None
        except NotImplementedError:
            raise ToolError(f"{argument} does not work on this system") from None

    def _place(self, argument: str, path: str) -> tuple[Path, Sequence[str]]:
        """Return the folder that a path is in, and the steps from there."""
        if not self.roots:
            raise ToolError(f"{argument}: no folder is open; start `mail mcp` with --root FOLDER")
        if not Path(path).is_absolute() or "\0" in path:
            raise ToolError(f"{argument} must be an absolute path")
        try:
            real = Path(os.path.realpath(path))  # `Path.resolve` fails for a loop of links
        except ValueError:
            raise ToolError(f"{argument} is no path") from None
        for root in self.roots:
            if root in real.parents:
                return root, real.relative_to(root).parts
        raise ToolError(f"{argument} is not inside a folder that was opened with --root")


@contextmanager
def _folder(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """Open a folder below another one, step by step, through no link."""
    opened = os.open(root, _FOLDER)
    try:
        for part in parts:
            below = os.open(part, _FOLDER | _NO_LINK, dir_fd=opened)
            os.close(opened)
            opened = below
        yield opened
    finally:
        os.close(opened)


def _check_regular(known: os.stat_result) -> None:
    if not stat.S_ISREG(known.st_mode):
        raise ToolError("source_path is no regular file")
