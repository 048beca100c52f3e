"""Debian packages that tests need: installed by whoever finds them missing, one after the other."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["install"]

_SECONDS: Final = 300
_IMPATIENT: Final = ("-o", "Acquire::http::Timeout=15", "-o", "Acquire::Retries=1")


def install(package: str, is_there: Callable[[], object]) -> str:
    """Install a package unless it is there by now; return why it is still missing, if so."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "only root can install it, with apt-get"
    # One lock for all packages: pytest's workers may be here together, and apt-get runs alone.
    with Path(tempfile.gettempdir(), "mail-apt-get.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return "" if is_there() else _run_apt_get(package)


def _run_apt_get(package: str) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    said = ""
    for arguments in (("update",), ("install", "-y", "--no-install-recommends", package)):
        try:
            done = subprocess.run(
                ["apt-get", "-q", *_IMPATIENT, *arguments],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"apt-get {arguments[0]} took too long"
        said = done.stderr[-500:]
    return f"apt-get said: {said}"
