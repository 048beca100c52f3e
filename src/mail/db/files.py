"""Files of mailboxes: what a store knows of them. Their bytes are kept by `mail.db.blobs`.

Two files with the same content are two records with one ``sha256``. Who may have a file is told by
the letters that carry it: see `FileRecords.carries`.
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol


class FileRow(NamedTuple):
    """A file.

    Attributes:
        file_id: Unique in the swarm.
        owner: The mailbox that uploaded it, and that it counts for.
        sha256: The hash of its content, in lower-case hex.
        size: Its bytes.
        name: A name without any path.
        media_type: What its owner says that it is.
        created_at: When it was stored.
        expires_at: From when on it is removed.
    """

    file_id: str
    owner: str
    sha256: str
    size: int
    name: str
    media_type: str
    created_at: str
    expires_at: str


class FileRecords(Protocol):
    """What is known of files."""

    async def database_id(self) -> str:
        """Return an id that this database has had since it was made, and no other one has."""

    async def add_file(self, swarm: str, row: FileRow) -> None:
        """Store a file; it counts for its owner, see `mail.db.desk.DeskRecords.letter_bytes`.

        Raises:
            DeskConflict: there is one with that id.
        """

    async def find_file(self, swarm: str, file_id: str) -> FileRow | None:
        """Return a file, or None."""

    async def list_files(
        self, swarm: str, owner: str, *, after: str = "", limit: int = 100
    ) -> list[FileRow]:
        """Return a page of a mailbox's own files by id; ``after`` is the id before the first."""

    async def carries(
        self, swarm: str, name: str, file_id: str, task: tuple[str, str] | None = None
    ) -> bool:
        """Tell whether a letter carries a file to a mailbox.

        That is a letter which the mailbox is a recipient of or, if it is one of a thread, whose
        thread it is a member of at the moment. With ``task``, the owner and the id that letters
        have of one, it is a letter of that task.
        """

    async def drop_file(self, swarm: str, file_id: str) -> FileRow | None:
        """Remove a file and return it; None if there is none. It counts for nobody any more."""

    async def expired_files(self, swarm: str, before: str, limit: int) -> list[FileRow]:
        """Return files that expire before a time, the first ones first."""

    async def known_contents(self, swarm: str, hashes: Collection[str]) -> set[str]:
        """Return those of some ``sha256`` that files have."""
