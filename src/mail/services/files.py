"""Files of participants: uploading, handing on with a letter, fetching, and what goes by itself.

Who may have a file is its owner, and whoever a letter carries it to. For everybody else there is no
such file. Docs: ``docs/files.md``.
"""

import codecs
import mimetypes
import re
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple
from unicodedata import category, normalize

from mail.clock import later
from mail.core.schema import MAX_ID
from mail.db.blobs import Blobs
from mail.db.files import FileRow, FileVerbs, file_size
from mail.errors import DeskConflict, Forbidden, ProtocolError, RequestReused, UnknownFile
from mail.services.desk import Draft, MailDesk, SentLetter

FILE_URI: Final = "mail://files/"
MAX_NAME_BYTES: Final = 255
NO_TYPE: Final = "application/octet-stream"
_INSIDE: Final = 0x80
_NO_TEXT: Final = "the file is no text in UTF-8, and can only be handed on ({kind})"
_GRACE_SECONDS: Final = 3600.0
_EXPIRED_AT_ONCE: Final = 100

_SEPARATORS: Final = re.compile(r"[/\\]")
_ODD: Final = re.compile(r'[<>:"|?*]')
_DEVICE: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?=\.|$)", re.IGNORECASE)
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}")
_OF_FORMS: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})
"""Types that HTTP clients send when nobody has told them one."""


class NewFile(NamedTuple):
    """The description of a file that is uploaded.

    Attributes:
        filename: Any name; see `safe_name`.
        media_type: Its media type; guessed from the name if that says nothing.
        request_id: The owner's name for this request, or no text: a repeat gets the first file.
    """

    filename: str
    media_type: str = ""
    request_id: str = ""


class Transfer(NamedTuple):
    """To whom a file goes, and what is said about it.

    Attributes:
        recipient_id: A mailbox, or no text.
        thread_id: A thread, or no text; exactly one of the two.
        description: A description of the file, or no text.
        urgent, request_id: See `mail.services.desk.Draft`.
    """

    recipient_id: str = ""
    thread_id: str = ""
    description: str = ""
    urgent: bool = False
    request_id: str = ""


@dataclass(slots=True, eq=False)
class DeskFiles:
    """The files of one swarm's mailboxes; a mailbox's name is the caller's own, as at the desk.

    Attributes:
        desk: The swarm's mail desk.
        store: The store of facts about files.
        blobs: Their contents.
        max_bytes: The size limit of a file.
        expire_days: The days that a file is kept.
        freed: Called with the mailbox that a file has counted for, and does no more.
    """

    desk: MailDesk
    store: FileVerbs
    blobs: Blobs
    max_bytes: int
    expire_days: float
    freed: Callable[[str], None] = lambda _name: None

    async def upload(self, owner: str, new: NewFile, content: AsyncIterable[bytes]) -> FileRow:
        """Store a file. If its content ends with an error, nothing is stored.

        Raises:
            ProtocolError: it is too large.
            RequestReused: the request id stands for another file.
            StoreFull, StoreError: it cannot be stored.
        """
        name = safe_name(new.filename)
        await self.desk.admit(owner, 0)  # who has no room is told before the content comes
        async with self.blobs.spool() as spool:
            async for piece in content:
                if spool.size + len(piece) > self.max_bytes:
                    raise ProtocolError(f"a file has at most {self.max_bytes} bytes")
                await spool.write(piece)
            sha256 = await spool.end()
            now = self.desk.clock.now()
            row = FileRow(
                file_id=self.desk.id_for(owner, new.request_id),
                owner=owner,
                sha256=sha256,
                size=spool.size,
                name=name,
                media_type=_media_type(new.media_type, name),
                created_at=now,
                expires_at=later(now, self.expire_days * 24 * 3600),
            )
            if new.request_id and (known := await self._stored_before(row)) is not None:
                return known
            await self.desk.admit(owner, file_size(row))
            async with self.blobs.held(sha256):
                await self.blobs.keep(spool)
                try:
                    await self.store.add_file(self.desk.swarm, row)
                except DeskConflict:  # a repeat at the same time was faster
                    return await self._stored_before(row) or row
        return row

    async def _stored_before(self, row: FileRow) -> FileRow | None:
        """Return the file that an earlier request with the same id stored, or None.

        Raises:
            RequestReused: it is another one.
        """
        known = await self.store.find_file(self.desk.swarm, row.file_id)
        if known is None:
            return None
        if row._replace(created_at=known.created_at, expires_at=known.expires_at) != known:
            raise RequestReused
        return known

    async def transfer(self, sender: str, file_id: str, to: Transfer) -> tuple[FileRow, SentLetter]:
        """Send a letter that carries a file of the sender's own.

        Raises:
            UnknownFile: the sender has no such file.
            ProtocolError, UnknownThread, RequestReused: see `MailDesk.send_message`.
        """
        row = await self.own(sender, file_id)
        content = told_of(row)
        if to.description:
            content = f"{to.description}\n\n{content}"
        draft = Draft(content, urgent=to.urgent, request_id=to.request_id, file_id=row.file_id)
        recipient, thread = to.recipient_id or None, to.thread_id or None
        return row, await self.desk.send_message(sender, draft, recipient, thread)

    async def own(self, name: str, file_id: str) -> FileRow:
        """Return what is known of a file that a mailbox has uploaded: it may go with a letter.

        Raises:
            UnknownFile: the mailbox has no such file.
        """
        row = await self._find(file_id)
        if row.owner != name:
            raise UnknownFile
        return row

    async def get(self, name: str | None, file_id: str) -> FileRow:
        """Return what is known of a file; of any file for an operator, whose name is None.

        Raises:
            UnknownFile: there is none, or the mailbox may not have it.
        """
        row = await self._find(file_id)
        if name not in (None, row.owner):
            assert name is not None  # noqa: S101 - see above
            if not await self.store.carries(self.desk.swarm, name, row.file_id):
                raise UnknownFile
        return row

    async def list_own(self, owner: str, after: str, limit: int) -> list[FileRow]:
        """Return a page of a mailbox's own files, by id, behind the one ``after``."""
        if len(after) > MAX_ID or not after.isprintable():
            raise ProtocolError("after must be the id of a file")
        return await self.store.list_files(self.desk.swarm, owner, after=after, limit=limit)

    async def delete(self, name: str | None, file_id: str) -> None:
        """Remove a file, for its owner or an operator, whose name is None.

        Raises:
            UnknownFile: there is none, or the mailbox may not have it.
            Forbidden: it is another's, who has sent it to the mailbox.
        """
        row = await self.get(name, file_id)
        if name not in (None, row.owner):
            raise Forbidden("only its owner, or an administrator, deletes a file")
        await self._remove(row)

    async def sweep(self, moment: str) -> int:
        """Remove what has expired at a time, and contents that nothing refers to.

        Returns:
            How many files were removed.
        """
        swarm, removed = self.desk.swarm, 0
        while True:
            old = await self.store.expired_files(swarm, moment, _EXPIRED_AT_ONCE)
            for row in old:
                await self._remove(row)
            removed += len(old)
            if len(old) < _EXPIRED_AT_ONCE:
                break
        async for hashes in self.blobs.unused_for(_GRACE_SECONDS):
            known = await self.store.known_contents(swarm, hashes)
            for sha256 in hashes:
                if sha256 not in known:
                    async with self.blobs.held(sha256):
                        await self._drop_unused(sha256)
        return removed

    async def _remove(self, row: FileRow) -> None:
        async with self.blobs.held(row.sha256):
            await self.store.drop_file(self.desk.swarm, row.file_id)
            self.freed(row.owner)
            await self._drop_unused(row.sha256)

    async def _drop_unused(self, sha256: str) -> None:
        """Remove a content, which is held, unless a file has it (again)."""
        if not await self.store.known_contents(self.desk.swarm, [sha256]):
            await self.blobs.drop(sha256)

    async def _find(self, file_id: str) -> FileRow:
        row = None
        if len(file_id) <= MAX_ID and file_id.isprintable():
            row = await self.store.find_file(self.desk.swarm, file_id)
        if row is None or row.expires_at <= self.desk.clock.now():
            raise UnknownFile
        return row


async def text_page(blobs: Blobs, row: FileRow, offset: int, limit: int) -> tuple[str, int]:
    """Return the text of a file from a byte on, and the first byte that is not in it.

    Args:
        blobs: The contents.
        row: The file.
        offset: The first byte; the beginning of a character.
        limit: At most so many bytes; fewer than the 4 of the longest character count as 4.

    Raises:
        ProtocolError: the file is no text in UTF-8, or has fewer bytes.
        StoreError: it cannot be read.
    """
    if not 0 <= offset <= row.size:
        raise ProtocolError(f"offset: the file has {row.size} bytes")
    size = min(max(limit, 4), row.size - offset)
    async with blobs.read(row.sha256, offset, size) as pieces:
        content = b"".join([piece async for piece in pieces])
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(content, final=offset + size == row.size)
    except UnicodeDecodeError as error:
        if offset and error.start == 0 and content[0] & 0xC0 == _INSIDE:
            raise ProtocolError("offset: it is inside a character") from None
        raise ProtocolError(_NO_TEXT.format(kind=row.media_type)) from None
    if "\0" in text:
        raise ProtocolError(_NO_TEXT.format(kind=row.media_type))
    left, _ = decoder.getstate()
    return text, offset + size - len(left)


def told_of(row: FileRow) -> str:
    """Return what letters say of a file."""
    about = f"File: {row.name} ({row.size:,} bytes, {row.media_type})\nsha256: {row.sha256}"
    return f"{about}\n{FILE_URI}{row.file_id}"


def safe_name(name: str) -> str:
    """Return a name that is one on every system: no path, no device, nothing invisible.

    >>> safe_name("../../etc/passwd"), safe_name("C:\\\\temp\\\\a?.txt"), safe_name("nul.txt")
    ('passwd', 'a_.txt', '_nul.txt')
    """
    last = next((part for part in reversed(_SEPARATORS.split(name)) if part.strip(" .")), "")
    shown = normalize("NFC", last)
    # Without controls, directions, surrogates, what is unassigned, and blanks but the plain one.
    shown = "".join(each for each in shown if each == " " or category(each)[0] not in "CZ")
    shown = _ODD.sub("_", shown).strip(" .")
    if _DEVICE.match(shown):
        shown = f"_{shown}"
    return _shortened(shown) or "file"


def _shortened(name: str) -> str:
    """Cut a name that is too long, but not its ending."""
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    stem, dot, ending = name.rpartition(".")
    ending = f"{dot}{ending}" if stem and len(ending.encode()) <= MAX_NAME_BYTES // 8 else ""
    room = MAX_NAME_BYTES - len(ending.encode())
    cut = (stem if ending else name).encode()[:room].decode(errors="ignore")
    return cut.rstrip(" .") + ending


def _media_type(said: str, name: str) -> str:
    """Return the type that was said, without parameters, or one that the name suggests."""
    kind = said.partition(";")[0].strip().lower()
    if _MEDIA_TYPE.fullmatch(kind) and kind not in (*_OF_FORMS, NO_TYPE):
        return kind
    known = mimetypes.MimeTypes(filenames=())  # not what this machine has in its files
    guessed, packed = known.guess_type(f"x{name}")
    return guessed if guessed and not packed else NO_TYPE
