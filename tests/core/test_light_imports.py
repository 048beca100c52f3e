"""The protocol is light: reading a message needs no model library and no web server."""

import subprocess
import sys

import pytest

HEAVY = (
    "aiohttp",
    "fastapi",
    "httpx",
    "jsonschema",
    "langgraph",
    "langmem",
    "litellm",
    "openai",
    "starlette",
    "uvicorn",
)
MODULES = (
    "mail",
    "mail.core",
    "mail.core.addresses",
    "mail.core.compose",
    "mail.core.envelope",
    "mail.core.events",
    "mail.core.message",
    "mail.core.render",
    "mail.core.schema",
    "mail.core.tools",
    "mail.core.tools.build",
    "mail.core.tools.catalogue",
    "mail.core.tools.convert",
    "mail.core.tools.helptext",
    "mail.core.wire",
)


@pytest.mark.parametrize("module", MODULES)
def test_every_protocol_module_imports_alone_and_loads_nothing_heavy(module) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
