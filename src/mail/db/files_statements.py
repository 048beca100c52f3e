"""Files of mailboxes in SQL, for SQLite and PostgreSQL: `mail.db.files.FileRecords`."""

from collections.abc import Collection, Iterable
from typing import Final

from mail.db.desk_statements import ADD_USE
from mail.db.files import FileRow
from mail.db.rows import file_size
from mail.db.statements import PARAMETERS, Dialect, Row, Step

_FILE: Final = ", ".join(FileRow._fields)

_ADD: Final = f"""
INSERT INTO desk_files (swarm_name, {_FILE}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING RETURNING 1
"""

_GIVE_BACK: Final = """
UPDATE desk_use SET bytes = CASE WHEN bytes > $3 THEN bytes - $3 ELSE 0 END
WHERE swarm_name = $1 AND name = (
    SELECT owner FROM desk_files WHERE swarm_name = $1 AND file_id = $2)
"""
"""Small files of earlier versions counted for less than is given back: not below nothing."""

_DROP: Final = f"""
DELETE FROM desk_files WHERE swarm_name = $1 AND file_id = $2 RETURNING {_FILE}
"""

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


def _files(rows: Iterable[Row]) -> list[FileRow]:
    return [FileRow(*row) for row in rows]


def _texts(rows: Iterable[Row]) -> set[str]:
    return {str(row[0]) for row in rows}


class FileStatements(Dialect):
    """`mail.db.files.FileRecords`."""

    async def database_id(self) -> str:
        (found,) = await self._fetch(_texts, "SELECT id FROM database_id")
        return found

    async def add_file(self, swarm: str, row: FileRow) -> None:
        await self._run(
            [
                Step(_ADD, (swarm, *row), f"the file '{row.file_id}' exists"),
                Step(ADD_USE, (swarm, row.owner, file_size(row))),
            ]
        )

    async def find_file(self, swarm: str, file_id: str) -> FileRow | None:
        text = f"SELECT {_FILE} FROM desk_files WHERE swarm_name = $1 AND file_id = $2"
        found = await self._fetch(_files, text, swarm, file_id)
        return found[0] if found else None

    async def list_files(
        self, swarm: str, owner: str, *, after: str = "", limit: int = 100
    ) -> list[FileRow]:
        text = f"""
            SELECT {_FILE} FROM desk_files WHERE swarm_name = $1 AND owner = $2 AND file_id > $3
            ORDER BY file_id LIMIT $4"""
        return await self._fetch(_files, text, swarm, owner, after, limit)

    async def carries(
        self, swarm: str, name: str, file_id: str, task: tuple[str, str] | None = None
    ) -> bool:
        return bool(await self._fetch(list, _CARRIES, swarm, name, file_id, *(task or ("", ""))))

    async def drop_file(self, swarm: str, file_id: str) -> FileRow | None:
        row = await self.find_file(swarm, file_id)
        if row is None:
            return None
        given_back = Step(_GIVE_BACK, (swarm, file_id, file_size(row)))
        _, dropped = await self._run([given_back, Step(_DROP, (swarm, file_id))])
        return row if dropped else None

    async def expired_files(self, swarm: str, before: str, limit: int) -> list[FileRow]:
        text = f"""
            SELECT {_FILE} FROM desk_files WHERE swarm_name = $1 AND expires_at < $2
            ORDER BY expires_at LIMIT $3"""
        return await self._fetch(_files, text, swarm, before, limit)

    async def known_contents(self, swarm: str, hashes: Collection[str]) -> set[str]:
        known: set[str] = set()
        wanted = sorted(hashes)
        for at in range(0, len(wanted), PARAMETERS):
            some = wanted[at : at + PARAMETERS]
            places = ", ".join(f"${number}" for number in range(2, 2 + len(some)))
            text = f"""
                SELECT DISTINCT sha256 FROM desk_files
                WHERE swarm_name = $1 AND sha256 IN ({places})"""
            known |= await self._fetch(_texts, text, swarm, *some)
        return known
