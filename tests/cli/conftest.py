"""A small swarm behind a real server, for commands that talk to one; and commands run here."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mail.cli.commands import main
from mail.server.app import create_app
from tests.cli.terminal import Done
from tests.server import conftest as served
from tests.server.kit import Script, Template, config, serving

store = served.store
Mail = Callable[..., Done]


@pytest.fixture
def mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Mail:
    """Return a function that runs a command in a folder of its own."""
    if not (tmp_path / "mail.toml").exists():
        (tmp_path / "mail.toml").write_text('[server.store]\nurl = "sqlite:///mail.db"\n')
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "MAIL_CONFIG_PATH", "MAIL_LOG_LEVEL", "MAIL_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*words: str, **environ: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            code = main(words)
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def script() -> Script:
    """What the swarm's agent does."""
    return Script()


@pytest.fixture
async def server(script: Script, store: object) -> AsyncIterator[str]:
    """Return the URL of a running server whose swarm has a breakpoint tool."""
    template = Template(script, breakpoint_tools=["send_interrupt"])
    app = create_app(config(shutdown_grace=0.5), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        yield str(client.base_url).rstrip("/")
    script.gate.set()
