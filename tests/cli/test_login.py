"""``mail login``: the token is typed once, unseen, and stands on no command line after that."""

import json
import stat
from pathlib import Path

import pytest

from mail.cli.commands import main
from mail.cli.credentials import api_key, credentials_file, keep
from mail.db.memory import MemoryStore
from mail.errors import ConfigError
from mail.server.app import create_app
from tests.cli.terminal import SOURCE, Done, run, terminal
from tests.server.kit import TOKENS, Script, Template, config, serving

pytest.importorskip("keyring", reason="it is in the extra 'keyring', which 'dev' has")
pytestmark = pytest.mark.e2e

ALICE, BOB = TOKENS["alice"], TOKENS["bob"]
WARNING = "mail: warning: ps and the shell's history show the token of a command line"


def settings(home: Path, backend: str = "tests.cli.keyring_backend.FileKeyring") -> dict[str, str]:
    return {
        "PYTHON_KEYRING_BACKEND": backend,
        "TEST_KEYRING": str(home / "keyring.json"),
        "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}",
    }


async def mail(home: Path, *words: str, typed: str = "", **environ: str) -> Done:
    return await run(home, *words, typed=typed, **(settings(home) | environ))


def listed(home: Path) -> str:
    """Return the file of credentials, which is its owner's alone."""
    file = home / ".config" / "mail" / "credentials"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    return file.read_text()


async def test_a_person_logs_in_once_and_no_command_needs_a_token(
    tmp_path: Path, server: str
) -> None:
    async with terminal(tmp_path, ["login", server], **settings(tmp_path)) as shown:
        await shown.see(f"Token for {server}: ")
        shown.type(ALICE)
        await shown.see(r"logged in to \S+ as user 'alice'; the token is kept in the keyring")
        assert await shown.end() == 0
        assert ALICE not in shown.screen
    assert ALICE not in listed(tmp_path)
    assert ALICE in (tmp_path / "keyring.json").read_text()

    code, out, err = await mail(tmp_path, "client", server, "whoami")
    assert (code, out, err) == (0, "role user with ID alice\n", "")
    code, out, err = await mail(tmp_path, "tasks", "list", "--url", server)
    assert (code, err) == (0, "")
    # Another server gets nothing, and the environment's token wins.
    assert (await mail(tmp_path, "client", f"{server}/other", "whoami"))[0] == 1
    code, out, _ = await mail(tmp_path, "client", server, "whoami", MAIL_API_KEY=BOB)
    assert out == "role user with ID bob\n"

    code, out, _ = await mail(tmp_path, "logout", server, "--json")
    assert (code, json.loads(out)) == (0, {"url": server, "status": "logged_out"})
    assert json.loads((tmp_path / "keyring.json").read_text()) == {}
    assert not (tmp_path / ".config" / "mail" / "credentials").exists()
    assert (await mail(tmp_path, "client", server, "whoami"))[0] == 1
    assert await mail(tmp_path, "logout", server) == (1, "", f"mail: not logged in to {server}\n")


async def test_a_script_gives_the_token_by_its_input_and_may_use_a_file(
    tmp_path: Path, server: str
) -> None:
    for token, name in ((ALICE, "alice"), (BOB, "bob")):
        code, out, err = await mail(
            tmp_path, "login", "--file", typed=f"{token}\n", MAIL_URL=server
        )
        assert (code, err) == (0, "")
        assert f"as user '{name}'; the token is kept in {tmp_path}" in out
    assert not (tmp_path / "keyring.json").exists()
    assert json.loads(listed(tmp_path)) == {server: {"token": BOB}}
    _, out, _ = await mail(tmp_path, "client", server.upper().replace("HTTP", "http"), "whoami")
    assert out == "role user with ID bob\n"

    # From the file to the keyring, and back.
    assert (await mail(tmp_path, "login", server, typed=ALICE))[0] == 0
    assert BOB not in listed(tmp_path)
    assert ALICE not in listed(tmp_path)
    assert (await mail(tmp_path, "login", server, "--file", typed=BOB))[0] == 0
    assert ALICE not in (tmp_path / "keyring.json").read_text()


async def test_what_the_server_does_not_accept_is_not_kept(tmp_path: Path, server: str) -> None:
    for typed, words in (("wrong\n", "401"), ("\n", "no token"), ("a b\n", "one word")):
        code, out, err = await mail(tmp_path, "login", server, typed=typed)
        assert code != 0
        assert (out, words in err) == ("", True), err
        assert "wrong" not in err
    assert (await mail(tmp_path, "login", "http://127.0.0.1:1", typed=ALICE))[0] == 1
    assert (await mail(tmp_path, "login", typed=ALICE))[2] == (
        "mail: give the server's URL, or set MAIL_URL\n"
    )
    assert not (tmp_path / ".config").exists()
    assert not (tmp_path / "keyring.json").exists()


async def test_without_a_keyring_nobody_is_asked_for_the_token(tmp_path: Path, server: str) -> None:
    for backend in ("keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"):
        chosen = settings(tmp_path, backend)
        async with terminal(tmp_path, ["login", server], **chosen) as shown:
            await shown.see(r"no keyring that can be used; keep the token in \S+, .*--file")
            assert await shown.end() == 1
            assert "Token for" not in shown.screen
    (tmp_path / "keyring").mkdir()
    (tmp_path / "keyring" / "__init__.py").write_text("raise ImportError('not installed')")
    code, _, err = await mail(tmp_path, "login", server, PYTHONPATH=f"{tmp_path}:{SOURCE}")
    assert (code, "pip install 'mail-protocol[keyring]'" in err) == (1, True)


async def test_a_locked_keyring_is_told(tmp_path: Path, server: str) -> None:
    assert (await mail(tmp_path, "login", server, typed=ALICE))[0] == 0
    (tmp_path / "keyring.locked").touch()
    code, _, err = await mail(tmp_path, "client", server, "whoami")
    assert (code, "did not give the token" in err and "KeyringLocked" in err) == (1, True)
    assert (await mail(tmp_path, "client", server, "whoami", MAIL_API_KEY=ALICE))[0] == 0


async def test_a_token_on_the_command_line_works_with_one_line_of_warning(
    tmp_path: Path, server: str
) -> None:
    for words in (
        ("client", server, "-ak", ALICE, "whoami"),
        ("tasks", "list", "--url", server, "--api-key", ALICE),
    ):
        code, _, err = await mail(tmp_path, *words)
        assert (code, err.count("\n"), err.startswith(WARNING)) == (0, 1, True)
        assert all(way in err for way in ("MAIL_API_KEY", "--api-key-file", "`mail login`"))
        assert ALICE not in err
    code, _, err = await mail(tmp_path, "client", server, "login", ALICE)
    assert (code, err.count("\n"), err.startswith(WARNING)) == (0, 1, True)
    others = (
        ("message-interswarm", "Hi", "a@b", ALICE),
        ("swarm-register", "beta", "http://127.0.0.1:1", ALICE),
    )
    for words in others:
        _, _, err = await mail(tmp_path, "client", server, *words)
        assert (err.startswith(WARNING), ALICE in err) == (True, False)
        assert "on standard input" in err.splitlines()[0]
    _, _, err = await mail(tmp_path, "client", server, "message-interswarm", "Hi", "a@b", "")
    assert WARNING not in err
    _, _, err = await mail(tmp_path, "client", server, typed=f"login {ALICE}\n")
    assert WARNING not in err
    link = f"swarm://connect?server=127.0.0.1:1&token={ALICE}"
    for words in (("client", link, "whoami"), ("ping", link)):
        _, out, err = await mail(tmp_path, *words)
        assert (err.count(WARNING), ALICE in out + err) == (1, False)
    _, _, err = await mail(tmp_path, "client", "whoami", MAIL_URL=link)
    assert WARNING not in err


async def test_a_file_may_contain_the_token(tmp_path: Path, server: str) -> None:
    (tmp_path / "key").write_text(f"{ALICE}\n")
    for words in (
        ("client", server, "--api-key-file", "key", "whoami"),
        ("tasks", "list", "--url", server, "--api-key-file", "key"),
    ):
        code, _, err = await mail(tmp_path, *words, MAIL_API_KEY="wrong")
        assert (code, err) == (0, "")


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, words in (("none", "No such file"), ("empty", "is empty"), ("binary", "not contain")):
        with pytest.raises(ConfigError, match=words):
            api_key(None, str(tmp_path / name), "http://a.example")
    with pytest.raises(ConfigError, match="not both"):
        api_key("x", str(tmp_path / "empty"), "http://a.example")


def test_a_file_of_credentials_that_others_can_read_or_that_is_damaged_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("MAIL_API_KEY", raising=False)
    keep("http://a.example", "secret", None)
    assert api_key(None, None, "http://a.example/") == "secret"
    assert api_key(None, None, "swarm://connect?server=a.example") is None
    assert api_key(None, None, "http://b.example") is None
    credentials_file().chmod(0o640)
    with pytest.raises(ConfigError, match=r"others can read .*chmod 600"):
        api_key(None, None, "http://a.example")
    credentials_file().chmod(0o600)
    for damage in ("[", "[]", '{"http://a.example": "secret"}'):
        credentials_file().write_text(damage)
        assert main(["logout", "http://a.example"]) == 2
        assert "is not what 'mail login' wrote" in capsys.readouterr().err


def test_a_link_gets_the_token_of_its_own_server_and_never_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MAIL_API_KEY", "environment's")
    keep("https://a.example", "login's", None)
    assert api_key(None, None, "swarm://connect?server=a.example") == "login's"
    assert api_key(None, None, "swarm://connect?server=a.example&token=own") == "own"
    assert api_key(None, None, "swarm://connect?server=b.example") is None


async def test_a_participant_logs_in(tmp_path: Path, store: MemoryStore) -> None:
    template = Template(Script())
    template.participants = [{"name": "editor", "description": ""}]
    app = create_app(config(shutdown_grace=0.5), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as http:
        url, token = str(http.base_url).rstrip("/"), TOKENS["editor"]
        code, out, err = await mail(tmp_path, "login", "--file", url, typed=f"{token}\n")
        assert (code, err) == (0, "")
        assert out.startswith(f"logged in to {url} as participant 'editor'; ")
        peer = await mail(tmp_path, "login", "--file", url, typed=f"{TOKENS['swarm']}\n")
    assert peer[0] == 1
    assert "'beta' is no participant of the swarm" in peer[2]
    assert json.loads(listed(tmp_path)) == {url: {"token": token}}


async def test_the_prompt_asks_for_a_key_that_is_not_typed_in_the_line(
    tmp_path: Path, server: str
) -> None:
    async with terminal(tmp_path, ["client", server]) as shown:
        await shown.see("mail>")
        shown.type("login")
        await shown.see("Token for .*: ")
        shown.type(ALICE)
        await shown.see("role: user")
        shown.type("exit")
        assert await shown.end() == 0
        assert ALICE not in shown.screen
    assert ALICE not in (tmp_path / ".mail_history").read_text()
    code, _, err = await mail(tmp_path, "client", server, typed="login\nwhoami\n")
    assert (code, "give the key" in err) == (1, True)
