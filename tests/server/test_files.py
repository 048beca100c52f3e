"""Files of participants over HTTP: who gets them, what they may cost, and what is left of them."""

import asyncio
import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI

from mail.auth.callers import Caller
from mail.config.server import FilesConfig, StoreConfig
from mail.db.blobs import MARK
from mail.errors import ConfigError
from mail.server.app import create_app
from tests.server.kit import bearer
from tests.server.test_desk import fetch, thread
from tests.support.bucket import Bucket, bucket_server
from tests.support.till import served_from, settings, till

MOST = 1024 * 1024
CONTENT = b"%PDF-1.7\n" + bytes(range(256)) * 40


@contextlib.contextmanager
def serving(
    folder: Path, url: str = "", place: Any = None, **limits: Any
) -> Iterator[tuple[httpx.Client, FastAPI]]:
    """Serve a swarm with two participants from a database in a folder; a file may have 1 MiB."""
    files = FilesConfig(max_bytes=MOST, **(place or {}))
    url = url or f"sqlite:///{folder}/mail.db"
    with served_from(url, changes={"files": files}, **limits) as both:
        yield both


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[httpx.Client, FastAPI]]:
    with serving(folder) as both:
        yield both


@pytest.fixture
def http(server: tuple[httpx.Client, FastAPI]) -> httpx.Client:
    return server[0]


def stored(folder: Path) -> set[str]:
    """Return the names of everything that is kept, or was begun."""
    found = {path.name for path in (folder / "mail-files").rglob("*") if path.is_file()}
    return found - {MARK}


def wait_until(holds: Callable[[], bool]) -> None:
    """Look again and again, for ten seconds."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def upload(http: httpx.Client, who: str = "editor", content: bytes = CONTENT, **query: str) -> Any:
    """Upload a file, and return what is told of it."""
    answer = http.post("/files", params=query, headers=bearer(who), content=content)
    assert answer.status_code == 200, answer.text
    return answer.json()


def hand_on(http: httpx.Client, file_id: str, who: str = "editor", **body: Any) -> httpx.Response:
    return http.post(f"/files/{file_id}/transfer", headers=bearer(who), json=body)


def download(http: httpx.Client, file_id: str, who: str) -> httpx.Response:
    return http.get(f"/files/{file_id}", headers=bearer(who))


def test_a_file_reaches_its_recipient_and_nobody_else(http: httpx.Client, folder: Path) -> None:
    file = upload(http, filename="report.pdf")
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert (file["filename"], file["size"]) == ("report.pdf", len(CONTENT))
    assert (file["sha256"], file["media_type"]) == (sha256, "application/pdf")
    nothing = download(http, "0" * 36, "reviewer")
    assert nothing.status_code == 404
    before = download(http, file["id"], "reviewer")
    assert (before.status_code, before.json()) == (404, nothing.json())
    sent = hand_on(http, file["id"], recipient_id="reviewer", description="The report.").json()
    (message,) = fetch(http, "reviewer", unread="true")["messages"]
    assert message["id"] == sent["message_id"] and message["file_id"] == file["id"]
    for part in ("The report.", "report.pdf", f"{len(CONTENT):,} bytes", sha256, file["uri"]):
        assert part in message["content"]
    got = download(http, file["id"], "reviewer")
    assert got.content == CONTENT
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''report.pdf"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in got.headers["content-security-policy"]
    head = http.head(f"/files/{file['id']}", headers=bearer("reviewer"))
    assert (head.headers["content-length"], head.content) == (str(len(CONTENT)), b"")
    for who in ("reviewer", "admin"):
        assert http.get(f"/files/{file['id']}/meta", headers=bearer(who)).json() == file
    for who in ("admin", "alice", "swarm"):
        assert download(http, file["id"], who).status_code == 403
    assert sha256 in stored(folder)


def test_members_of_a_thread_get_its_files(http: httpx.Client) -> None:
    room, file = thread(http, "reviewer"), upload(http, filename="a.txt")
    assert hand_on(http, file["id"], thread_id=room).status_code == 200
    assert download(http, file["id"], "reviewer").content == CONTENT
    place = f"/threads/{room}/participants/reviewer"
    assert http.delete(place, headers=bearer("editor")).status_code == 200
    assert download(http, file["id"], "reviewer").status_code == 404


def test_only_its_owner_hands_a_file_on_and_only_its_owner_deletes_it(http: httpx.Client) -> None:
    file = upload(http)
    assert hand_on(http, file["id"], "reviewer", recipient_id="editor").status_code == 404
    assert hand_on(http, file["id"], recipient_id="nobody").status_code == 400
    assert hand_on(http, file["id"], recipient_id="reviewer", thread_id="x").status_code == 400
    claimed = hand_on(http, file["id"], recipient_id="reviewer", sender_id="reviewer")
    assert claimed.status_code == 403
    place = f"/files/{file['id']}"
    assert http.delete(place, headers=bearer("reviewer")).status_code == 404
    assert hand_on(http, file["id"], recipient_id="reviewer").status_code == 200
    assert hand_on(http, file["id"], "reviewer", recipient_id="editor").status_code == 404
    refused = http.delete(place, headers=bearer("reviewer"))
    assert (refused.status_code, "owner" in refused.json()["detail"]) == (403, True)
    done = http.delete(place, headers=bearer("editor"))
    assert done.json() == {"status": "deleted", "file_id": file["id"]}
    for who in ("editor", "reviewer"):
        assert download(http, file["id"], who).status_code == 404
    other = upload(http)
    assert http.delete(f"/files/{other['id']}", headers=bearer("admin")).status_code == 200


def test_an_uploaded_file_goes_with_a_message(http: httpx.Client) -> None:
    file, body = upload(http), {"content": "Look.", "recipient_id": "reviewer"}
    assert download(http, file["id"], "reviewer").status_code == 404
    for who, file_id in (("reviewer", file["id"]), ("editor", "none"), ("editor", "../x")):
        other = body | {"recipient_id": "reviewer" if who == "editor" else "editor"}
        answer = http.post("/messages", headers=bearer(who), json=other | {"file_id": file_id})
        assert answer.status_code == 404, answer.text
    with_file = body | {"file_id": file["id"], "request_id": "with-file"}
    for _ in range(2):
        sent = http.post("/messages", headers=bearer("editor"), json=with_file).json()
        assert (sent["message"]["file_id"], sent["message"]["content"]) == (file["id"], "Look.")
    changed = http.post(
        "/messages", headers=bearer("editor"), json=body | {"request_id": "with-file"}
    )
    assert changed.status_code == 409
    assert download(http, file["id"], "reviewer").content == CONTENT


def test_a_repeated_transfer_sends_nothing_again(http: httpx.Client) -> None:
    fetch(http, "reviewer", limit=100)
    file = upload(http)
    body = {"recipient_id": "reviewer", "request_id": f"r-{file['id']}"}
    first, second = (hand_on(http, file["id"], **body).json() for _ in range(2))
    assert first == second
    assert len(fetch(http, "reviewer", unread="true")["messages"]) == 1


def test_a_repeated_upload_with_a_key_is_one_file(http: httpx.Client) -> None:
    def again(content: bytes = CONTENT, **query: str) -> httpx.Response:
        headers = bearer("editor") | {"Idempotency-Key": "nightly-1"}
        return http.post("/files", headers=headers, content=content, params=query)

    first, second = again(filename="a"), again(filename="a")
    assert first.status_code == 200 and first.json() == second.json()
    for other in (again(b"other", filename="a"), again(filename="b")):
        assert (other.status_code, "different" in other.json()["detail"]) == (409, True)


def test_one_content_is_stored_once_and_goes_with_its_last_file(
    http: httpx.Client, folder: Path
) -> None:
    content = b"twice the same" * 100
    sha256 = hashlib.sha256(content).hexdigest()
    before = stored(folder)
    one, two = upload(http, content=content), upload(http, "reviewer", content)
    assert one["id"] != two["id"] and stored(folder) - before == {sha256}
    assert http.delete(f"/files/{one['id']}", headers=bearer("editor")).status_code == 200
    assert download(http, two["id"], "reviewer").content == content
    assert http.delete(f"/files/{two['id']}", headers=bearer("reviewer")).status_code == 200
    assert stored(folder) == before


def test_own_files_are_listed_page_by_page(http: httpx.Client) -> None:
    made = {upload(http, "reviewer", b"")["id"] for _ in range(3)}
    found, after = [], ""
    while True:
        query = {"limit": "2", "after": after}
        page = http.get("/files", headers=bearer("reviewer"), params=query).json()
        found += [file["id"] for file in page["files"]]
        after = page["next_after"]
        if after is None:
            break
    assert found == sorted(found) and made <= {*found}
    odd = http.get("/files", headers=bearer("reviewer"), params={"after": "x" * 300})
    assert odd.status_code == 400
    for file_id in made:
        http.delete(f"/files/{file_id}", headers=bearer("reviewer"))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/shadow", "shadow"),
        ("C:\\Windows\\win.ini", "win.ini"),
        ("..", "file"),
        ("a/..", "a"),
        ("x\r\nSet-Cookie: a=b.txt", "xSet-Cookie_ a=b.txt"),
        ("\u202egnp.exe", "gnp.exe"),
        ("CON.txt", "_CON.txt"),
        (".bashrc", "bashrc"),
        ("é" * 200 + ".tar", "é" * 125 + ".tar"),
    ],
)
def test_a_name_is_never_a_path(http: httpx.Client, given: str, kept: str) -> None:
    file = upload(http, content=b"x", filename=given)
    assert file["filename"] == kept
    assert len(file["filename"].encode()) <= 255
    named = download(http, file["id"], "editor").headers["content-disposition"]
    assert named.isascii() and named.startswith("attachment; filename*=UTF-8''")
    http.delete(f"/files/{file['id']}", headers=bearer("editor"))


@pytest.mark.parametrize("file_id", ["%2e%2e", "a%2Fb", "%00", "x" * 300, "meta"])
def test_an_odd_id_is_that_of_no_file(http: httpx.Client, file_id: str) -> None:
    assert download(http, file_id, "editor").status_code in (404, 405)
    assert http.delete(f"/files/{file_id}/meta", headers=bearer("editor")).status_code in (404, 405)


@pytest.mark.parametrize("declared", [True, False])
def test_what_is_too_large_is_not_stored(http: httpx.Client, folder: Path, declared: bool) -> None:
    before = stored(folder)
    whole = bytes(MOST + 1)
    content: Any = whole if declared else iter([whole[:MOST], whole[MOST:]])
    answer = http.post("/files", headers=bearer("editor"), content=content)
    assert answer.status_code == 413
    assert stored(folder) == before
    assert upload(http, content=bytes(MOST))["size"] == MOST


def test_an_upload_that_is_cut_leaves_nothing(http: httpx.Client, folder: Path) -> None:
    before = stored(folder)
    place = urlsplit(str(http.base_url))
    with socket.create_connection((place.hostname, place.port)) as line:
        token = bearer("editor")["Authorization"]
        head = f"POST /files HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        line.sendall(f"{head}Content-Length: 900000\r\n\r\n".encode() + bytes(600_000))
        wait_until(lambda: stored(folder) != before)
    wait_until(lambda: stored(folder) == before)


def test_files_arrive_a_few_at_a_time(http: httpx.Client, server: tuple[Any, FastAPI]) -> None:
    place = urlsplit(str(http.base_url))
    token = bearer("reviewer")["Authorization"]
    head = f"POST /files HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
    quotas = server[1].state.mail.quotas
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            line = socket.create_connection((place.hostname, place.port))
            stack.enter_context(line).sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
        wait_until(lambda: quotas._uploads.total() == 4)
        refused = http.post("/files", headers=bearer("reviewer"), content=b"x")
        assert (
            refused.status_code == 429
            and "files that are still arriving" in refused.json()["detail"]
        )
        assert upload(http, "editor", b"x")["size"] == 1
    wait_until(lambda: not quotas._uploads)


def test_files_are_downloaded_so_many_at_a_time(
    http: httpx.Client, server: tuple[Any, FastAPI]
) -> None:
    quotas = server[1].state.mail.quotas
    path = f"/files/{upload(http, content=b'x')['id']}"
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(quotas.download(Caller("agent", "editor")))
        refused = http.get(path, headers=bearer("editor"))
        assert (
            refused.status_code == 429
            and "files that are still on their way" in refused.json()["detail"]
        )
        assert http.get(f"{path}/meta", headers=bearer("editor")).status_code == 200
    assert http.get(path, headers=bearer("editor")).content == b"x"
    wait_until(lambda: not quotas._downloads)


def test_a_full_disk_is_told(
    http: httpx.Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(folder)

    def full(opened: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answer = http.post("/files", headers=bearer("editor"), content=b"new")
    assert answer.status_code == 507 and "no room" in answer.json()["detail"]
    monkeypatch.undo()
    assert stored(folder) == before


def test_files_count_as_stored_bytes_and_survive_the_server(tmp_path: Path) -> None:
    with serving(tmp_path, max_stored_bytes=MOST) as (http, _):
        first = upload(http, content=bytes(MOST))
        assert hand_on(http, first["id"], recipient_id="reviewer").status_code == 507
        refused = http.post("/files", headers=bearer("editor"), content=b"x")
        assert refused.status_code == 507 and "DELETE /files" in refused.json()["detail"]
        assert upload(http, "reviewer")["size"] == len(CONTENT)
        other = upload(http, "reviewer", content=bytes(MOST))
        assert http.post("/files", headers=bearer("reviewer"), content=b"x").status_code == 507
        gone = http.delete(f"/files/{other['id']}", headers=bearer("reviewer"))
        assert gone.status_code == 200
        assert upload(http, "reviewer")["size"] == len(CONTENT), "there is room at once"
    with serving(tmp_path) as (http, _):
        assert download(http, first["id"], "editor").content == bytes(MOST)
        assert hand_on(http, first["id"], recipient_id="reviewer").status_code == 200
        assert download(http, first["id"], "reviewer").content == bytes(MOST)


# --- where contents are kept --------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with bucket_server() as environ:
        yield Bucket("files-of-mail", environ)


@pytest.fixture
def s3(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    return {"url": f"s3://{bucket.name}/mail"}


def refused(url: str, place: Any) -> str:
    """Return why a server does not start."""
    changes = {"store": StoreConfig(url=url), "files": FilesConfig(**place)}
    app = create_app(settings(debug=False).model_copy(update=changes), template=till())

    async def start() -> None:
        async with app.router.lifespan_context(app):
            pass

    with pytest.raises(ConfigError) as caught:
        asyncio.run(start())
    return str(caught.value)


def test_files_in_a_bucket_are_got_like_others(
    tmp_path: Path, bucket: Bucket, s3: dict[str, str]
) -> None:
    with serving(tmp_path, place=s3) as (http, _):
        file = upload(http)
        sent = hand_on(http, file["id"], recipient_id="reviewer")
        assert sent.status_code == 200, sent.text
        got = http.get(f"/files/{file['id']}", headers=bearer("reviewer"))
        assert got.content == CONTENT
        assert file["sha256"] in {key.rpartition("/")[2] for key in bucket.stored()}
        assert not (tmp_path / "mail-files").exists()
        assert http.delete(f"/files/{file['id']}", headers=bearer("editor")).status_code == 200
        assert file["sha256"] not in {key.rpartition("/")[2] for key in bucket.stored()}
    assert "another database" in refused(f"sqlite:///{tmp_path}/other.db", s3)
    both = {**s3, "root": str(tmp_path)}
    assert refused("memory://", both) == "[server.files]: give either root or url"


def test_a_bucket_that_fails_is_a_503_and_leaves_the_server_at_work(
    tmp_path: Path, bucket: Bucket, s3: dict[str, str]
) -> None:
    with serving(tmp_path, place={"url": f"s3://{Bucket('gone-soon', bucket.environ).name}"}) as (
        http,
        _,
    ):
        file = upload(http)
        Bucket("gone-soon", bucket.environ).destroy()
        for answer in (
            http.get(f"/files/{file['id']}", headers=bearer("editor")),
            http.post("/files", content=b"other", headers=bearer("editor")),
        ):
            assert answer.status_code == 503, answer.text
            assert bucket.environ["AWS_SECRET_ACCESS_KEY"] not in answer.text
        assert http.get("/files", headers=bearer("editor")).json()["files"][0]["id"] == file["id"]


def test_databases_of_one_server_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    mine, other = cluster.schema(), cluster.schema()
    with serving(tmp_path, mine) as (http, _):
        first = upload(http)
    (made,) = tmp_path.iterdir()
    assert made.name.endswith("-files") and made.name != "mail-files"
    made.rename("mail-files")  # where an earlier version kept those of all databases
    for mark in Path("mail-files").rglob(MARK):
        mark.unlink()
    with serving(tmp_path, mine) as (http, _):
        assert http.get(f"/files/{first['id']}", headers=bearer("editor")).content == CONTENT
    with serving(tmp_path, other) as (http, _):
        upload(http)
    assert {path.name for path in tmp_path.iterdir()} == {"mail-files", made.name}
    assert "holds the files of another database" in refused(mine, {"root": made.name})
