"""Look up the installed packages in a database of known vulnerabilities (part of ``make lint``).

Where no advisory service answers within seconds, one line says that nothing was checked.
"""

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from importlib.metadata import version
from urllib.parse import urlsplit

_SECONDS = 4.0
_LONGEST = 300
_SERVICES = {
    "pypi": (f"https://pypi.org/pypi/pip-audit/{version('pip-audit')}/json", "vulnerabilities"),
    "osv": ("https://api.osv.dev/v1/vulns/GHSA-m2qf-hxjv-5gpq", "affected"),
}
"""What each service is asked, and a field that its answer has."""


def problem(url: str, field: str) -> str | None:
    """Tell why an advisory service cannot be used, or None if it can."""
    found: list[str | None] = []
    asking = threading.Thread(target=lambda: found.append(_ask(url, field)), daemon=True)
    asking.start()
    asking.join(_SECONDS)  # a name may take longer to look up than any timeout of a socket
    return found[0] if found else f"no answer within {_SECONDS:g} seconds"


def _ask(url: str, field: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            return None if field in json.load(answer) else f"an answer without '{field}'"
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def main() -> int:
    """Check what is installed, if there is somebody to ask."""
    problems = []
    for name, (url, field) in _SERVICES.items():
        if (why := problem(url, field)) is None:
            options = ("--local", "--skip-editable", "--progress-spinner", "off")
            command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", name, *options]
            return subprocess.run(command, timeout=_LONGEST).returncode
        problems.append(f"{urlsplit(url).hostname}: {why}")
    print(f"audit: SKIPPED, no advisory service answers ({'; '.join(problems)})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
