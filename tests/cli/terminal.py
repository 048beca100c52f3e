"""A program behind a pseudo-terminal: type to it, and wait for what it shows."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pyte

SOURCE = Path(__file__).parents[2] / "src"
_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[=>]|\x1b\][^\x07]*\x07|\x1b[^a-zA-Z]*$")


class Done(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


async def start(home: Path, *words: str, **environ: str) -> asyncio.subprocess.Process:
    """Start ``mail`` in a process of its own, with pipes."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "mail.cli", *words),
        cwd=home,
        env=environment(home, **environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(home: Path, *words: str, typed: str = "", **environ: str) -> Done:
    """Run ``mail`` in a process of its own."""
    process = await start(home, *words, **environ)
    out, err = await process.communicate(typed.encode())
    assert process.returncode is not None
    assert b"Traceback" not in err
    return Done(process.returncode, out.decode(), err.decode())


class Terminal:
    """What a person has: a keyboard and a screen. The screen's colours are left out."""

    def __init__(
        self, process: asyncio.subprocess.Process, master: int, size: tuple[int, int] = (80, 24)
    ) -> None:
        self.process = process
        self._size = size
        self._master = master
        self._shown = b""
        self._read = 0
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._take)

    @property
    def screen(self) -> str:
        """All that was shown so far."""
        return _CODES.sub("", self._shown.decode("utf-8", "replace")).replace("\r", "")

    @property
    def raw(self) -> bytes:
        """All bytes that were sent to the terminal."""
        return self._shown

    @property
    def lines(self) -> list[str]:
        """The lines that a terminal shows in the end, also those that have scrolled out."""
        columns, rows = self._size
        screen = pyte.HistoryScreen(columns, rows, history=10_000)
        pyte.ByteStream(screen).feed(self._shown)
        above = ["".join(line[x].data for x in range(columns)) for line in screen.history.top]
        return [line.rstrip() for line in [*above, *screen.display]]

    def press(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def type(self, line: str) -> None:
        """Type a line and press enter."""
        self.press(line + "\r")

    async def paste(self, text: str) -> None:
        """Paste a text, however long, and press enter."""
        # In a thread: the terminal takes no more while nobody reads what it shows.
        await asyncio.to_thread(self._write, f"\x1b[200~{text}\x1b[201~\r".encode())

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._master, data[:1024]) :]

    async def see(self, pattern: str, seconds: float = 60.0) -> str:
        """Wait until the screen shows something new that fits; return it."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._news.clear()
                    screen = self.screen
                    if found := re.compile(pattern, re.S).search(screen, self._read):
                        self._read = found.end()
                        return found.group()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{pattern!r} not in:\n{self.screen[self._read :]}") from None

    async def ask(self, line: str, pattern: str) -> str:
        """Type a command; return what it shows, up to the next prompt."""
        self.type(line)
        await self.see(pattern)
        return await self.see(r"mail>")

    async def end(self) -> int:
        """Wait until the program ends; return its exit code."""
        async with asyncio.timeout(60):
            return await self.process.wait()

    def close(self) -> None:
        """Take the terminal away."""
        if self._master >= 0:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._master)
            self._master = -1

    def _take(self) -> None:
        try:
            self._shown += os.read(self._master, 65536)
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._master)
        self._news.set()


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment for ``mail`` with a home of its own."""
    dropped = (
        *("DATABASE_URL", "MAIL_CONFIG_PATH", "MAIL_LOG_LEVEL", "MAIL_URL", "MAIL_API_KEY"),
        *("XDG_CONFIG_HOME", "PYTHON_KEYRING_BACKEND"),
    )
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {
        "HOME": str(home),
        "PYTHONPATH": str(SOURCE),
        "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody answers questions about the cursor
        "TERM": "xterm",
        **more,
    }


@asynccontextmanager
async def terminal(
    home: Path, arguments: Sequence[str], *, size: tuple[int, int] = (80, 24), **more: str
) -> AsyncIterator[Terminal]:
    """Run ``mail`` at a terminal of so many columns and rows."""
    master, slave = pty.openpty()
    columns, rows = size
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mail.cli", *arguments),
        cwd=home,
        env=environment(home, **more),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=_become_foreground,
    )
    os.close(slave)
    shown = Terminal(process, master, size)
    try:
        yield shown
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        shown.close()


def _become_foreground() -> None:
    """Make standard input the terminal that Ctrl-C comes from."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
