"""``mail server --check``: every kind of wrong thing is told, all at once, and nothing changes."""

import asyncio
import json
import os
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mail.cli import main
from mail.db.inspect import look_at_store
from mail.db.postgres.driver import PostgresStore
from mail.db.urls import open_store
from mail.net.endpoints import missing_token
from mail.net.signatures import SigningKeys
from tests.support.postgres import PASSWORD, Cluster, execute, query

SCRIPT = "scripted/mail.examples.scripts.support:DESK"
PROXIED = {"llm": "x", "system": "y", "use_proxy": True}
AGENT = {
    "name": "boss",
    "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
    "comm_targets": [],
    "enable_entrypoint": True,
    "can_complete_tasks": True,
    "agent_params": {
        "llm": SCRIPT,
        "system": "Work.",
        "use_proxy": False,
    },
}
Check = Callable[..., "Checked"]


class Checked:
    """What a check printed, and its exit code."""

    def __init__(self, code: int, out: str) -> None:
        self.code = code
        self.lines = out.splitlines()

    def of(self, part: str) -> list[str]:
        """Return ``status text`` of every line about a part."""
        found = [line.split(None, 2) for line in self.lines]
        return [f"{status} {text}" for status, about, text in found if about == part]

    def statuses(self) -> set[str]:
        return {line.split()[0] for line in self.lines}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a good configuration."""
    for name in ("DATABASE_URL", "MAIL_CONFIG_PATH", "AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("MAIL_LOG_LEVEL", "MAIL_LOG_FORMAT", "LITELLM_PROXY_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mail.toml").write_text("[server]\nhost = '127.0.0.1'\nport = 0\n")
    write_swarm(tmp_path)
    yield tmp_path


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], place: Path) -> Check:
    """Return a function that runs the check, and holds it against having changed anything."""

    def run(*flags: str) -> Checked:
        capsys.readouterr()
        before = contents(place)
        code = main(["server", "--check", *flags])
        assert contents(place) == before
        out, err = capsys.readouterr()
        assert err == ""
        return Checked(code, out)

    return run


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def write_swarm(folder: Path, name: str = "swarms.json", **agent: object) -> None:
    swarm = {
        "name": "example-no-proxy",
        "version": "1.3.6",
        "entrypoint": "boss",
        "agents": [{**AGENT, **agent}],
        "actions": [],
    }
    (folder / name).write_text(json.dumps([swarm]))


def test_all_is_well_and_every_part_is_named(check: Check, place: Path) -> None:
    done = check()
    assert done.code == 0
    parts = ("configuration", "environment", "swarm", "store", "auth", "address", "logs")
    assert [line.split()[1] for line in done.lines] == list(parts)
    assert done.of("store")[0].startswith(f"ok {place}/mail.db ")
    assert done.of("swarm")[0].startswith("ok 'example-no-proxy' of swarms.json: 1 agent")


def test_agents_that_use_the_proxy_are_named(
    check: Check, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_swarm(place, agent_params={"llm": "openai/gpt-5-mini", "system": "Work."})
    proxied = "ok through the LiteLLM proxy: boss"
    assert proxied not in check().of("swarm")
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", "http://127.0.0.1:1/v1")
    assert proxied in check().of("swarm")


def test_everything_wrong_is_told_at_once(
    check: Check, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "mail.toml").write_text(
        "[server]\nport = '8000'\ndebgu = true\n[server.limits]\nmax_streams = -1\n"
        "[client]\ntimeout = 'long'\n[stdlib.http]\nallow = ['not a host !']\n"
        "[server.store]\nurl = 'mysql://u:hunter2@h/d'\n"
    )
    (place / "logs").write_text("a file")
    monkeypatch.setenv("AUTH_ENDPOINT", "http://127.0.0.1:1/login")
    monkeypatch.setenv("MAIL_LOG_LEVEL", "loud")
    monkeypatch.setenv("MAIL_LOG_FORMAT", "xml")
    done = check("--swarm-source", "none.json", "-H", "no such host")
    assert done.code == 2
    wrong = "\n".join(done.lines)
    for words in (
        "[server] 'port': must be an integer, actually got str",
        "[server] 'debgu' is not a known key; did you mean 'debug'?",
        "[server.limits] 'max_streams': must be at least 0",
        "[client] 'timeout': must be a number, actually got str",
        "[stdlib.http] 'allow': ",
        "MAIL_LOG_LEVEL must be one of DEBUG",
        "MAIL_LOG_FORMAT must be one of auto",
        "swarms file 'none.json' not found",
        "[server.store] 'url': a store URL cannot begin with 'mysql:'",
        "TOKEN_INFO_ENDPOINT is not set: set both",
        "logs",
    ):
        assert words in wrong
    assert all(line.startswith(("error ", "ok ", "warning ")) for line in done.lines)
    assert "hunter2" not in wrong


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[server\n", "not valid TOML"),
        (b"\xff\xfe", "not UTF-8 text (byte 0)"),
        (b"a = " + b"[" * 5000, "nested too deeply"),
        (b"[sever]\n", "unknown key 'sever'; did you mean 'server'?"),
        (None, "which is not a file"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error_and_the_rest_is_checked_all_the_same(
    check: Check, place: Path, content: bytes | None, words: str
) -> None:
    if content is None:
        (place / "folder.toml").mkdir()
    else:
        (place / "folder.toml").write_bytes(content)
    done = check("--config", "folder.toml", "-p", "0")
    (error,) = done.of("configuration")
    assert error.startswith("error ")
    assert words in error
    assert done.of("swarm")[0].startswith("ok ")
    assert done.code == 2


def test_flags_are_checked_by_their_names(check: Check) -> None:
    done = check("--port", "99999")
    assert done.of("configuration") == ["error --port: must be at most 65535"]


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ({"factory": "python::nowhere:f"}, "nowhere"),
        ({"comm_targets": ["nobody"]}, "nobody"),
        ({"agent_params": {"llm": "x", "system": "y", "tempature": 1}}, "tempature"),
    ],
)
def test_a_swarm_that_cannot_be_built_is_an_error(
    check: Check, place: Path, agent: dict[str, object], words: str
) -> None:
    write_swarm(place, **agent)
    done = check()
    assert done.code == 2
    assert done.of("swarm")[0].startswith("error ")
    assert words in done.of("swarm")[0]


def test_what_is_odd_about_a_swarm_is_a_warning(check: Check, place: Path) -> None:
    write_swarm(place, nonsense_field=1, agent_params=PROXIED)
    done = check()
    assert done.code == 0
    assert any("nonsense_field" in line for line in done.of("swarm"))
    assert any("LITELLM_PROXY_API_BASE is not set" in line for line in done.of("swarm"))


@pytest.mark.parametrize(
    ("llm", "problem"),
    [
        ("openai/gpt-5-mini", "OPENAI_API_KEY is not set"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY is not set"),
        ("gemini/gemini-2.0-flash", "GOOGLE_API_KEY or GEMINI_API_KEY is not set"),
        ("opnai/gpt-5-mini", "LiteLLM has no such provider; write provider/model"),
        ("ollama/llama3", None),
        (SCRIPT, None),
    ],
)
def test_a_model_that_cannot_be_asked_is_a_warning(
    check: Check, place: Path, llm: str, problem: str | None
) -> None:
    write_swarm(place, agent_params={"llm": llm, "system": "y", "use_proxy": llm == SCRIPT})
    done = check()
    assert done.code == 0
    told = [f"warning model '{llm}' of boss cannot be used: {problem}"] if problem else []
    warnings = [line for line in done.of("swarm") if line.startswith("warning")]
    assert [w[: len(t)] for w, t in zip(warnings, told, strict=True)] == told


def test_a_model_whose_key_is_set_is_fine(
    check: Check, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-hunter2")
    write_swarm(place, agent_params={"llm": "anthropic/claude-sonnet-4-5", "use_proxy": False})
    assert [line.split()[0] for line in check().of("swarm")] == ["ok"]


@pytest.mark.parametrize(
    ("model", "code", "told"),
    [
        (SCRIPT, 0, "ok '{}' learns from answers to approvals"),
        ("scripted/nowhere:AT_ALL", 2, "error [server.memory] model: "),
        (
            "openai/gpt-5-mini",
            0,
            "warning model '{}' of [server.memory] cannot be used: OPENAI_API",
        ),
        ("opnai/gpt-5", 0, "warning model '{}' of [server.memory] cannot be used: LiteLLM has no"),
    ],
)
def test_the_model_that_learns_from_answers_is_checked(
    check: Check, place: Path, model: str, code: int, told: str
) -> None:
    with (place / "mail.toml").open("a") as file:
        file.write(f"[server.memory]\nmodel = '{model}'\n")
    done = check()
    assert done.code == code
    [line] = done.of("memory")
    assert line.startswith(told.format(model))


def test_a_memory_that_nobody_declares_is_a_warning(check: Check, place: Path) -> None:
    system = "You write.\n{memory:styel} {memory:style} {memory:styel} {memory:taught}"
    write_swarm(place, agent_params={"llm": SCRIPT, "system": system, "use_proxy": False})
    [swarm] = json.loads((place / "swarms.json").read_text())
    swarm |= {
        "memories": {"style": "Be brief."},
        "approvals": {"task_complete": {"feedback": {"edit": "taught"}}},
    }
    (place / "swarms.json").write_text(json.dumps([swarm]))
    done = check()
    assert done.code == 0
    warnings = [line for line in done.of("swarm") if line.startswith("warning")]
    assert warnings == [
        "warning agent 'boss' reads the memory 'styel', which is not in 'memories' of swarm "
        "'example-no-proxy': it is empty until a user writes it. Did you mean 'style'?"
    ]


def test_what_a_module_prints_and_compiles_is_kept_off(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "loud.py").write_text(
        "print('HELLO')\n"
        "from mail.factories.supervisor import LiteLLMSupervisorFunction as factory\n"
    )
    write_swarm(place, factory="python::loud:factory")
    assert main(["server", "--check"]) == 0
    out, _ = capsys.readouterr()
    assert "HELLO" not in out
    assert not (place / "__pycache__").exists()
    del sys.modules["loud"]


class TestSQLite:
    """Files that are missing, old, new, broken, locked, or in a bad place."""

    def test_a_missing_file_is_fine_and_a_missing_folder_is_not(self, check: Check) -> None:
        assert "does not exist yet" in check("--store", "sqlite:///new.db").of("store")[0]
        done = check("--store", "sqlite:///no/where/new.db")
        assert done.code == 1
        assert "does not exist; create it" in done.of("store")[0]

    def test_a_folder_that_cannot_be_written_is_an_error(
        self, check: Check, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "access", lambda *_: False)
        done = check("--store", "sqlite:///new.db")
        assert done.code == 2  # the log folder is not writable either
        assert "is not writable" in done.of("store")[0]
        assert "is not writable" in done.of("logs")[0]

    @pytest.mark.parametrize("content", [b"no database at all" * 100, b"", None])
    def test_what_is_no_database_is_an_error(
        self, check: Check, place: Path, content: bytes | None
    ) -> None:
        if content is None:
            (place / "x.db").mkdir()
        else:
            (place / "x.db").write_bytes(content)
        done = check("--store", "sqlite:///x.db")
        assert done.code == (1 if content != b"" else 0)  # an empty file is an empty database
        assert done.of("store")[0].startswith("error " if content != b"" else "ok ")

    def test_schema_tokens_and_the_lock_of_a_running_server(
        self, check: Check, place: Path
    ) -> None:
        url = "sqlite:///mail.db"
        assert main(["token", "create", "--role", "user", "--id", "x", "--store", url]) == 0
        done = check("--store", url)
        (line,) = done.of("store")
        assert line.startswith(f"ok {place / 'mail.db'}: schema ")
        assert line.endswith(", up to date")
        assert done.of("auth") == ["ok built-in, 1 token in the store"]
        store = open_store(f"sqlite:///{place / 'mail.db'}")
        asyncio.run(store.open())
        try:
            done = check("--store", url)
            assert done.code == 0
            assert f"in use by the process with pid {os.getpid()}" in done.of("store")[0]
            assert done.of("store")[0].startswith("warning ")
        finally:
            asyncio.run(store.close())

    def test_other_swarms_in_the_file_are_no_matter_but_for_an_upgrade(
        self, check: Check, place: Path
    ) -> None:
        store = open_store(f"sqlite:///{place / 'mail.db'}", swarm="beta")
        asyncio.run(store.open())
        try:
            [line] = check("--store", "sqlite:///mail.db").of("store")
            assert line.endswith("up to date")
            first, _ = check("--store", "sqlite:///mail.db", "--swarm-name", "beta").of("store")
            assert first.startswith("warning ")
            assert f"in use by the process with pid {os.getpid()} (swarm 'beta')" in first
            with sqlite3.connect(place / "mail.db") as connection:
                connection.execute("DELETE FROM schema_version WHERE version > 1")
            connection.close()
            [remark] = asyncio.run(look_at_store(f"sqlite:///{place / 'mail.db'}", "alpha"))
            assert remark.status == "error"
            assert remark.text.endswith(f"pid {os.getpid()} (swarm 'beta') has it")
        finally:
            asyncio.run(store.close())

    @pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
    def test_part_of_an_import_is_told(
        self, check: Check, place: Path, dsn: str, kind: str
    ) -> None:
        url = dsn if kind == "postgresql" else f"sqlite:///{place / 'mail.db'}"
        store = open_store(url)
        asyncio.run(store.open())
        asyncio.run(store.close())
        note = "INSERT INTO schema_version VALUES (-1, 'file 7', CURRENT_TIMESTAMP)"
        if kind == "postgresql":
            execute(url, note)
        else:
            with closing(sqlite3.connect(place / "mail.db")) as connection, connection:
                connection.execute(note)
        done = check("--store", url)
        assert done.code == 1
        [line] = done.of("store")
        assert line.startswith("error ")
        assert "holds part of an import; run 'mail db import' with the same file again" in line

    def test_a_hard_link_and_a_server_without_its_lock_file_are_told(
        self, check: Check, place: Path
    ) -> None:
        store = open_store(f"sqlite:///{place / 'mail.db'}")
        asyncio.run(store.open())
        try:
            (place / "mail.db.lock").unlink()
            done = check("--store", "sqlite:///mail.db")
            assert "mail.db is in use by another process; a second" in done.of("store")[0]
        finally:
            asyncio.run(store.close())
        (place / "other.db").hardlink_to(place / "mail.db")
        [line] = check("--store", "sqlite:///mail.db").of("store")
        assert line.startswith("error the database ")
        assert "has another name, a hard link" in line

    def test_it_is_read_beside_a_server_that_writes(self, check: Check, place: Path) -> None:
        store = open_store(f"sqlite:///{place / 'mail.db'}")
        asyncio.run(store.open())
        try:
            done = check("--store", "sqlite:///mail.db")
            assert [line.split()[0] for line in done.of("store")] == ["warning", "ok"]
        finally:
            asyncio.run(store.close())

    def test_pending_and_newer_schemas_are_told_and_left(self, check: Check, place: Path) -> None:
        store = open_store(f"sqlite:///{place / 'mail.db'}")
        asyncio.run(store.open())
        asyncio.run(store.close())
        for version, words in (("99", "error .* newer than"), ("0", "ok .* pending")):
            with sqlite3.connect(place / "mail.db") as connection:
                connection.execute("DELETE FROM schema_version")
                row = (version, "x", "now")
                connection.execute("INSERT INTO schema_version VALUES (?, ?, ?)", row)
            connection.close()
            (line,) = check("--store", "sqlite:///mail.db").of("store")
            first, _, rest = words.partition(" .* ")
            assert line.startswith(first)
            assert rest in line


class TestPostgreSQL:
    """A database that is away, empty, foreign, served, or up to date."""

    def test_a_database_that_does_not_answer_is_an_error_without_its_password(
        self, check: Check, cluster: Cluster
    ) -> None:
        wrong = cluster.url("postgres").replace(PASSWORD, "hunter2")
        for url in (f"postgresql://me:{PASSWORD}@127.0.0.1:1/x", wrong):
            done = check("--store", url)
            assert done.code == 1
            assert "cannot connect to the database" in done.of("store")[0]
            assert PASSWORD not in str(done.lines)
            assert "hunter2" not in str(done.lines)

    def test_nothing_is_made_in_an_empty_one(self, check: Check, cluster: Cluster) -> None:
        url = cluster.schema()
        done = check("--store", url)
        assert done.code == 0
        assert "pending" in done.of("store")[0]
        assert query(url, "SELECT to_regclass('schema_version') IS NULL") == [(True,)]

    def test_foreign_tables_are_named(self, check: Check, cluster: Cluster) -> None:
        url = cluster.schema()
        execute(url, "CREATE TABLE tasks (id SERIAL)")
        done = check("--store", url)
        assert done.code == 1
        assert "the table 'tasks' is another program's" in done.of("store")[0]

    async def test_the_servers_that_it_would_join_are_named(
        self, cluster: Cluster, check: Check
    ) -> None:
        url = cluster.schema()
        store = PostgresStore(url, swarm="example-no-proxy")
        await store.open()
        try:
            done = await asyncio.to_thread(check, "--store", url)
        finally:
            await store.close()
        assert done.code == 0
        first, second = done.of("store")
        assert first.startswith("ok ")
        assert f"is served from it by a server (pid {os.getpid()} on " in first
        assert second.endswith("up to date")

    async def test_the_registry_in_it_is_read(self, cluster: Cluster, check: Check) -> None:
        url = cluster.schema()
        store = PostgresStore(url)
        await store.open()
        entry = {"base_url": "http://beta.example"}
        text = json.dumps({"endpoints": {"beta": entry, "gamma": 7}})
        try:
            await store.save_registry("example-no-proxy", text, 0)
        finally:
            await store.close()
        done = await asyncio.to_thread(check, "--store", url)
        assert done.code == 0
        wrong, missing, counted = done.of("registry")
        assert wrong.startswith("warning in the database: entry 'gamma': ")
        assert missing == f"warning {missing_token('beta', 'example-no-proxy')}"
        assert counted == "ok in the database: 1 other swarm"


class TestAuth:
    """The external service, and the tokens of our own."""

    def test_a_service_that_is_away_is_a_warning_and_one_that_listens_is_fine(
        self, check: Check, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            monkeypatch.setenv("AUTH_ENDPOINT", f"http://127.0.0.1:{port}/login")
            monkeypatch.setenv("TOKEN_INFO_ENDPOINT", "http://127.0.0.1:1/info")
            done = check()
        assert done.code == 0
        fine, away = done.of("auth")
        assert fine.startswith("ok AUTH_ENDPOINT: ")
        assert away.startswith("warning TOKEN_INFO_ENDPOINT: ")

    @pytest.mark.parametrize(
        "url",
        [
            "ftp://h/x",
            "http://u:hunter2@h/x",
            "http://[",
            "words",
            "http://h:99999/x",
            "http://a..b/x",
        ],
    )
    def test_an_address_that_is_none_is_an_error(
        self, check: Check, monkeypatch: pytest.MonkeyPatch, url: str
    ) -> None:
        monkeypatch.setenv("AUTH_ENDPOINT", url)
        monkeypatch.setenv("TOKEN_INFO_ENDPOINT", "http://h/x")
        done = check()
        assert done.code == 2
        assert done.of("auth")[0].startswith("error AUTH_ENDPOINT ")
        assert "hunter2" not in str(done.lines)


def test_an_address_in_use_is_a_warning(check: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = check("-p", str(listener.getsockname()[1]))
    assert done.code == 0
    assert "in use" in done.of("address")[0]


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "h\n"])
def test_a_host_that_is_none_is_one_error_and_no_start(
    check: Check, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    done = check("--host", host)
    assert done.code == 2
    assert done.of("configuration")[0].startswith("error --host")
    assert main(["server", "--host", host]) == 2
    assert capsys.readouterr().err.startswith("mail: --host")


def test_an_address_of_another_machine_says_which_flag_to_change(check: Check) -> None:
    done = check("-H", "192.0.2.1")  # kept for documents (RFC 5737); nothing is sent to it
    assert done.code == 1
    assert (
        "--host: '192.0.2.1' is not an address of this machine; use 127.0.0.1"
        in done.of("address")[0]
    )


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["server", "--check", "--json", "--port", "99999"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["checks"][0]["status"] == "error"
    assert {"status", "part", "text"} == found["checks"][0].keys()
    assert main(["server", "--json"]) == 2
    assert capsys.readouterr().err == "mail: --json requires --check\n"


def test_the_key_for_signatures_is_read_and_not_made(check: Check, place: Path) -> None:
    settings, file = place / "mail.toml", place / "key.pem"
    settings.write_text(
        f"{settings.read_text()}[server.federation]\nsigning_key_file = 'key.pem'\n",
        encoding="utf-8",
    )
    made = "ok key.pem: the server makes a key at its first start"
    assert check().of("signatures") == [made]
    file.write_text("hello")
    file.chmod(0o600)
    found = check()
    wrong = "key.pem, which must hold 1 to 8 private keys as PEM, and holds 0"
    assert found.code == 2
    assert found.of("signatures") == [f"error [server.federation] signing_key_file names {wrong}"]
    file.unlink()
    [key] = SigningKeys.ensure(file).public
    assert check().of("signatures") == [f"ok key.pem: signs with the key {key['kid']}"]


def test_a_webhook_without_a_secret_is_an_error(
    check: Check, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = place / "mail.toml"
    hook = "url = 'https://hooks.example.org/'\nsecret_env = 'HOOK'\n"
    settings.write_text(f"{settings.read_text()}[server.webhook]\n{hook}", encoding="utf-8")
    monkeypatch.delenv("HOOK", raising=False)
    found = check()
    assert found.code == 2
    [text] = found.of("webhook")
    assert text.startswith("error ") and "'url' needs a secret" in text and "HOOK" in text
    monkeypatch.setenv("HOOK", "sixteen characters")
    assert check().of("webhook") == ["ok messages are signed with the secret in HOOK"]


def test_the_registry_of_other_swarms_is_read(
    check: Check, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place / "registry.json"
    flags = ("--swarm-registry", str(file))
    assert check(*flags).of("registry") == []
    # beta was registered with a token and delta without one: both are in the environment or nowhere
    entry = {"base_url": "http://beta.example", "auth_token_ref": "${SWARM_AUTH_TOKEN_BETA}"}
    bare = {"base_url": "http://delta.example", "auth_token_ref": None}
    bad = {"base_url": "http://gamma.example", "auth_token_ref": "${OPENAI_API_KEY}"}
    file.write_text(json.dumps({"endpoints": {"beta": entry, "delta": bare, "gamma": bad}}))
    found = check(*flags)
    assert found.code == 0
    only = "a reference may only name ${SWARM_AUTH_TOKEN_GAMMA}, the variable of this swarm"
    assert found.of("registry") == [
        f"warning {file}: entry 'gamma': 'auth_token' is wrong: {only}; it is not used",
        f"warning {missing_token('beta', 'example-no-proxy')}",
        f"warning {missing_token('delta', 'example-no-proxy')}",
        f"ok {file}: 2 other swarms",
    ]
    monkeypatch.setenv("SWARM_AUTH_TOKEN_BETA", "t")
    monkeypatch.setenv("SWARM_AUTH_TOKEN_DELTA", "t")
    assert len(check(*flags).of("registry")) == 2
    file.write_text("{")
    damaged = f"warning the registry {file} is damaged: it is not valid JSON"
    assert check(*flags).of("registry") == [damaged]
