"""A small disk of its own, in memory, which can be filled up and emptied again."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

_PIECES: Final = (64 * 1024, 4 * 1024)


class Disk:
    """A mounted file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no room."""
        with self._filler.open("ab", buffering=0) as file:
            for size in _PIECES:
                with suppress(OSError):  # there is none left
                    while True:
                        os.write(file.fileno(), bytes(size))

    def empty(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Disk]:
    """Mount one; a test that asks for it is skipped where that may not be done."""
    with tempfile.TemporaryDirectory(prefix="mail-disk-") as name:
        try:
            options = f"size={megabytes}m,mode=755"
            _run("mount", "-t", "tmpfs", "-o", options, "mail-test", name)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system can be mounted here: {getattr(error, 'stderr', error)}")
        try:
            yield Disk(Path(name))
        finally:
            _run("umount", "--lazy", name)


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
