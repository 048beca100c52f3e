"""What every test starts from: an environment without settings, keys or addresses of services."""

import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.support.postgres import Cluster

_PREFIXES = ("MAIL_", "SWARM_", "AUTH_", "TOKEN_INFO_", "OPENAI_", "ANTHROPIC_", "LITELLM_")
_NAMES = ("DATABASE_URL", "BASE_URL")
# One authority, whose key nobody has: reading the usual hundred takes each new client 25 ms.
_AUTHORITIES = Path(__file__).parent / "support" / "authorities.pem"


_SLOW = re.compile(
    r"subprocess|multiprocessing|create_process|Popen|browser|bucket|LiteLLMModel|litellm\b"
    r"|running_server|serving|FakeProvider|freeze_support|@given|bounded\(|RuleBased|_INTERLEAVINGS"
    r"|stdio_client|cli import terminal|cli\.terminal import .*(environment|run|start|terminal)\b"
)
"""What a module that is not of the fast tier has in its text: processes, servers, many examples."""
_WHOLE: Final = (
    "benchmarks",
    "docs",
    "documents",
    "e2e",
    "examples",
    "federation",
    "fuzz",
    "layout",
    "providers",
)
"""Folders of tests of the whole: processes, servers, pages."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the fast tier be asked for."""
    parser.addoption("--fast", action="store_true", help="only what needs no process or server")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the modules that are not of the fast tier, if that is asked for."""
    if not config.getoption("--fast"):
        return None
    if collection_path.name in _WHOLE:
        return True
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text("utf-8")
    return True if collection_path.name.startswith("test_") and _SLOW.search(text) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs on PostgreSQL, if the fast tier is asked for."""
    if config.getoption("--fast"):
        items[:] = [item for item in items if "postgres" not in item.nodeid.lower()]


def pytest_configure() -> None:
    """Choose how examples are tried, and prepare what processes that tests start inherit, too.

    Ctrl-C is heard again where a shell started the run in the background, with SIGINT ignored: some
    of them are to be interrupted. No site of the world is trusted: none is called.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["SSL_CERT_FILE"] = str(_AUTHORITIES)
    # On a busy machine, any example takes longer than the 0.2 s that Hypothesis allows.
    slow = [HealthCheck.too_slow]
    settings.register_profile("busy", settings.default, deadline=None, suppress_health_check=slow)
    # The same ones each time: what a change breaks is its own. Another profile tries new ones.
    settings.register_profile("same", settings.get_profile("busy"), derandomize=True)
    settings.load_profile("same")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three workers for two processors: for a third of their time, tests wait, but for the fast."""
    processors = os.cpu_count() or 1
    return processors if config.getoption("--fast") else max(1, processors * 3 // 2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for no garbage among what is there to stay: modules, tests and their parameters."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Collect no garbage meanwhile: in a finalizer, Python 3.11 loses count while it parses."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape what UTF-8 cannot hold, so that a worker can report logs of broken text."""
    return _escaped((yield))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {name: _escaped(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_escaped(item) for item in value)
    return value


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove settings of the outer environment, so that no test depends on them."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name in _NAMES or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    # LiteLLM reads this one late, at the first call of a Claude model, and would fetch a file.
    monkeypatch.setenv("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    yield


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    """Take out of the process what a test, or a command that it ran, has left there."""
    loggers = (logging.root, logging.getLogger("mail"))
    handlers = [list(logger.handlers) for logger in loggers]
    signals = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    folder, path = Path.cwd(), list(sys.path)
    if "mail.llm.fallback" in sys.modules:  # a provider may get the port of one before
        sys.modules["mail.llm.fallback"].process_adaptations.cache_clear()
    yield
    for logger, found in zip(loggers, handlers, strict=True):
        for handler in [each for each in logger.handlers if each not in found]:
            logger.removeHandler(handler)
            handler.close()
    for number, handling in signals:
        if signal.getsignal(number) is not handling:
            signal.signal(number, handling)
    os.chdir(folder)
    sys.path[:] = path


@pytest.fixture(autouse=True)
def heard_loggers() -> None:
    """Let each test hear MAIL's loggers, whatever a test before has switched off."""
    logging.disable(logging.NOTSET)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == "mail" and isinstance(logger, logging.Logger):
            logger.disabled = False
            logger.propagate = True
            logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def cluster() -> Iterator["Cluster"]:
    """A PostgreSQL server for all tests that ask for one; it starts with the first of them.

    Each of pytest's workers has its own, for some tests stop it.
    """
    from tests.support.postgres import Cluster

    made = Cluster()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture
def dsn(cluster: "Cluster") -> str:
    """The URL of an empty PostgreSQL database."""
    return cluster.dsn()
