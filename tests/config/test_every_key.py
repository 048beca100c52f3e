"""Every key of ``mail.toml``: its sources, its type, and what the documentation says of it."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

from mail.cli import main, server
from mail.cli.table import Namespace
from mail.config import (
    ClientConfig,
    EmailConfig,
    FederationConfig,
    FilesConfig,
    FsConfig,
    HttpConfig,
    LimitsConfig,
    MemoryConfig,
    OpenAIConfig,
    RetentionConfig,
    ServerConfig,
    SettingsConfig,
    StdlibConfig,
    StoreConfig,
    SwarmConfig,
    TeamsConfig,
    WebhookConfig,
)
from mail.config.env import overridden
from mail.config.server import resolve_log_format, resolve_store_url
from mail.config.toml import FileBacked
from mail.errors import ConfigError

MODELS: tuple[type[FileBacked], ...] = (
    ServerConfig,
    SwarmConfig,
    SettingsConfig,
    StoreConfig,
    LimitsConfig,
    OpenAIConfig,
    TeamsConfig,
    FederationConfig,
    RetentionConfig,
    FilesConfig,
    MemoryConfig,
    ClientConfig,
    StdlibConfig,
    FsConfig,
    HttpConfig,
    EmailConfig,
    WebhookConfig,
)
KEYS = [(model, key) for model in MODELS for key in model.model_fields if key not in model.nested]
PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
SPECIAL = {
    "durability": "normal",
    "log_format": "json",
    "allowed_hosts": ["*.example.org"],
    "cors_origins": ["https://app.example.org"],
    "dynamic_ctx_ratio": 0.25,
    "base_url": "https://mail.example.org",
    "remote_providers": ["anthropic"],
    "url": "s3://bucket/prefix",
    "address": "ann@example.org",
    "backend": "imap",
    "callers": ["admin", "user:ann"],
    "imap_security": "starttls",
    "max_bytes": 2048,
    "secret_env": "HOOK_SECRET",
    "events": ["ended"],
    "smtp_security": "none",
    "timezone": "Europe/Berlin",
}


def kinds(field: FieldInfo) -> tuple[type, ...]:
    """Return the plain types that a field takes."""
    annotation: Any = field.annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return tuple(plain(part) for part in parts if part is not type(None))


def plain(part: Any) -> type:
    origin = get_origin(part)
    if origin is Literal:
        return str
    if origin is list or part in (bool, int, float, str):
        return origin or part
    return plain(get_args(part)[0])  # Annotated


def other_value(model: type[FileBacked], key: str) -> Any:
    """Return a value for a key that is not its default."""
    field = model.model_fields[key]
    kind = kinds(field)[0]
    if (model.table, key) == ("server.webhook", "url"):
        return "https://hooks.example.org/mail"
    if key in SPECIAL:
        return SPECIAL[key]
    if kind is bool:
        return not field.default
    if kind in (int, float):
        return kind((field.default or 6) + 1)
    return ["some.words"] if kind is list else "words"


def toml(value: Any) -> str:
    return json.dumps(value)  # the same for what is used here


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file in force, empty."""
    for name in ("DATABASE_URL", "MAIL_LOG_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "keys.toml"
    path.write_text("")
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(path))
    return path


def case_id(value: Any) -> str:
    return value.table if isinstance(value, type) else str(value)


@pytest.mark.parametrize(("model", "key"), KEYS, ids=case_id)
def test_argument_over_file_over_default(file: Path, model: type[FileBacked], key: str) -> None:
    field = model.model_fields[key]
    default = field.get_default(call_default_factory=True)
    assert getattr(model(), key) == default
    other = other_value(model, key)
    assert other != default
    file.write_text(f"[{model.table}]\n{key} = {toml(other)}\n")
    assert getattr(model(), key) == other
    assert getattr(model(**{key: default}), key) == default


@pytest.mark.parametrize(("model", "key"), KEYS, ids=case_id)
def test_a_wrong_type_names_file_key_and_what_is_expected(
    file: Path, capsys: pytest.CaptureFixture[str], model: type[FileBacked], key: str
) -> None:
    file.write_text(f"[{model.table}]\n{key} = 1979-05-27\n")
    with pytest.raises(ConfigError) as caught:
        model()
    text = str(caught.value)
    assert text.startswith(f"{file}: [{model.table}] '{key}': ")
    words = {
        bool: "must be true or false, actually got date",
        int: "must be an integer, actually got date",
        float: "must be a number, actually got date",
        list: "must be a list, actually got date",
        str: "must be a string, actually got date",
    }
    literal = get_origin(model.model_fields[key].annotation) is Literal
    expected = "must be '" if literal else words[kinds(model.model_fields[key])[0]]
    assert expected in text
    if model is not ClientConfig:
        assert main(["server", "--check"]) == 2
        assert f"error    configuration {text}\n" in capsys.readouterr().out


@pytest.mark.parametrize("model", MODELS, ids=case_id)
def test_an_unknown_key_of_any_table_is_an_error(file: Path, model: type[FileBacked]) -> None:
    file.write_text(f"[{model.table}]\nnonsense = 1\n")
    with pytest.raises(ConfigError, match=rf"\[{model.table}\] 'nonsense' is not a known key"):
        model()


@pytest.mark.parametrize("model", [SwarmConfig, FsConfig, StdlibConfig], ids=case_id)
def test_a_table_that_is_none_is_an_error(file: Path, model: type[FileBacked]) -> None:
    outer, _, inner = model.table.rpartition(".")
    file.write_text(f"[{outer}]\n{inner} = 1\n" if outer else f"{inner} = 1\n")
    with pytest.raises(ConfigError, match="must be a table"):
        model()


FLAGS = [
    ("--host", ServerConfig, "host", "h1"),
    ("--port", ServerConfig, "port", 81),
    ("--reload", ServerConfig, "reload", True),
    ("--workers", ServerConfig, "workers", 3),
    ("--debug", ServerConfig, "debug", True),
    ("--swarm-name", SwarmConfig, "name", "n1"),
    ("--swarm-source", SwarmConfig, "source", "s1"),
    ("--swarm-registry", SwarmConfig, "registry_file", "r1"),
    ("--store", StoreConfig, "url", "memory://"),
    ("--print-llm-streams", SettingsConfig, "print_llm_streams", False),
    ("--log-format", ServerConfig, "log_format", "human"),
]


def parsed(words: list[str]) -> Namespace:
    return server.run.read(words)


@pytest.mark.parametrize(("flag", "model", "key", "value"), FLAGS)
def test_flag_over_file(
    file: Path, flag: str, model: type[FileBacked], key: str, value: Any
) -> None:
    other = other_value(model, key)
    if isinstance(value, bool):
        other = not value
    file.write_text(f"[{model.table}]\n{key} = {toml(other)}\n")
    words = [flag] if value is True else [flag, str(value).lower()]
    config = server.build_config(parsed(words))
    part = config if model is ServerConfig else getattr(config, model.table.rpartition(".")[2])
    assert getattr(part, key) == value
    part = server.build_config(parsed([]))
    part = part if model is ServerConfig else getattr(part, model.table.rpartition(".")[2])
    assert getattr(part, key) == other


def test_every_flag_of_a_setting_is_in_the_table() -> None:
    taken = {flag for flag, *_ in FLAGS}
    flags = {param.opts[-1] for param in server.run.params}
    assert flags - taken == {"--config", "--check", "--json"}


@pytest.mark.parametrize(
    ("variable", "resolve", "table", "key", "filed", "exported"),
    [
        ("DATABASE_URL", resolve_store_url, "server.store", "url", "sqlite:///f", "sqlite:///e"),
        ("MAIL_LOG_FORMAT", resolve_log_format, "server", "log_format", "json", "human"),
    ],
)
def test_environment_over_file(
    file: Path, variable: str, resolve: Any, table: str, key: str, filed: str, exported: str
) -> None:
    file.write_text(f"[{table}]\n{key} = '{filed}'\n")
    assert resolve(ServerConfig(), {}) == filed
    assert resolve(ServerConfig(), {variable: exported}) == exported
    assert resolve(ServerConfig(), {variable: " "}) == filed


def test_flag_over_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://wrong")
    monkeypatch.setenv("MAIL_LOG_FORMAT", "wrong")
    main(["server", "--check", "--store", "memory://", "--log-format", "json"])
    out = capsys.readouterr().out
    assert "ok       store         in memory" in out
    assert "ok       environment" in out
    main(["server", "--check"])
    out = capsys.readouterr().out
    assert "error    store         DATABASE_URL: a store URL cannot begin with 'mysql:'" in out
    assert "error    environment   MAIL_LOG_FORMAT must be" in out


def test_the_config_flag_wins_over_the_variable(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = tmp_path / "named.toml"
    named.write_text("[server]\nport = 'x'\n")
    assert main(["server", "--config", str(named)]) == 2
    err = capsys.readouterr().err
    assert err == f"mail: {named}: [server] 'port': must be an integer, actually got str\n"
    with overridden("MAIL_CONFIG_PATH", None):
        assert ServerConfig().port == 8000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "99999"], "mail: --port: must be at most 65535\n"),
        (["--port", "x"], "mail: invalid value for '-p' / '--port': 'x' is not a valid integer"),
        (["--swarm-name", ""], "mail: --swarm-name: must not be empty\n"),
        (["--print-llm-streams", "maybe"], "'maybe' is not a valid boolean"),
        (["--log-format", "xml"], "'--log-format': 'xml' is not one of"),
        (["--config", "~nobody-here/x"], "mail: --config: '~' in '~nobody-here/x' "),
        (["--config", "/nowhere.toml"], "names '/nowhere.toml', which is not a file; "),
        (["--config", "/tmp"], "names '/tmp', which is not a file; "),
    ],
)
def test_a_wrong_flag_ends_the_command_with_a_line_and_no_traceback(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["server", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff", "not UTF-8 text (byte 0)"),
        (b"x = [", "not valid TOML"),
        (b"x = " + b"[" * 9999, "nested too deeply"),
        (b"[server]\nkeywords = 1\n", "'keywords' is not a known key"),
        (
            b"[server.swarm]\nkeywords = ['a', 1]\n",
            "'keywords[1]': must be a string, actually got int",
        ),
    ],
)
def test_a_wrong_file_ends_it_with_one_line(
    file: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    file.write_bytes(content)
    assert main(["server"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"mail: {file}: ")
    assert words in err
    assert err.count("\n") == 1


def documented() -> Iterator[tuple[str, str, str, str]]:
    """Yield (table, key, type, default) of the page's tables."""
    sections = re.split(r"^### `\[([\w.]+)\]`$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    for table, text in zip(sections[1::2], sections[2::2], strict=True):
        body = text.split("\n## ")[0]
        for row in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \| .* \|$", body, flags=re.M):
            for key in re.findall(r"`(\w+)`", row[0]):
                yield table, key, row[1], row[2]


def test_the_page_has_every_key_and_no_other() -> None:
    aliases = {(model.table, alias) for model in MODELS for alias in model.aliases}
    said = [(table, key) for table, key, _, _ in documented()]
    assert len(said) == len(set(said))
    assert set(said) - aliases == {(model.table, key) for model, key in KEYS}
    assert aliases <= set(said)


@pytest.mark.parametrize(
    ("table", "key", "kind", "default"), list(documented()), ids=lambda v: v if "." not in v else ""
)
def test_the_page_says_types_and_defaults_truly(
    table: str, key: str, kind: str, default: str
) -> None:
    model = next(model for model in MODELS if model.table == table)
    name = model.aliases.get(key, key)
    field = model.model_fields[name]
    words = {bool: "boolean", int: "integer", float: "number", str: "text", list: "list of text"}
    assert kind == words[kinds(field)[0]]
    value = field.get_default(call_default_factory=True)
    if value is None:
        assert default.startswith("none")
    else:
        assert tomllib.loads(f"x = {default.strip('`')}")["x"] == value
