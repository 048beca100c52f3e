"""Where settings come from, and what a wrong one says."""

from pathlib import Path

import pytest

from mail.config import (
    ClientConfig,
    LimitsConfig,
    ServerConfig,
    SettingsConfig,
    StoreConfig,
)
from mail.config.env import overridden
from mail.config.server import base_url, export_environment, resolve_store_url
from mail.config.toml import find_config_file
from mail.errors import ConfigError

ANYWHERE = "0.0.0.0"  # noqa: S104 - a value to compare with
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes a text the configuration file in force."""

    def write_file(text: str) -> Path:
        path = tmp_path / "some.toml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("MAIL_CONFIG_PATH", str(path))
        return path

    return write_file


def test_the_shipped_file_says_what_the_documents_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(REPOSITORY / "mail.toml"))
    config = ServerConfig()
    assert config.store.url == "sqlite:///mail.db"
    literals = {name: field.default for name, field in LimitsConfig.model_fields.items()}
    assert config.limits.model_dump() == literals
    literals = {name: field.default for name, field in SettingsConfig.model_fields.items()}
    assert config.settings.model_dump() == literals
    monkeypatch.setenv("MAIL_CONFIG_PATH", "/dev/null/nothing")
    with pytest.raises(ConfigError):
        ServerConfig()


def test_keys_of_earlier_versions_have_no_effect_and_are_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mail.toml"
    file.write_text("[server.limits]\nmax_uploads = 9\nmax_streams = 7\n")
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(file))
    assert [LimitsConfig().max_streams for _ in range(2)] == [7, 7]
    told = "'max_uploads' has no effect any more; remove it"
    assert [record.getMessage() for record in caplog.records] == [f"{file}: [server.limits] {told}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("task_token_limit = 0", r"\[server.settings\] 'task_token_limit': .*1"),
        ("task_cost_limit = 0.0", "'task_cost_limit': .*greater than 0"),
        ("task_cost_limit = -1", "'task_cost_limit': .*greater than 0"),
        ("task_cost_limit = inf", "'task_cost_limit': .*finite"),
        ("dynamic_ctx_ratio = 1.01", "'dynamic_ctx_ratio': must be at most 1"),
        ("dynamic_ctx_ratio = -0.5", "'dynamic_ctx_ratio': must be at least 0"),
        ("dynamic_ctx_ratio = nan", "'dynamic_ctx_ratio'"),
        ("task_tokens_limit = 5", "did you mean 'task_token_limit'"),
    ],
)
def test_a_wrong_budget_is_refused_at_the_start(write, text: str, problem: str) -> None:
    write(f"[server.settings]\n{text}\n")
    with pytest.raises(ConfigError, match=problem):
        ServerConfig()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nport = 70000", r"\[server\] 'port': .*65535"),
        *(
            (
                f"[server.federation]\ngive_up_after = {days * 86400}",
                rf"\[server.federation\] 'give_up_after': .*{bound}",
            )
            for days, bound in ((0, "greater than 0"), (6.001, "at most 518400"))
        ),
        ("[server]\nprot = 1", r"\[server\] 'prot' is not a known key; did you mean 'port'\?"),
        ("[server.swarm]\nnmae = 'x'", r"\[server.swarm\] 'nmae' .* did you mean 'name'"),
        ("[server.swarm]\nregistry = 'a'\nregistry_file = 'b'", "set twice"),
        ("[server.store]\ndurability = 'some'", r"'durability': .*'full' or 'normal'"),
        ("[server]\nstore = 'sqlite:///x'", r"'store' of \[server.store\] must be a table"),
        ("[sever]\nport = 1", "unknown key 'sever'; did you mean 'server'"),
        ("server = 3", "must be a table"),
        ("[server\n", "some.toml: not valid TOML: .*line 1"),
    ],
)
def test_a_wrong_file_is_refused_by_name_key_and_type(write, text: str, problem: str) -> None:
    write(text)
    with pytest.raises(ConfigError, match=problem):
        ServerConfig()


def test_a_key_may_have_a_short_name_and_a_whole_number_be_a_float(write) -> None:
    write("[server.swarm]\nregistry = 'r.json'\n[server.settings]\ntask_cost_limit = 2\n")
    config = ServerConfig()
    assert config.swarm.registry_file == "r.json"
    assert (config.settings.task_cost_limit, type(config.settings.task_cost_limit)) == (2, float)


def test_a_wrong_argument_names_the_class_and_never_its_value(write) -> None:
    write("")
    with pytest.raises(
        ConfigError, match="StoreConfig: 'url': must be a string, actually got list"
    ) as caught:
        StoreConfig(url=["postgresql://u:hunter2@h/d"])
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="ClientConfig: 'timeuot' is not a known key"):
        ClientConfig(timeuot=1)


def test_a_missing_named_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_CONFIG_PATH", "/nowhere/mail.toml")
    with pytest.raises(ConfigError, match=r"MAIL_CONFIG_PATH .* names '/nowhere/mail\.toml'"):
        ClientConfig()


def test_the_working_directory_comes_before_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAIL_CONFIG_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    assert find_config_file({}) != tmp_path / "mail.toml"
    (tmp_path / "mail.toml").write_text("[client]\ntimeout = 3\n")
    assert find_config_file({}) == tmp_path / "mail.toml"
    assert ClientConfig().timeout == 3.0


def test_a_named_file_may_begin_with_a_tilde(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "my.toml").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_config_file({"MAIL_CONFIG_PATH": "~/my.toml"}) == tmp_path / "my.toml"


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        (None, {}, "sqlite:///mail.db"),
        (None, {"DATABASE_URL": "none"}, "memory://"),
        ("memory://", {}, "memory://"),
        ("sqlite:///f.db", {}, "sqlite:///f.db"),
        ("sqlite:///f.db", {"DATABASE_URL": "  "}, "sqlite:///f.db"),
        ("sqlite:///f.db", {"DATABASE_URL": "none"}, "memory://"),
        ("sqlite:///f.db", {"DATABASE_URL": "sqlite:///g.db"}, "sqlite:///g.db"),
        (None, {"DATABASE_URL": "postgresql://h/d"}, "postgresql://h/d"),
    ],
)
def test_database_url_wins_over_the_file_and_memory_must_be_asked_for(
    write, url: str | None, environ: dict[str, str], expected: str
) -> None:
    write("")
    config = ServerConfig(store=StoreConfig(url=url))
    assert resolve_store_url(config, environ) == expected


@pytest.mark.parametrize(
    ("host", "url"),
    [
        (ANYWHERE, "http://localhost:81"),
        ("::", "http://localhost:81"),
        ("::1", "http://[::1]:81"),
        ("example.org", "http://example.org:81"),
    ],
)
def test_the_base_url_is_one_that_can_be_reached(write, host: str, url: str) -> None:
    write("")
    assert base_url(ServerConfig(host=host, port=81)) == url


def test_the_documented_variables_are_exported(write) -> None:
    write("[server.swarm]\nname='a'\nsource='s.json'\nregistry='r.json'\n")
    environ: dict[str, str] = {}
    export_environment(ServerConfig(port=82), environ)
    assert environ == {
        "SWARM_NAME": "a",
        "SWARM_SOURCE": "s.json",
        "SWARM_REGISTRY_FILE": "r.json",
        "BASE_URL": "http://localhost:82",
    }


def test_an_overridden_variable_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_CONFIG_PATH", "before")
    with overridden("MAIL_CONFIG_PATH", "during"), overridden("MAIL_CONFIG_PATH", None):
        assert find_in_environment() == "during"
    assert find_in_environment() == "before"


def find_in_environment() -> str | None:
    from mail.config.env import setting

    return setting("MAIL_CONFIG_PATH")
