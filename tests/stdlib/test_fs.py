"""File actions: their documented answers, and that nothing outside of the workspace is touched."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mail.stdlib.fs.actions import (
    create_directory,
    delete_file,
    read_directory,
    read_file,
    write_file,
)

EVERY = (read_file, write_file, delete_file, create_directory, read_directory)
SECRET = "the outside's secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace, made; beside it lies a folder that is none of the agent's business."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "secret.txt").write_text(SECRET)
    return tmp_path / "workspace"


@pytest.fixture
def secret(root: Path) -> Iterator[Path]:
    """A file outside; whatever a test does, it is as it was."""
    path = root.parent / "beside" / "secret.txt"
    yield path
    assert path.read_text() == SECRET
    assert names(path.parent) == ["secret.txt"]


def names(folder: Path) -> list[str]:
    """Return what is in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


async def call(action: object, path: object, **more: object) -> str:
    """Call an action as an agent does."""
    if action is write_file:
        more = {"content": "new", **more}
    result: str = await action.function({"path": path, **more})  # type: ignore[attr-defined]
    return result


async def test_a_file_is_written_read_and_deleted(root: Path) -> None:
    assert await call(write_file, "a/b/c.txt", content="grüße\r\n") == (
        "successfully wrote to a/b/c.txt"
    )
    assert (root / "a/b/c.txt").read_bytes() == "grüße\r\n".encode()
    assert await call(read_file, "a//b/./c.txt") == "grüße\r\n"
    assert await call(write_file, "a/b/c.txt", content="") == "successfully wrote to a/b/c.txt"
    assert await call(read_file, "a/b/c.txt") == ""
    assert await call(delete_file, "a/b/c.txt") == "successfully deleted a/b/c.txt"
    assert names(root / "a/b") == []


async def test_directories_are_made_and_listed(root: Path) -> None:
    assert await call(read_directory, ".") == "the directory is empty"
    assert await call(create_directory, "x/y") == "successfully created directory at x/y"
    for name in ("b.txt", "a.txt"):
        await call(write_file, f"x/{name}")
    assert await call(read_directory, "x") == "a.txt\nb.txt\ny"
    assert (root / "x/y").is_dir()


async def test_the_workspace_is_made_by_the_first_write(tmp_path: Path) -> None:
    assert await call(read_directory, "") == "the directory is empty"
    assert await call(read_file, "a.txt") == "Error: file not found at a.txt"
    assert not (tmp_path / "workspace").exists()
    assert await call(write_file, "a.txt") == "successfully wrote to a.txt"
    assert (tmp_path / "workspace" / "a.txt").read_text() == "new"


async def test_without_a_setting_it_is_a_folder_of_the_current_one(
    tmp_path: Path, configure: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("")
    monkeypatch.chdir(tmp_path)
    await call(write_file, "a.txt")
    assert [path.name for path in (tmp_path / "workspace").iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("action", "path", "answer"),
    [
        (read_file, "no.txt", "file not found at no.txt"),
        (read_file, "no/a.txt", "file not found at no/a.txt"),
        (read_file, "folder", "folder is not a file"),
        (read_file, ".", ". is not a file"),
        (read_file, "", "an empty path is not a file"),
        (read_file, "file.txt/x", "file.txt/x is not a directory"),
        (write_file, "folder", "folder is not a file"),
        (write_file, "file.txt/x", "file.txt/x is not possible: a part of it is a file"),
        (delete_file, "no.txt", "file not found at no.txt"),
        (delete_file, "folder", "folder is not a file"),
        (create_directory, "folder", "directory already exists at folder"),
        (create_directory, ".", "directory already exists at ."),
        (create_directory, "file.txt", "file.txt is a file, not a directory"),
        (read_directory, "no", "directory not found at no"),
        (read_directory, "file.txt", "file.txt is not a directory"),
    ],
)
async def test_what_is_not_there_is_told(
    root: Path, action: object, path: str, answer: str
) -> None:
    (root / "folder").mkdir()
    (root / "file.txt").write_text("x")
    assert (await call(action, path)).startswith(f"Error: {answer}")
    assert names(root) == ["file.txt", "folder"]


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_arguments_must_be_text(action: object) -> None:
    for path in (None, 5, ["a"]):
        assert await call(action, path) == "Error: `path` must be a string"
    assert await action.function({"content": "x"}) == (  # type: ignore[attr-defined]
        "Error: `path` must be a string"
    )
    assert await write_file.function({"path": "a"}) == "Error: `content` must be a string"
    assert await write_file.function({"path": "a", "content": 1}) == (
        "Error: `content` must be a string"
    )


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../../etc/passwd", "could lead outside the workspace"),
        ("../beside/secret.txt", "could lead outside the workspace"),
        ("a/../../beside/secret.txt", "could lead outside the workspace"),
        ("..", "could lead outside the workspace"),
        ("a/..", "could lead outside the workspace"),
        ("/etc/passwd", "is an absolute path"),
        ("//etc/passwd", "is an absolute path"),
        ("a\0b", "must not contain NUL"),
        ("a\ud800b", "not allowed in file names"),
        ("x" * 300, "File name too long"),
    ],
)
async def test_paths_that_lead_out_are_refused_before_anything_is_opened(
    secret: Path,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: object,
    path: str,
    reason: str,
) -> None:
    opened: list[object] = []
    real = os.open

    def watch(name: object, *args: object, **more: object) -> int:
        opened.append(name)
        return real(name, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", watch)
    answer = await call(action, path)
    assert answer.startswith("Error: ")
    assert reason in answer
    assert SECRET not in answer
    if "too long" not in reason:
        assert opened == []
    assert names(root) == []


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_links_are_not_followed(secret: Path, root: Path, action: object) -> None:
    (root / "file-link").symlink_to(secret)
    (root / "folder-link").symlink_to(secret.parent)
    (root / "relative-link").symlink_to("../beside")
    (root / "inner-link").symlink_to(root)
    for path in (
        "file-link",
        "folder-link",
        "folder-link/secret.txt",
        "folder-link/new",
        "relative-link/secret.txt",
        "inner-link/x",
        "inner-link/folder-link/secret.txt",
    ):
        answer = await call(action, path)
        assert answer.startswith("Error: "), path
        assert SECRET not in answer
        assert "secret.txt" not in answer.replace(path, "")
    assert len(names(root)) == 4


async def test_a_normal_use_beside_links_works(secret: Path, root: Path) -> None:
    (root / "link").symlink_to(secret)
    assert await call(write_file, "notes/today.txt", content="sunny") == (
        "successfully wrote to notes/today.txt"
    )
    assert await call(read_file, "notes/today.txt") == "sunny"
    assert await call(read_directory, ".") == "link\nnotes"


async def test_the_workspace_itself_may_be_reached_through_a_link(
    root: Path, configure: Callable[[str], None]
) -> None:
    (root.parent / "short").symlink_to(root)
    configure(f'[stdlib.fs]\nroot = "{root.parent}/short"\n')
    await call(write_file, "a.txt")
    assert (root / "a.txt").read_text() == "new"


class Swap:
    """Puts a link in the place of a file or folder just before it is opened or replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path, target: Path) -> None:
        self.place, self.target = place, target
        self.done = False
        for function in ("open", "replace", "unlink", "mkdir"):
            monkeypatch.setattr(os, function, self._before(getattr(os, function)))

    def _before(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(name: object, *args: object, **more: object) -> object:
            target = args[0] if real.__name__ in ("replace", "rename") else name
            if not self.done and target == self.place.name:
                self.done = True
                self.place.rename(self.place.with_name("moved"))
                self.place.symlink_to(self.target)
            return real(name, *args, **more)

        return call


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_a_folder_swapped_for_a_link_in_between_is_not_followed(
    secret: Path, root: Path, monkeypatch: pytest.MonkeyPatch, action: object
) -> None:
    (root / "folder").mkdir()
    (root / "folder" / "secret.txt").write_text("own")
    swap = Swap(monkeypatch, root / "folder", secret.parent)
    path = "folder" if action is read_directory else "folder/secret.txt"
    answer = await call(action, path)
    assert swap.done
    assert answer.startswith("Error: ")
    assert "leads through a symbolic link" in answer


@pytest.mark.parametrize("action", [read_file, write_file, delete_file], ids=lambda a: a.name)
async def test_a_file_swapped_for_a_link_in_between_is_not_followed(
    secret: Path, root: Path, monkeypatch: pytest.MonkeyPatch, action: object
) -> None:
    (root / "file.txt").write_text("own")
    swap = Swap(monkeypatch, root / "file.txt", secret)
    answer = await call(action, "file.txt")
    assert swap.done
    assert SECRET not in answer
    if action is read_file:
        assert answer == "Error: file.txt is not a file: it is a symbolic link"
    else:  # it is the link that was replaced or deleted, not what it leads to
        assert not (root / "file.txt").is_symlink()


@pytest.mark.parametrize("action", [read_file, write_file, delete_file], ids=lambda a: a.name)
async def test_pipes_sockets_and_devices_are_no_files(root: Path, action: object) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(root)  # the paths of sockets may not be long
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        for name in ("pipe", "socket"):
            answer = await call(action, name)
            assert answer == f"Error: {name} is not a file: it is a device, pipe or socket"


async def test_a_pipe_swapped_in_between_does_not_hang(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file.txt").write_text("own")
    real = os.open

    def swap(name: object, *args: object, **more: object) -> int:
        if name == "file.txt":
            (root / "file.txt").unlink()
            os.mkfifo(root / "file.txt")
        return real(name, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swap)
    assert await call(read_file, "file.txt") == (
        "Error: file.txt is not a file: it is a device, pipe or socket"
    )


async def test_sizes_are_limited_both_ways(root: Path, configure: Callable[[str], None]) -> None:
    configure(f'[stdlib.fs]\nroot = "{root}"\nmax_bytes = 10\n')
    assert await call(write_file, "a", content="ü" * 5) == "successfully wrote to a"
    assert await call(read_file, "a") == "ü" * 5
    assert await call(write_file, "a", content="ü" * 5 + "x") == (
        "Error: `content` is too large: 11 bytes, the limit is 10"
    )
    (root / "a").write_bytes(b"x" * 11)
    assert await call(read_file, "a") == (
        "Error: a is too large to read: 11 bytes, the limit is 10"
    )
    (root / "b-long-name").touch()
    assert await call(read_directory, ".") == "Error: the list of . is longer than 10 bytes"


async def test_what_is_not_text_is_described(root: Path) -> None:
    (root / "image.png").write_bytes(b"\x89PNG\xff")
    assert await call(read_file, "image.png") == (
        "Error: image.png is not a text file in UTF-8 (5 bytes)"
    )
    assert await call(write_file, "a", content="\ud800") == (
        "Error: `content` has characters that cannot be written as UTF-8"
    )


async def test_names_cannot_forge_a_line_of_the_list(root: Path) -> None:
    (root / "a\nb\x1b").touch()
    (root / os.fsdecode(b"\xff")).touch()
    assert await call(read_directory, ".") == "a\\nb\\x1b\n\ufffd"


async def test_a_file_is_replaced_as_a_whole_and_keeps_its_permissions(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root / "a.txt"
    file.write_text("old")
    file.chmod(0o640)
    assert await call(write_file, "a.txt") == "successfully wrote to a.txt"
    assert file.stat().st_mode & 0o777 == 0o640
    file.chmod(0o440)
    assert await call(write_file, "a.txt", content="x") == "Error: a.txt is read-only"

    def fail(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    file.chmod(0o640)
    monkeypatch.setattr(os, "replace", fail)
    assert await call(write_file, "a.txt", content="x") == "Error: a.txt: No space left on device"
    assert file.read_text() == "new"
    assert names(root) == ["a.txt"]


async def test_a_name_that_leads_outside_through_a_second_name_is_not_written_through(
    secret: Path, root: Path
) -> None:
    os.link(secret, root / "hard")
    assert await call(write_file, "hard") == "successfully wrote to hard"
    assert (root / "hard").read_text() == "new"


async def test_a_wrong_setting_is_told_without_a_traceback(
    configure: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    configure("[stdlib.fs]\nroot = 5\n")
    assert await call(read_file, "a") == (
        "Error: the settings of this action are invalid; the operator must correct mail.toml"
    )
    assert "[stdlib.fs] 'root': must be a string, actually got int" in caplog.text


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_long_and_deep_paths_are_refused_before_anything_is_opened(
    root: Path, action: object
) -> None:
    assert await call(action, "./" * 50_000) == (
        "Error: `path` is too long: 100000 bytes, the limit is 4096"
    )
    assert await call(action, "é" * 2049) == (
        "Error: `path` is too long: 4098 bytes, the limit is 4096"
    )
    assert await call(action, "a/" * 65) == "Error: `path` is too deep: 65 names, the limit is 64"
    assert names(root) == []


async def test_a_path_at_the_limits_is_made(root: Path) -> None:
    path = "/".join(["a" * 60] * 64)
    assert await call(create_directory, path) == (
        f"successfully created directory at {path[:200]}…"
    )
    assert (root / path).is_dir()
    for action in (read_file, delete_file, write_file):
        assert await call(action, path) == f"Error: {path[:200]}… is not a file"


@pytest.mark.parametrize("path", ["/" + "a" * 4000, "../" + "a" * 4000, "a" * 4000, "b/" * 60])
@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_texts_do_not_repeat_long_paths(root: Path, action: object, path: str) -> None:
    answer = await call(action, path)
    assert len(answer) < 300
    assert path[:100] in answer


async def refused_root(configure: Callable[[str], None], root: str) -> set[str]:
    """Return what all actions say when the workspace is there."""
    configure(f'[stdlib.fs]\nroot = "{root}"\n')
    return {await call(action, path) for action in EVERY for path in (".", "a/b")}


@pytest.mark.parametrize("root", ["~nosuchuser/x", "a\\u0000b"])
async def test_a_workspace_that_cannot_be_is_told(
    configure: Callable[[str], None], root: str
) -> None:
    assert await refused_root(configure, root) == {
        "Error: the settings of this action are invalid; the operator must correct mail.toml"
    }


async def test_the_operators_path_is_in_no_text(
    tmp_path: Path, configure: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: object, *arguments: object, **more: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "file").write_text("")
    for place in (f"{tmp_path}/file/x", f"{tmp_path}/file", f"{tmp_path}/" + "x" * 300):
        for answer in await refused_root(configure, place):
            assert str(tmp_path) not in answer
    monkeypatch.setattr(os, "open", forbidden)
    assert await call(read_directory, ".") == "Error: .: Permission denied"


async def test_nobody_else_may_look_into_the_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await call(write_file, "a/b/c.txt")
    await call(create_directory, "d")
    assert modes(tmp_path) == {"workspace": 0o700, "a": 0o700, "b": 0o700, "d": 0o700}


def modes(folder: Path) -> dict[str, int]:
    """Return who may do what in the folders below one."""
    return {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_dir()}
