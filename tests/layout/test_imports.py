"""What importing MAIL costs, and that every module and promised name is there."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import mail

SOURCE = Path(mail.__file__).parent
HEAVY = ("litellm", "fastapi", "langmem", "langgraph", "openai")
PACKAGES = ("mail", "mail.core", "mail.core.tools", "mail.core.message")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = sorted(module_name(path) for path in SOURCE.rglob("*.py") if path.name != "__main__.py")


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SOURCE.parent), "PATH": "", "PYTHONIOENCODING": "utf-8"},
    )


def imported_by(*arguments: str) -> tuple[int, set[str]]:
    """Run python and return its exit code and the top-level packages it imported."""
    done = run_python("-X", "importtime", *arguments)
    names = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert names, done.stderr
    return done.returncode, names


# --- what is not loaded -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PACKAGES, "mail.core.schema", "mail.core.tools.build"])
def test_importing_the_protocol_loads_no_vendor(name) -> None:
    code, imported = imported_by("-c", f"import {name}")
    assert code == 0
    assert not imported.intersection(HEAVY)


def test_the_importtime_report_would_show_a_vendor() -> None:
    code, imported = imported_by("-c", "import fastapi")
    assert code == 0
    assert "fastapi" in imported


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), 0),
        (("version",), 0),
        (("ping", "http://127.0.0.1:1"), 1),
    ],
)
def test_small_commands_load_no_vendor_and_no_model_of_data(arguments, code) -> None:
    ended, imported = imported_by("-m", "mail.cli", *arguments)
    assert ended == code
    assert not imported.intersection({*HEAVY, "pydantic", "aiohttp", "httpx", "rich"})


def test_importing_everything_public_starts_nothing() -> None:
    code = (
        "import sys, threading, asyncio, logging\n"
        "from mail import *\nfrom mail.core import *\nfrom mail.core.tools import *\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not logging.getLogger().handlers\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = run_python("-c", code)
    assert done.stdout.strip() == "[]", done.stderr
    assert done.stderr == ""


# --- what is there ------------------------------------------------------------------------------


@pytest.mark.timeout(600)  # ten seconds of work, on a quiet machine
def test_every_module_imports_alone() -> None:
    assert len(MODULES) > 100
    done = run_python(str(Path(__file__).with_name("import_alone.py")), *MODULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_that_does_not_import_is_noticed() -> None:
    script = str(Path(__file__).with_name("import_alone.py"))
    done = run_python(script, "mail.version", "mail.no_such_module", "mail.clock")
    assert done.returncode == 1
    assert done.stdout.strip().startswith("mail.no_such_module: ModuleNotFoundError")


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_every_promised_name_exists(name) -> None:
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None


@pytest.mark.parametrize("name", PACKAGES[:3])
def test_a_name_that_nobody_promised_is_an_attribute_error(name) -> None:
    module = importlib.import_module(name)
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018 - the look-up itself is the test


def test_all_lists_only_what_a_module_has() -> None:
    for name in MODULES:
        if name == "mail.server":  # builds its app on first use, from files of the working folder
            continue
        module = importlib.import_module(name)
        missing = [
            public for public in getattr(module, "__all__", ()) if not hasattr(module, public)
        ]
        assert not missing, f"{name} promises {missing}"
