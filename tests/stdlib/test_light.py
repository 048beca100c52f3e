"""Importing the actions loads no HTTP library and no SDK; the first call does."""

import subprocess
import sys

HEAVY = ("aiohttp", "fastapi", "httpx", "httpx2", "litellm", "mcp", "openai", "uvicorn")
MODULES = (
    "mail.stdlib.fs.actions",
    "mail.stdlib.http.actions",
    "mail.stdlib.mcp.actions",
    "mail.stdlib.interswarm.actions",
    "mail.stdlib.settings",
    "mail.egress.client",
)


def test_the_actions_are_light_to_import() -> None:
    code = (
        f"import sys, {', '.join(MODULES)}; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
