"""The image builds, runs, is healthy and stops well, as far as that shows without an engine.

The Dockerfile's own lines are carried out in a scratch folder. Other than in a container: the
packages that MAIL needs are those of the tests (nothing is fetched, and a stand-in packs the
wheel), no user is made, and the server listens on a free port of loopback.
"""

import asyncio
import importlib.util
import os
import re
import signal
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import mail.version
from mail.config import env as settings
from tests.docs.dockerfile import Builder, Stage, instructions, sent
from tests.docs.pages import ROOT
from tests.docs.places import free_port, variables

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

STANDIN = Path(__file__).parent / "standin"
PIP = """#!/bin/sh
case "$*" in *"--require-hashes -r requirements.lock") exec test -f requirements.lock;; esac
exec {python} -m pip "$@"
"""
USERADD = """#!/bin/sh
while [ "$1" != --home-dir ]; do shift; done
mkdir "$2"
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """What the Dockerfile makes."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("this environment has no pip to install with")
    scratch = tmp_path_factory.mktemp("image")
    base = scratch / "base"
    base.mkdir()
    commands = {
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        "pip": PIP.format(python=sys.executable),
        "useradd": USERADD,
    }
    for name, text in commands.items():
        (base / name).write_text(text, encoding="utf-8")
        (base / name).chmod(0o755)
    outside = {
        "PATH": f"{base}:{os.environ['PATH']}",
        "PYTHONPATH": f"{STANDIN}:{sysconfig.get_path('purelib')}",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it the other way round
        "PIP_DRY_RUN": "0",
    }
    builder = Builder(ROOT, scratch, variables(scratch, **outside))
    builder.build()
    yield builder


def test_the_image_holds_the_package_and_nothing_of_the_build(built: Builder) -> None:
    assert sorted(path.name for path in built.root.iterdir()) == ["data", "etc", "opt"]
    [packages] = built.root.glob("opt/mail/lib/python3.*/site-packages")
    ours = f"mail_protocol-{mail.version.get_version()}.dist-info"
    assert {path.name for path in packages.iterdir()} == {"mail", ours}
    assert (packages / "mail" / "spec" / "SPEC.md").is_file()
    assert not list(built.root.rglob("*.db"))


def test_the_image_is_not_run_by_root_and_writes_to_its_volume(built: Builder) -> None:
    stage = built.stage
    assert stage.user not in ("root", "0")
    [made] = [line for line in built.ran if line.startswith("useradd")]
    assert made.split()[-1] == stage.user
    assert stage.user != "mail", "the base image has a user of that name"
    assert stage.volumes == [stage.folder] == ["/data"]
    assert stage.env["DATABASE_URL"].startswith(f"sqlite:///{stage.folder}/")


async def test_the_image_serves_is_healthy_and_stops_on_sigterm(built: Builder) -> None:
    stage, port = built.stage, free_port()
    process = await asyncio.create_subprocess_exec(
        *(built.here(part) for part in stage.entrypoint), "--host=127.0.0.1", f"--port={port}",
        cwd=built.folder, env=built.variables, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr
        seen = b""
        while b"listening on" not in seen and (line := await process.stderr.readline()):
            seen += line
        assert b"listening on" in seen, seen.decode()
        code, said = await check_health(built, port)
        assert (code, said) == (0, "✓ example-no-proxy is healthy\n")
        process.send_signal(signal.SIGTERM)
        rest = await process.stderr.read()
        assert await process.wait() == 0, rest.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    code, said = await check_health(built, port)
    assert code == 1, said
    written = {path.name for path in (built.root / "data").iterdir()}
    assert "mail.db" in written and "logs" in written


async def check_health(built: Builder, port: int) -> tuple[int, str]:
    """Run the image's health check against a port; return its exit code and what it prints."""
    process = await asyncio.create_subprocess_exec(
        *(part.replace("8000", str(port)) for part in built.stage.healthcheck),
        env=built.variables, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


def test_the_build_context_has_neither_secrets_nor_state() -> None:
    names = list(sent(ROOT))
    assert "pyproject.toml" in names and "src/mail/__init__.py" in names
    assert {name.partition("/")[0] for name in names} == {
        *("LICENSE", "README.md", "mail.toml", "pyproject.toml", "requirements.lock"),
        *("spec", "src", "swarms.json"),
    }
    assert not [name for name in names if re.search(r"\.env|\.db|\.pyc$|\.git/", name)]


# --- docker-compose.yml --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, dict[str, dict[str, object]]]:
    """The compose file."""
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_compose_runs_the_image_as_it_is_meant(compose: dict[str, dict[str, dict]]) -> None:
    server, image = compose["services"]["server"], image_as_written()
    assert server["build"] == "."
    assert [port.rpartition(":")[2] for port in server["ports"]] == image.ports
    assert [place.partition(":")[2] for place in server["volumes"]] == image.volumes
    assert server["healthcheck"]["test"] == ["CMD", *image.healthcheck]
    assert server["depends_on"] == {"database": {"condition": "service_healthy"}}
    grace = tomllib.loads((ROOT / "mail.toml").read_text())["server"]["limits"]["shutdown_grace"]
    assert float(server["stop_grace_period"].removesuffix("s")) > grace
    used = {place.partition(":")[0] for s in compose["services"].values() for place in s["volumes"]}
    assert used == set(compose["volumes"])


def test_compose_names_only_variables_that_are_read(compose: dict[str, dict[str, dict]]) -> None:
    server, database = compose["services"]["server"], compose["services"]["database"]
    assert set(server["environment"]) <= {settings.DATABASE_URL, settings.CONFIG_PATH}
    account = {name: database["environment"][f"POSTGRES_{name}"] for name in ("USER", "PASSWORD")}
    url = f"postgresql://{account['USER']}:{account['PASSWORD']}@database:5432/"
    url += database["environment"]["POSTGRES_DB"]
    assert server["environment"][settings.DATABASE_URL] == url
    assert int(database["image"].partition(":")[2]) >= 15


def test_the_example_of_settings_has_all_that_compose_asks_for() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    asked = set(re.findall(r"\$\{(\w+)", text))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert {name for name in asked if name in example} == asked
    given = set(re.findall(r"^(\w+)=", example, re.M))
    assert given == {"MAIL_PORT"}, "a password that everybody knows is none"


def image_as_written() -> Stage:
    """Return what the last stage of the Dockerfile says, without building it."""
    stage = Stage()
    for line in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        if line.word == "EXPOSE":
            stage.ports.append(line.rest)
        elif line.word == "VOLUME":
            stage.volumes.append(line.rest)
        elif line.word == "HEALTHCHECK":
            stage.healthcheck = instructions(line.rest)[0].form
    return stage
