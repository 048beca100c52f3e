"""A keyring of the ``keyring`` library's own kind, in a file: what a desktop's keyring does."""

import json
import os
from pathlib import Path
from typing import ClassVar

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

__all__ = ["FileKeyring"]


class FileKeyring(KeyringBackend):
    """Keeps passwords in the file that ``TEST_KEYRING`` names; is locked if ``.locked`` exists."""

    priority: ClassVar[float] = 1

    def get_password(self, service: str, username: str) -> str | None:
        return self._open().get(f"{service}\0{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._save(self._open() | {f"{service}\0{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        known = self._open()
        if known.pop(f"{service}\0{username}", None) is None:
            raise PasswordDeleteError("Password not found")
        self._save(known)

    def _open(self) -> dict[str, str]:
        path = Path(os.environ["TEST_KEYRING"])
        if path.with_suffix(".locked").exists():
            raise KeyringLocked("Failed to unlock the collection!")
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _save(self, known: dict[str, str]) -> None:
        Path(os.environ["TEST_KEYRING"]).write_text(json.dumps(known))
