"""Files of participants over MCP, on both transports, and the files of the client's own machine."""

import base64
import hashlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from mail.config.server import FilesConfig
from mail.db.memory import MemoryStore
from mail.errors import ConfigError, ToolError
from mail.mcp.files import LocalFiles
from mail.server.app import create_app
from tests.server.kit import TOKENS, Server, Template, bearer, config, running_server
from tests.server.test_mcp import ERAS, client, refused, use

MOST = 4 * 1024 * 1024


@pytest.fixture
async def desk(store: MemoryStore, template: Template) -> AsyncIterator[Server]:
    """A server with two participants, whose files have 4 MiB at most."""
    names = ("editor", "reviewer")
    template.participants = [{"name": name, "description": ""} for name in names]
    chosen = config().model_copy(update={"files": FilesConfig(max_bytes=MOST)})
    async with running_server(create_app(chosen, template=template, store=store)) as server:  # type: ignore[arg-type]
        yield server


def plain(server: Server) -> httpx.AsyncClient:
    """Return the editor's client of the HTTP API."""
    return httpx.AsyncClient(base_url=server.url, headers=bearer("editor"))


def on_stdio(server: Server, *words: str, who: str = "editor") -> Client:
    """Return a client whose server is a program that is told which folders it may use."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mail.cli", "mcp", server.url, "--tools", "threads", *words],
        env=environ | {"MAIL_API_KEY": TOKENS[who]},
    )
    return Client(stdio_client(program))


@pytest.mark.parametrize("era", ERAS)
async def test_a_file_goes_from_one_client_to_another(desk: Server, era: str) -> None:
    content = b"\x89PNG\r\n\x1a\n\x00"
    async with client(desk, "editor", era) as editor, client(desk, "reviewer", era) as reviewer:
        sent = await use(
            editor,
            "transfer_file",
            sender_id="editor",
            recipient_id="reviewer",
            content_base64=base64.b64encode(content).decode(),
            destination_filename="../a.png",
            description="See this.",
        )
        assert (sent["status"], sent["filename"]) == ("sent", "a.png")
        assert sent["message_id"] in sent["detail"] and "a.png" in sent["detail"]
        [message] = (await use(reviewer, "get_messages"))["messages"]
        assert message["id"] == sent["message_id"] and sent["server_path"] in message["content"]
        assert sent["server_path"] == f"mail://files/{message['file_id']}"
        got = await use(reviewer, "get_file", file_id=sent["server_path"])
        assert base64.b64decode(got["content_base64"]) == content
        assert got["file"] == sent["file"]
        text = await refused(reviewer, "get_file", file_id=sent["server_path"], save_as="/tmp/x")
        assert "--root" in text


async def test_an_uploaded_file_is_handed_on_by_its_id(desk: Server) -> None:
    async with client(desk, "editor") as editor, client(desk, "reviewer") as reviewer:
        async with plain(desk) as http:
            file = (await http.post("/files?filename=n.txt", content=b"n" * 200_000)).json()
        sent = await use(editor, "transfer_file", recipient_id="reviewer", file_id=file["id"])
        assert sent["file"] == file
        text = await refused(reviewer, "get_file", file_id=file["id"])
        assert "200000 bytes" in text and f"GET /files/{file['id']}" in text


async def test_an_uploaded_file_goes_with_a_message_and_is_read_as_a_resource(desk: Server) -> None:
    async with plain(desk) as http:
        contents = "Grüße\n".encode(), b"\x00\xff", b"n" * 100_001
        files = [
            (await http.post("/files?filename=n.html", content=each)).json() for each in contents
        ]
    async with client(desk, "editor") as editor, client(desk, "reviewer") as reviewer:
        told = [
            each.uri_template
            for each in (await editor.list_resource_templates()).resource_templates
        ]
        assert "mail://files/{file_id}" in told
        with pytest.raises(MCPError, match="no such file"):
            await reviewer.read_resource(files[0]["uri"])
        for file, given in zip(files, ("id", "uri", "id"), strict=True):
            await use(
                editor, "send_message", content="See.", recipient_id="reviewer", file_id=file[given]
            )
        page = await use(reviewer, "get_messages")
        assert [each["file_id"] for each in page["messages"]] == [
            each["id"] for each in files[::-1]
        ]
        [text] = (await reviewer.read_resource(files[0]["uri"])).contents
        assert (text.text, text.mime_type) == ("Grüße\n", "text/plain")
        [binary] = (await reviewer.read_resource(files[1]["uri"])).contents
        assert base64.b64decode(binary.blob) == b"\x00\xff"
        assert binary.mime_type == "application/octet-stream"
        with pytest.raises(MCPError, match=rf"100001 bytes.*GET /files/{files[2]['id']}"):
            await reviewer.read_resource(files[2]["uri"])
        for odd in ("", "..", "x/meta", "%2e%2e", "x" * 2000):
            with pytest.raises(MCPError, match=r"no such file|unknown resource|not found"):
                await reviewer.read_resource(f"mail://files/{odd}")
        refusal = await refused(
            reviewer, "send_message", content="x", recipient_id="editor", file_id=files[0]["id"]
        )
        assert "no such file" in refusal


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"recipient_id": "reviewer"}, "exactly one of source_path"),
        ({"recipient_id": "reviewer", "file_id": "x", "content_base64": "eA=="}, "exactly one"),
        ({"recipient_id": "reviewer", "file_id": "x"}, "no such file"),
        ({"recipient_id": "reviewer", "file_id": ".."}, "no such file"),
        ({"recipient_id": "reviewer", "source_path": "/etc/passwd"}, "on your own disk"),
        ({"recipient_id": "reviewer", "content_base64": "%%"}, "not base64"),
        ({"recipient_id": "nobody", "content_base64": "eA=="}, "nobody"),
        ({"recipient_id": "editor", "content_base64": "eA=="}, "yourself"),
        (
            {"recipient_id": "reviewer", "content_base64": "eA==", "sender_id": "reviewer"},
            "sender_id must be your own id, 'editor'",
        ),
    ],
)
async def test_a_refused_transfer_leaves_no_file(
    desk: Server, arguments: dict[str, Any], said: str
) -> None:
    async with client(desk, "editor") as editor:
        assert said in await refused(editor, "transfer_file", **arguments)
    async with plain(desk) as http:
        assert (await http.get("/files")).json()["files"] == []


async def test_files_of_the_own_disk_over_standard_input_and_output(
    desk: Server, tmp_path: Path
) -> None:
    root, inbox = tmp_path / "root", tmp_path / "inbox"
    root.mkdir()
    inbox.mkdir()
    content = os.urandom(3_000_000)
    (root / "big.bin").write_bytes(content)
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    with (root / "sparse").open("wb") as sparse:
        sparse.truncate(2**40)
    there = {"recipient_id": "reviewer"}
    async with on_stdio(desk, "--root", str(root)) as editor:
        sent = await use(editor, "transfer_file", **there, source_path=str(root / "big.bin"))
        assert sent["filename"] == "big.bin" and sent["file"]["size"] == len(content)
        for name, said in (
            ("link", "not inside a folder"),
            ("../secret.txt", "not inside a folder"),
            ("sparse", "1099511627776 bytes; the server takes"),
            ("missing", "No such file"),
        ):
            path = str(root / name)
            text = await refused(editor, "transfer_file", **there, source_path=path)
            assert said in text and "secret." not in text.replace(path, "")
    async with on_stdio(desk, "--root", str(inbox), who="reviewer") as reviewer:
        where = {"file_id": sent["server_path"], "save_as": str(inbox / "got.bin")}
        got = await use(reviewer, "get_file", **where)
        assert got["saved_as"] == where["save_as"]
        assert (inbox / "got.bin").read_bytes() == content
        assert "something at that path" in await refused(reviewer, "get_file", **where)
        where["save_as"] = str(tmp_path / "out.bin")
        assert "not inside a folder" in await refused(reviewer, "get_file", **where)
    async with on_stdio(desk) as editor:
        text = await refused(editor, "transfer_file", **there, source_path=str(root / "big.bin"))
        assert "start `mail mcp` with --root" in text


# --- the client's own files ---------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file in it, and one outside."""
    made = tmp_path / "root"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "a.txt").write_text("inside")
    (tmp_path / "out.txt").write_text("outside")
    (tmp_path / "root-too").mkdir()
    (tmp_path / "root-too" / "b.txt").write_text("outside")
    return made


def read(root: Path, path: str) -> bytes:
    with LocalFiles.inside([str(root)]).reading(path) as local:
        assert local.size >= 0
        return local.file.read()


def test_a_path_inside_is_read_also_by_way_of_a_link_to_the_inside(root: Path) -> None:
    assert read(root, f"{root}/inner/a.txt") == b"inside"
    assert read(root, f"{root}/inner/../inner/./a.txt") == b"inside"
    (root / "link").symlink_to(root / "inner")
    assert read(root, f"{root}/link/a.txt") == b"inside"


@pytest.mark.parametrize(
    "path",
    ["{root}/../out.txt", "{root}/../root-too/b.txt", "{root}-too/b.txt", "{root}", "{root}/", "/"],
)
def test_a_path_outside_is_not_read(root: Path, path: str) -> None:
    with pytest.raises(ToolError, match="not inside a folder that was opened"):
        read(root, path.format(root=root))


@pytest.mark.parametrize("path", ["inner/a.txt", "", "~/a.txt", "{root}/a\0b", "file://{root}/a"])
def test_a_path_is_absolute(root: Path, path: str) -> None:
    with pytest.raises(ToolError, match="absolute"):
        read(root, path.format(root=root))


def test_what_is_no_regular_file_is_not_opened(root: Path) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(root / "socket"))
        (root / "loop").symlink_to(root / "loop")
        (root / "device").symlink_to("/dev/zero")
        for name in ("fifo", "socket", "inner"):
            with pytest.raises(ToolError, match="no regular file"):
                read(root, f"{root}/{name}")
        for name in ("loop", "device"):
            with pytest.raises(ToolError, match=r"not inside|no regular file"):
                read(root, f"{root}/{name}")
        with pytest.raises(ToolError, match="no path"):
            read(root, f"{root}/\ud800")


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is looked at, then a step of it changes, then it is opened."""
    (root.parent / "elsewhere").mkdir()
    (root.parent / "elsewhere" / "a.txt").write_text("outside")
    realpath = os.path.realpath

    def swapped(path: str) -> str:
        found = realpath(path)
        if path.endswith("a.txt"):
            (root / "inner").rename(root / "before")
            (root / "inner").symlink_to(root.parent / "elsewhere")
        return found

    opened = LocalFiles.inside([str(root)])
    monkeypatch.setattr(os.path, "realpath", swapped)
    with pytest.raises(ToolError, match="irectory"), opened.reading(f"{root}/inner/a.txt"):
        pass


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


async def test_a_file_that_shrinks_is_told(root: Path) -> None:
    with LocalFiles.inside([str(root)]).reading(f"{root}/inner/a.txt") as local:
        (root / "inner" / "a.txt").write_text("")
        with pytest.raises(ToolError, match="became shorter"):
            async for _ in local.pieces():
                pass


async def test_what_is_saved_is_whole_or_not_there(root: Path) -> None:
    files = LocalFiles.inside([str(root)])
    sha256 = hashlib.sha256(b"whole").hexdigest()
    with pytest.raises(ToolError, match="did not arrive"):
        await files.save(f"{root}/c.txt", pieces(b"wh", b"ol"), sha256)
    assert not (root / "c.txt").exists()
    await files.save(f"{root}/c.txt", pieces(b"wh", b"ole"), sha256)
    assert (root / "c.txt").read_bytes() == b"whole"
    assert (root / "c.txt").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ToolError, match="something at that path"):
        await files.save(f"{root}/c.txt", pieces(b"whole"), sha256)
    assert (root / "c.txt").read_bytes() == b"whole"
    (root / "dangling").symlink_to(root.parent / "new.txt")
    with pytest.raises(ToolError):
        await files.save(f"{root}/dangling", pieces(b"whole"), sha256)
    assert not (root.parent / "new.txt").exists()


def test_a_root_must_be_a_folder(root: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        LocalFiles.inside([f"{root}/nowhere"])
    with pytest.raises(ToolError, match="--root"), LocalFiles().reading(f"{root}/inner/a.txt"):
        pass
