"""Files of mailboxes. Their bytes are kept by `mail.db.blobs`.

Two files with the same content are two records with one ``sha256``. Who may have a file is told by
the letters that carry it: see `FileVerbs.carries`.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from mail.db.desk import ADD_USE
from mail.db.driver import Change, Query, Verb, Verbs, read, write
from mail.db.rows import columns, insert
from mail.db.texts import text_size
from mail.errors import DeskConflict

_BLOCK: Final = 4096
"""The space that a file system takes for the smallest content."""
_ROW_BYTES: Final = 100


class FileRow(NamedTuple):
    """A file.

    Attributes:
        file_id: Unique in the swarm.
        owner: The mailbox that uploaded it, and that it counts for.
        sha256: The hash of its content, in lower-case hex.
        size: Its bytes.
        name: A name without any path.
        media_type: Its media type, according to its owner.
        created_at: The time of storage.
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


_COLUMNS: Final = columns(FileRow)

_ADD: Final = f"{insert('desk_files', 'swarm_name', _COLUMNS)} ON CONFLICT DO NOTHING"

_DROP: Final = f"""
DELETE FROM desk_files WHERE swarm_name = $1 AND file_id = $2 RETURNING {_COLUMNS}
"""

_GIVE_BACK: Final = """
UPDATE desk_use SET bytes = CASE WHEN bytes > $3 THEN bytes - $3 ELSE 0 END
WHERE swarm_name = $1 AND name = $2
"""
"""Small files of earlier versions counted for less than is given back: not below nothing."""

_CARRIES: Final = """
SELECT 1 FROM desk_letters AS l
WHERE l.swarm_name = $1 AND l.file_id = $3 AND l.file_id <> ''
AND ($4 = '' OR l.task_owner = $4 AND l.task_id = $5) AND (
    l.thread_id = '' AND EXISTS (
        SELECT 1 FROM desk_receipts AS r
        WHERE r.swarm_name = $1 AND r.name = $2 AND r.letter = l.seq)
    OR l.thread_id <> '' AND EXISTS (
        SELECT 1 FROM desk_members AS m
        WHERE m.swarm_name = $1 AND m.thread_id = l.thread_id AND m.name = $2))
LIMIT 1
"""


def file_size(row: FileRow) -> int:
    """Return about how many bytes a file takes."""
    return max(row.size, _BLOCK) + text_size(row.name) + _ROW_BYTES


class FileVerbs(Verbs):
    """The records of files."""

    @read
    def database_id(self) -> Verb[str]:
        """Return an id that this database has had since it was made, and no other one has."""
        rows = yield Query("SELECT id FROM database_id")
        return str(rows[0][0])

    @write
    def add_file(self, swarm: str, row: FileRow) -> Verb[None]:
        """Store a file; it counts for its owner, see `mail.db.desk.LetterVerbs.letter_bytes`.

        Raises:
            DeskConflict: there is one with that id.
        """
        if not (yield Change(_ADD, (swarm, *row))):
            raise DeskConflict(f"the file '{row.file_id}' exists")
        yield Change(ADD_USE, (swarm, row.owner, file_size(row)))

    @read
    def find_file(self, swarm: str, file_id: str) -> Verb[FileRow | None]:
        """Return a file, or None."""
        text = f"SELECT {_COLUMNS} FROM desk_files WHERE swarm_name = $1 AND file_id = $2"
        rows = yield Query(text, (swarm, file_id))
        return FileRow(*rows[0]) if rows else None

    @read
    def list_files(
        self, swarm: str, owner: str, *, after: str = "", limit: int = 100
    ) -> Verb[list[FileRow]]:
        """Return a page of a mailbox's own files by id; ``after`` is the id before the first."""
        text = f"""
            SELECT {_COLUMNS} FROM desk_files WHERE swarm_name = $1 AND owner = $2 AND file_id > $3
            ORDER BY file_id LIMIT $4"""
        rows = yield Query(text, (swarm, owner, after, limit))
        return [FileRow(*row) for row in rows]

    @read
    def carries(
        self, swarm: str, name: str, file_id: str, task: tuple[str, str] | None = None
    ) -> Verb[bool]:
        """Tell whether a letter carries a file to a mailbox.

        That is a letter which the mailbox is a recipient of or, if it is one of a thread, whose
        thread it is a member of at the moment. With ``task``, the owner and the id that letters
        have of one, it is a letter of that task.
        """
        rows = yield Query(_CARRIES, (swarm, name, file_id, *(task or ("", ""))))
        return bool(rows)

    @write
    def drop_file(self, swarm: str, file_id: str) -> Verb[FileRow | None]:
        """Remove a file and return it; None if there is none. It counts for nobody any more."""
        rows = yield Query(_DROP, (swarm, file_id))
        if not rows:
            return None
        row = FileRow(*rows[0])
        yield Change(_GIVE_BACK, (swarm, row.owner, file_size(row)))
        return row

    @read
    def expired_files(self, swarm: str, before: str, limit: int) -> Verb[list[FileRow]]:
        """Return files that expire before a time, the first ones first."""
        text = f"""
            SELECT {_COLUMNS} FROM desk_files WHERE swarm_name = $1 AND expires_at < $2
            ORDER BY expires_at LIMIT $3"""
        rows = yield Query(text, (swarm, before, limit))
        return [FileRow(*row) for row in rows]

    @read
    def known_contents(self, swarm: str, hashes: Collection[str]) -> Verb[set[str]]:
        """Return those of some ``sha256`` that files have."""
        if not hashes:
            return set()
        text = f"""
            SELECT DISTINCT sha256 FROM desk_files
            WHERE swarm_name = $1 AND sha256 {self.sql.among("$2")}"""
        rows = yield Query(text, (swarm, self.sql.list(sorted(hashes))))
        return {str(row[0]) for row in rows}
