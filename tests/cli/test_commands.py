"""The ``mail`` command as a user runs it: in a process of its own."""

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mail.cli import commands
from mail.cli.commands import main
from mail.version import get_protocol_version, get_version
from tests.cli.conftest import Mail
from tests.cli.terminal import environment
from tests.swarms_json.definitions import good

HEAVY = (
    *("litellm", "fastapi", "langmem", "openai", "aiohttp", "pydantic"),
    *("prompt_toolkit", "rich"),
)


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """Serve one fixed answer on a loopback port; yield the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Be silent."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_without_a_command_the_help_is_printed(mail: Mail) -> None:
    done = mail()
    assert done.code == 0
    for command in (
        *("server", "client", "ui", "ping", "token", "tasks", "swarms", "register", "version"),
    ):
        assert command in done.out


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_version_prints_three_lines(mail: Mail, asked: str) -> None:
    done = mail(asked)
    lines = done.out.splitlines()
    assert lines[0] == "MAIL reference implementation version: 1.3.6"
    assert lines[1] == "MAIL protocol version: 1.3"
    assert (len(lines), done.code, done.err) == (3, 0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["ping", "http://127.0.0.1:1"],
        ["version"],
        ["client", "--help"],
        ["client"],
        ["register", "--help"],
    ],
)
def test_light_commands_load_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys; from mail.cli import main; main(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment(Path.cwd(), PYTHONWARNINGS="error"),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("status", "body", "line", "code"),
    [
        (200, b'{"status": "healthy", "swarm_name": "alpha"}', "✓ alpha is healthy", 0),
        (200, b"{}", "✓ MAIL server is up", 0),
        (200, b'{"status": "\\u001b[31mred\\n"}', "✓ MAIL server is \\u001b[31mred", 0),
        (503, b"{}", "✗ Server returned 503", 1),
        (200, b"<html>", "✗ Error: the response is not JSON; is this a MAIL server?", 1),
        (200, b"[]", "✗ Error: the response is not a JSON object; is this a MAIL server?", 1),
    ],
)
def test_ping_says_how_the_server_is(
    mail: Mail, status: int, body: bytes, line: str, code: int
) -> None:
    with answering(status, body) as url:
        done = mail("ping", url + "/", "--timeout", "10")
    assert (done.out, done.code, done.err) == (line + "\n", code, "")


def test_ping_says_that_nobody_is_there(mail: Mail) -> None:
    done = mail("ping", "http://127.0.0.1:1")
    assert (done.out, done.code) == ("✗ Cannot connect to http://127.0.0.1:1\n", 1)


def test_ping_reads_swarm_links(mail: Mail) -> None:
    done = mail("ping", "swarm://connect?server=127.0.0.1:1&token=secret")
    assert (done.out, done.code) == ("✗ Cannot connect to https://127.0.0.1:1\n", 1)
    done = mail("ping", "swarm://connect?token=secret")
    assert done.out == "Error: swarm:// URL must include a 'server' parameter\n"
    assert done.code == 1


def test_errors_hold_nothing_that_a_terminal_obeys(mail: Mail) -> None:
    odd = "http://127.0.0.1:1/\x1b]0;x\x07"
    for arguments in (("ping", odd), ("server", "--config", "\x1b[2J.toml")):
        done = mail(*arguments)
        assert done.code
        assert not {"\x1b", "\x07"} & {*done.out, *done.err}


def test_ping_works_on_a_terminal_without_check_marks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mail.cli", "ping", "http://127.0.0.1:1"],
        env=environment(tmp_path, PYTHONIOENCODING="ascii"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("\\u2717 Cannot connect")


def test_ping_does_not_follow_a_redirect(mail: Mail) -> None:
    with answering(302, b"", Location="/health") as url:
        assert mail("ping", url).out == "✗ Server returned 302\n"


def test_commands_that_report_something_do_it_as_json(mail: Mail, tmp_path: Path) -> None:
    with answering(200, b'{"status": "healthy"}') as url:
        told = [
            ["version", {"version": get_version(), "protocol_version": get_protocol_version()}],
            ["ping", url, {"ok": True, "health": {"status": "healthy"}}],
            ["ui", url, "--no-browser", {"url": f"{url}/console"}],
        ]
        told += [["ping", "http://127.0.0.1:1", None], ["completion", "bash", None]]
        told += [["init", "new", None], ["register", None]]
        found = [json.loads(mail(*words, "--json").out) for *words, _ in told]
    for (*_, expected), answer in zip(told, found, strict=True):
        assert expected in (None, answer)
    assert found[3] == {"ok": False, "error": "Cannot connect to http://127.0.0.1:1"}
    assert (found[4]["shell"], "_MAIL_COMPLETE" in found[4]["script"]) == ("bash", True)
    assert found[5]["folder"] == str(tmp_path / "new")
    assert {*found[5]["files"]} == {path.name for path in (tmp_path / "new").iterdir()}
    file = tmp_path / "data/applications/mail-swarm.desktop"
    assert found[6] == {"registered": True, "file": str(file)}


def test_a_token_is_printed_once_and_only_its_hash_is_kept(mail: Mail, tmp_path: Path) -> None:
    done = mail("token", "create", "--role", "user", "--id", "alice", "--label", "laptop")
    token = done.out.strip()
    assert done.code == 0
    assert token.startswith("mail_")
    assert token not in done.err
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert token.encode() not in kept
    listing = mail("token", "list")
    assert token not in listing.out
    assert listing.out.splitlines()[1].split()[1:4] == ["user", "alice", "valid"]


def test_a_token_of_a_new_database_says_where_it_is(mail: Mail, tmp_path: Path) -> None:
    create = ("token", "create", "--role", "user", "--id", "alice")
    note = f"note: created the database {tmp_path / 'mail.db'}; the server must use the same file"
    assert note in mail(*create).err.splitlines()
    assert "note:" not in mail(*create).err


def test_tokens_can_be_made_listed_and_revoked_as_json(mail: Mail) -> None:
    arguments = ("token", "create", "--role", "agent", "--id", "beta", "--expires-in", "1.5")
    made = json.loads(mail(*arguments, "--json").out)
    assert (made["role"], made["id"], made["state"]) == ("agent", "beta", "valid")
    assert made["expires_at"] > made["created_at"]
    (listed,) = json.loads(mail("token", "list", "--json").out)
    known = {key: value for key, value in made.items() if key != "token"}
    assert listed == known | {"kind": "peer"}
    revoked = json.loads(mail("token", "revoke", made["hash"], "--json").out)
    assert revoked["state"] == "revoked"
    again = mail("token", "revoke", made["hash"][:6])
    assert again.code == 0
    (listed,) = json.loads(mail("token", "list", "--json").out)
    assert listed["revoked_at"] == revoked["revoked_at"]


def test_a_token_of_an_agent_is_for_what_its_id_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mail.toml").write_text('[server.swarm]\nname = "office"\nsource = "swarms.json"\n')
    create = ["token", "create", "--store", "sqlite:///mail.db", "--id"]

    def said(*arguments: str) -> tuple[int, str]:
        code = main([*create, *arguments])
        return code, capsys.readouterr().err

    assert said("editor", "--role", "agent", "--participant")[1].startswith(
        "note: the swarms file cannot be read; it must declare the participant 'editor'"
    )
    Path("swarms.json").write_text(json.dumps(good()))
    assert said("editor", "--role", "agent", "--participant")[0] == 0
    assert said("swarm-beta", "--role", "agent")[0] == 0
    assert main(["token", "list", "--store", "sqlite:///mail.db", "--json"]) == 0
    kinds = {each["id"]: each["kind"] for each in json.loads(capsys.readouterr().out)}
    assert kinds == {"editor": "participant", "swarm-beta": "peer"}
    assert main(["token", "list", "--store", "sqlite:///mail.db"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if "swarm-beta" in line] == ["peer"]
    code, problem = said("edtor", "--role", "agent", "--participant")
    assert code == 2
    assert problem == (
        "mail: the swarm 'office' declares no participant 'edtor' (participants: 'editor', "
        "'reviewer'). Did you mean 'editor'?\n"
    )
    code, problem = said("editor", "--role", "agent")
    assert code == 2
    assert "'editor' is a participant of the swarm 'office'; add --participant" in problem
    assert said("editor", "--role", "user")[0] == 0
    assert said("editor", "--role", "user", "--participant") == (
        2,
        "mail: --participant goes with --role agent\n",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["token", "list"], 2, "there is no SQLite file 'mail.db'"),
        (["token", "revoke", "abcdef"], 2, "there is no SQLite file"),
        (["token", "list", "--store", "memory://"], 2, "the server's store is in memory"),
        (
            ["token", "list", "--store", "mysql://u:hunter2@h/d"],
            2,
            "a store URL cannot begin with 'mysql:'",
        ),
        (["token", "create", "--role", "user", "--id", "a\nb"], 2, "control characters"),
        (
            ["token", "create", "--role", "boss", "--id", "a"],
            2,
            "'boss' is not one of 'user'",
        ),
        (["token", "create", "--role", "user", "--id", "a", "--expires-in", "0"], 2, "above 0"),
        (["token", "create", "--role", "user", "--id", "a", "--expires-in", "nan"], 2, "above 0"),
        (["token", "list", "--config", "nowhere.toml"], 2, "nowhere.toml', which is not a file"),
        (["server", "--config", "nowhere.toml"], 2, "nowhere.toml', which is not a file"),
        (["server", "--port", "70000"], 2, "--port: "),
        (["server", "--print-llm-streams", "maybe"], 2, "'maybe' is not a valid boolean"),
        (["ping", "http://h", "--timeout", "0"], 2, "must be a number above 0"),
        (["ping", "http://h", "--timeout", "soon"], 2, "must be a number above 0"),
        (["serve"], 2, "no command 'serve'. Did you mean 'server'?"),
    ],
)
def test_a_mistake_is_one_readable_line(
    mail: Mail, arguments: list[str], code: int, problem: str
) -> None:
    done = mail(*arguments)
    assert done.code == code
    assert problem in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    assert "hunter2" not in done.err


def test_a_hash_of_no_token_is_refused(mail: Mail) -> None:
    assert mail("token", "create", "--role", "user", "--id", "alice").code == 0
    short, unknown = mail("token", "revoke", "ab"), mail("token", "revoke", "zzzz")
    assert (short.code, unknown.code) == (2, 1)
    assert "at least 4 characters" in short.err
    assert "no token hash has this prefix" in unknown.err


def test_a_wrong_config_file_stops_the_server_before_it_starts(mail: Mail, tmp_path: Path) -> None:
    (tmp_path / "mail.toml").write_text("[server]\nport = 'high'\n")
    done = mail("server")
    assert done.code == 2
    assert "mail.toml: [server] 'port': must be an integer, actually got str" in done.err


@pytest.mark.parametrize(
    ("word", "meant"), [("serve", "server"), ("tokens", "token"), ("versoin", "version")]
)
def test_a_misspelt_command_is_answered_with_the_one_that_is_meant(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    assert f"no command '{word}'. Did you mean '{meant}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "command", "told"),
    [
        ("server --prot 80", "server", "no such option '--prot'. Did you mean '--port'?"),
        (
            "token create --role agent --id x --partcipant",
            "token create",
            "no such option '--partcipant'. Did you mean '--participant'?",
        ),
        ("tasks list --stat x", "tasks list", "no such option '--stat'. Did you mean '--state'?"),
        ("ping http://localhost more", "ping", "got unexpected extra argument (more)"),
        ("--versio", "", "no such option '--versio'. Did you mean '--version'?"),
    ],
)
def test_the_subcommand_that_does_not_know_an_option_says_so(
    words: str, command: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    shown = capsys.readouterr().err
    prog = f"mail {command}".strip()
    assert shown.startswith(f"mail: {told}")
    assert shown.endswith(f" `{prog} --help` explains it\n")
    assert shown.count("\n") == 1


def test_a_word_that_is_no_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly", "away"]) == 2
    assert "there is no command 'fly'. `mail` lists the commands\n" in capsys.readouterr().err
    assert main(["validate", "swarms.json"]) == 2
    assert "'validate'. Did you mean 'mail swarms validate'? `mail`" in capsys.readouterr().err


def test_a_fault_that_nobody_foresaw_is_printed_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(arguments: object) -> int:
        raise LookupError("no postgresql://me:hunter2-hunter2@db/x, said env-held-secret")

    monkeypatch.setenv("MY_PASSWORD", "env-held-secret")
    monkeypatch.setattr(commands, "_run", broken)
    assert main(["version"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):")
    assert "LookupError: no postgresql://[redacted]@db/x, said [redacted]" in shown
