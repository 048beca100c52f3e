"""How flags of ``mail server`` meet the file, and how links are read."""

from pathlib import Path

import pytest

from mail.cli import server
from mail.cli.commands import main
from mail.cli.credentials import SwarmLink, parse_swarm_link, server_url
from mail.cli.table import Namespace
from mail.errors import ConfigError


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mail.toml"
    path.write_text(
        "[server]\nport = 9000\nreload = true\ndebug = true\n"
        "[server.swarm]\nname = 'alpha'\nsource = 'a.json'\n[server.store]\nurl = 'sqlite:///a'\n"
    )
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(path))


def parse(*flags: str) -> Namespace:
    return server.run.read(flags)


def test_flags_not_given_leave_the_file_alone() -> None:
    config = server.build_config(parse())
    assert (config.port, config.reload, config.debug) == (9000, True, True)
    assert (config.swarm.name, config.swarm.source) == ("alpha", "a.json")
    assert config.store.url == "sqlite:///a"


def test_flags_given_win() -> None:
    config = server.build_config(
        parse(
            *("-p", "81", "-H", "::1", "-r", "-d", "-n", "beta", "-s", "b.json", "-rf", "r.json"),
            *("--store", "memory://", "--print-llm-streams", "No"),
        )
    )
    assert (config.port, config.host) == (81, "::1")
    assert (config.swarm.name, config.swarm.source) == ("beta", "b.json")
    assert config.swarm.registry_file == "r.json"
    assert config.store.url == "memory://"
    assert config.settings.print_llm_streams is False


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("swarm://connect?server=h:1&token=a%20b", SwarmLink("h:1", "a b")),
        ("swarm://invite?server=h", SwarmLink("h", None)),
        ("swarm://invite", SwarmLink(None, None)),
        ("swarm://other?server=h", None),
        ("SWARM://connect?server=h", None),
        ("https://h", None),
    ],
)
def test_swarm_links_are_parsed(url: str, link: SwarmLink | None) -> None:
    assert parse_swarm_link(url) == link


def test_a_server_url_is_http_or_a_link() -> None:
    assert server_url("http://h:1/") == "http://h:1"
    assert server_url("swarm://invite?server=h:1") == "https://h:1"
    for wrong in ("h:1", "ftp://h", "swarm://other?server=h"):
        with pytest.raises(ConfigError):
            server_url(wrong)


@pytest.mark.parametrize(
    "url",
    [
        "http://bob:hunter2@127.0.0.1:1",
        "http://hunter2@127.0.0.1:1",
        "http://:hunter2@127.0.0.1:1",
        "swarm://invite?server=bob:hunter2@127.0.0.1:1",
    ],
)
@pytest.mark.parametrize("command", [["client"], ["ping"], ["login"], ["mcp"], ["mcp", "config"]])
def test_a_url_with_a_secret_is_refused_without_showing_it(
    url: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, url]) in (1, 2)
    said = "".join(capsys.readouterr())
    assert "the URL must not contain a user, a password or a token" in said
    assert "use MAIL_API_KEY, --api-key-file or `mail login`" in said
    assert "hunter2" not in said
