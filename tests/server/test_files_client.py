"""`MAILClient` and the files of participants."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mail.client import MAILClient
from mail.errors import ClientDecodeError, ClientHTTPError
from tests.server.test_desk_client import editor, place, reviewer

__all__ = ["editor", "place", "reviewer"]

CONTENT = bytes(range(256)) * 4000


async def test_a_file_is_uploaded_handed_on_downloaded_and_deleted(
    editor: MAILClient, reviewer: MAILClient, tmp_path: Path
) -> None:
    source, target = tmp_path / "plan & map.bin", tmp_path / "got"
    source.write_bytes(CONTENT)
    file = await editor.upload_file(source, request_id="r1")
    assert (file["filename"], file["size"]) == ("plan & map.bin", len(CONTENT))
    assert await editor.upload_file(source, request_id="r1") == file
    with pytest.raises(ClientHTTPError, match="no such file"):
        await reviewer.download_file(file["id"], target)
    assert not target.exists()
    to = {"recipient_id": "reviewer", "request_id": "r2", "description": "Look."}
    sent = await editor.transfer_file(file["id"], **to)
    assert await editor.transfer_file(file["id"], **to) == sent
    (message,) = (await reviewer.get_desk_messages())["messages"]
    assert message["file_id"] == file["id"] == (await reviewer.get_file(file["id"]))["id"]
    assert await reviewer.download_file(file["id"], target) == file
    assert target.read_bytes() == CONTENT
    with pytest.raises(FileExistsError):
        await reviewer.download_file(file["id"], target)
    assert target.read_bytes() == CONTENT
    assert (await editor.get_files(limit=1))["files"] == [file]
    assert (await editor.delete_file(file["id"]))["status"] == "deleted"
    assert (await editor.get_files())["files"] == []


async def test_bytes_and_what_yields_them_are_uploaded(editor: MAILClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a" * 70_000
        yield b"b"

    plain = await editor.upload_file(b"text", "a.txt")
    assert (plain["filename"], plain["media_type"]) == ("a.txt", "text/plain")
    made = await editor.upload_file(pieces(), media_type="image/png")
    assert (made["size"], made["media_type"], made["filename"]) == (70_001, "image/png", "file")


async def test_what_is_not_the_file_is_not_kept(
    editor: MAILClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await editor.upload_file(b"text")

    async def other(file_id: str) -> object:
        return file | {"sha256": "0" * 64}

    monkeypatch.setattr(editor, "get_file", other)
    with pytest.raises(ClientDecodeError, match="did not arrive"):
        await editor.download_file(file["id"], tmp_path / "x")
    assert not (tmp_path / "x").exists()


async def test_an_id_is_never_another_path(editor: MAILClient) -> None:
    for file_id in ("", ".", "..", "../health", "a/b"):
        with pytest.raises(ClientHTTPError, match=r"no such|not found"):
            await editor.get_file(file_id)
