"""``mail ui`` against a server with a console, one without, and none."""

import webbrowser
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from mail.cli import main
from mail.db.memory import MemoryStore
from mail.server.app import create_app
from tests.server.kit import Template, config
from tests.support.background import served


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the browser is told to open."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    return opened


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server, with a console or without."""

    async def make() -> FastAPI:
        template: Any = Template()
        settings = config().model_copy(update={"console": request.param})
        return create_app(settings, template=template, store=MemoryStore())

    with served(make) as url:
        yield url


@pytest.mark.parametrize("url", [True], indirect=True)
def test_it_prints_and_opens_the_address(
    url: str,
    opened: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(["ui", f"{url}/", "--no-browser"]) == 0
    assert opened == []
    monkeypatch.setenv("MAIL_URL", url)
    assert main(["ui"]) == 0
    assert opened == [f"{url}/console"]
    assert capsys.readouterr() == (f"{url}/console\n" * 2, "")


@pytest.mark.parametrize("url", [False], indirect=True)
def test_a_server_without_a_console_is_named(
    url: str, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ui", url]) == 1
    expected = f"mail: {url} has no console; [server] console switches it on\n"
    assert capsys.readouterr() == ("", expected)
    assert opened == []


def test_no_server_is_an_error(opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "http://127.0.0.1:1"]) == 1
    assert "cannot connect to http://127.0.0.1:1" in capsys.readouterr().err
    assert main(["ui", "ftp://127.0.0.1"]) == 2
    assert opened == []
