"""The names that a server answers to: a page whose name leads to this machine must get nothing."""

from collections.abc import AsyncIterator

import httpx
import pytest

from mail.config.server import FederationConfig, ServerConfig
from mail.db.memory import MemoryStore
from mail.errors import ConfigError
from mail.server.app import create_app
from tests.server.kit import Template, bearer, config, serving

HTML = {"Accept": "text/html"}
EVERYWHERE = "0.0.0.0"  # noqa: S104 - a setting


@pytest.fixture
async def client(store: MemoryStore, template: Template) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server on loopback that has an address elsewhere, and other names."""
    settings = config().model_copy(
        update={
            "federation": FederationConfig(base_url="https://mail.example.org/x"),
            "allowed_hosts": ["nas.local", "*.example.net"],
        }
    )
    async with serving(create_app(settings, template=template, store=store)) as client:  # type: ignore[arg-type]
        yield client


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1:9", "[::1]", "[::1]:8000"),
        *("a.localhost", "mail.example.org", "nas.local:80", "a.b.example.net:8000"),
    ],
)
async def test_its_own_names_are_answered(client: httpx.AsyncClient, host: str) -> None:
    answer = await client.get("/whoami", headers=bearer("alice") | {"Host": host})
    assert (answer.status_code, answer.json()["id"]) == (200, "alice")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("mail.example.org.evil.example", "example.net", "x@localhost", "localhost/x", "10.0.0.1"),
    ],
)
async def test_other_names_are_400_and_told_what_to_change(
    client: httpx.AsyncClient, host: str
) -> None:
    for path in ("/", "/health", "/whoami", "/console", "/nowhere"):
        answer = await client.get(path, headers=bearer("alice") | {"Host": host})
        assert answer.status_code == 400, path
        assert "[server] allowed_hosts in mail.toml" in answer.json()["detail"]
    answer = await client.post(
        "/message", json={"body": "hi"}, headers=bearer("alice") | {"Host": host}
    )
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("host", "allowed", "status"),
    [
        *(("127.0.0.1", [], 400), ("localhost", [], 400), ("::1", [], 400), ("127.8.0.1", [], 400)),
        *((EVERYWHERE, [], 200), ("", [], 200), ("10.0.0.1", [], 200)),
        *((EVERYWHERE, ["mail.example"], 400), (EVERYWHERE, ["evil.example"], 200)),
    ],
)
async def test_only_a_server_on_loopback_or_with_named_hosts_looks(
    store: MemoryStore, template: Template, host: str, allowed: list[str], status: int
) -> None:
    settings = config().model_copy(update={"host": host, "allowed_hosts": allowed})
    async with serving(create_app(settings, template=template, store=store)) as client:  # type: ignore[arg-type]
        answer = await client.get("/health", headers={"Host": "evil.example"})
        assert answer.status_code == status
        assert (await client.get("/health", headers={"Host": "localhost:1"})).status_code == 200


async def test_examples_name_no_foreign_host(
    client: httpx.AsyncClient, store: MemoryStore, template: Template
) -> None:
    shown = (await client.get("/", headers=HTML)).text
    assert "curl https://mail.example.org/x/message" in shown
    settings = config().model_copy(update={"host": EVERYWHERE})
    async with serving(create_app(settings, template=template, store=store)) as other:  # type: ignore[arg-type]
        for host in ("evil.example", "evil.example:80"):
            shown = (await other.get("/", headers=HTML | {"Host": host})).text
            assert "evil" not in shown
            assert f"curl {str(other.base_url).rstrip('/')}/message" in shown
        shown = (await other.get("/", headers=HTML | {"Host": "localhost:4711"})).text
        assert "curl http://localhost:4711/message" in shown


@pytest.mark.parametrize("host", ["https://a.example", "a.example:80", "*", "a*.example", ""])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="allowed_hosts"):
        ServerConfig(allowed_hosts=[host])
