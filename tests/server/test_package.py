"""``mail.server``: the promised names, built when they are asked for."""

import subprocess
import sys

import pytest

PROGRAMS = {
    "importing it loads no web framework": """
import sys, mail.server
assert "fastapi" not in sys.modules and "uvicorn" not in sys.modules
""",
    "its app is the application, whatever was imported before": """
import mail.server.app
from mail.server.app import create_app
import mail.server
built = []
mail.server.app_module = sys.modules["mail.server.app"]
mail.server.app_module.create_app = lambda: built.append("app") or "the app"
assert mail.server.app == "the app" and mail.server.app == "the app" and built == ["app"]
from mail.server import app, create_app, run_server
assert app == "the app" and callable(create_app) and callable(run_server)
""",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_the_package(what: str) -> None:
    program = "import sys\n" + PROGRAMS[what]
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
