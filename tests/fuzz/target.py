"""The server to shoot at, as a process: its address, its log, and whether it came through."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

__all__ = ["Target", "target"]

ROOT = Path(__file__).parents[2]


class Target:
    """A running server.

    Attributes:
        url: Its address.
        port: Its port on 127.0.0.1.
        lines: What it wrote so far.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = ""
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, name="log of the target")
        self._reader.start()
        self._listens.wait()
        assert self.url, "".join(self.lines)
        self.port = int(self.url.rpartition(":")[2])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if "listening on " in line:
                self.url = line.split("listening on ")[1].strip()
                self._listens.set()
        self._listens.set()

    def check_alive(self) -> None:
        """Check that it still answers, and that nothing surprised it."""
        assert self.process.poll() is None, "".join(self.lines[-50:])
        assert httpx.get(f"{self.url}/health", timeout=10).status_code == 200
        self.check_log()

    def check_log(self) -> None:
        """Check that it met nothing that it did not foresee."""
        surprises = [n for n, line in enumerate(self.lines) if "Traceback" in line]
        assert not surprises, "".join(self.lines[max(0, surprises[0] - 3) : surprises[0] + 60])

    def stop(self) -> int:
        """Stop it in the orderly way and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()


@contextmanager
def target(store: str, *flags: str) -> Iterator[Target]:
    """Run the server over a store; at the end, check that it came through and stops."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join((str(ROOT / "src"), str(ROOT))))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.server", store, *flags],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    shot = Target(process)
    try:
        yield shot
        shot.check_alive()
    finally:
        code = shot.stop()
    shot.check_log()
    assert code == 0, "".join(shot.lines[-50:])
