"""The [stdlib] tables: their defaults, and that a wrong one stops the start."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mail.config import EmailConfig, FsConfig, HttpConfig, StdlibConfig
from mail.db.memory import MemoryStore
from mail.errors import ConfigError
from mail.server.app import create_app
from mail.stdlib.settings import Workspace, check_settings, egress_policy, workspace
from tests.server.kit import Template, config

REPOSITORY = Path(__file__).parents[2]


def test_without_values_in_the_file_the_documented_literals_apply(
    configure: Callable[[str], None],
) -> None:
    configure("")
    assert StdlibConfig() == StdlibConfig(fs=FsConfig(), http=HttpConfig())
    assert (FsConfig().root, FsConfig().max_bytes) == ("workspace", 1024 * 1024)
    http = HttpConfig()
    assert (http.allow, http.timeout, http.max_bytes) == ([], 30.0, 1024 * 1024)
    assert workspace(FsConfig()) == Workspace(Path.cwd() / "workspace")
    assert workspace(FsConfig(root="~/here")) == Workspace(Path.home() / "here")


def test_the_shipped_file_says_what_the_documents_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(REPOSITORY / "mail.toml"))
    check_settings()
    shipped = StdlibConfig().model_dump()
    literals = {
        "fs": {name: field.default for name, field in FsConfig.model_fields.items()},
        "email": {
            name: field.get_default(call_default_factory=True)
            for name, field in EmailConfig.model_fields.items()
        },
        "http": {"allow": [], "timeout": 30.0, "max_bytes": 1024 * 1024},
    }
    assert shipped == literals


def test_values_are_read(configure: Callable[[str], None]) -> None:
    configure(
        '[stdlib.fs]\nroot = "/srv/files"\nmax_bytes = 5\n'
        '[stdlib.http]\nallow = ["a.example", "10.0.0.0/8"]\ntimeout = 3\nmax_bytes = 7\n'
    )
    assert workspace(FsConfig()) == Workspace(Path("/srv/files"))
    assert StdlibConfig().http == HttpConfig(
        allow=["a.example", "10.0.0.0/8"], timeout=3.0, max_bytes=7
    )
    assert egress_policy(HttpConfig()).allow == ("a.example", "10.0.0.0/8")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[stdlib]\nhtpp = 1", r"\[stdlib\] 'htpp' is not a known key; did you mean 'http'\?"),
        ("[stdlib.ftp]\nroot = 'x'", r"\[stdlib\] 'ftp' is not a known key"),
        ("[stdlib.fs]\nrot = 'x'", r"\[stdlib.fs\] 'rot' .* did you mean 'root'"),
        ("[stdlib.fs]\nroot = 5", r"\[stdlib.fs\] 'root': must be a string, actually got int"),
        ("[stdlib.fs]\nroot = ''", r"\[stdlib.fs\] 'root': must not be empty"),
        ("[stdlib.fs]\nroot = '~nosuchuser/x'", r"\[stdlib.fs\] 'root': '~' cannot be resolved"),
        ('[stdlib.fs]\nroot = "a\\u0000b"', r"\[stdlib.fs\] 'root': .* NUL characters"),
        ("[stdlib.fs]\nmax_bytes = 0", r"\[stdlib.fs\] 'max_bytes': .*1"),
        (
            "[stdlib.http]\nallow = 'x'",
            r"\[stdlib.http\] 'allow': must be a list, actually got str",
        ),
        ("[stdlib.http]\nallow = [5]", r"\[stdlib.http\] 'allow\[0\]': must be a string"),
        (
            "[stdlib.http]\nallow = ['http://a.example/']",
            r"\[stdlib.http\] 'allow': 'http://a.example/' is not a valid entry",
        ),
        ("[stdlib.http]\ntimeout = 0", r"\[stdlib.http\] 'timeout': .*greater than 0"),
        ("[stdlib.http]\ntimeout = inf", r"\[stdlib.http\] 'timeout': .*finite"),
        ("[stdlib]\nfs = 5", r"'fs' of \[stdlib.fs\] must be a table"),
        ("[stdlb.fs]\nroot = 'x'", r"unknown key 'stdlb'; did you mean 'stdlib'\?"),
    ],
)
def test_a_wrong_setting_stops_the_start(
    configure: Callable[[str], None], text: str, problem: str
) -> None:
    configure("")
    settings = config()
    configure(f"{text}\n")
    with pytest.raises(ConfigError, match=problem):
        check_settings()
    with pytest.raises(ConfigError, match=problem):
        create_app(settings, template=Template(), store=MemoryStore())
