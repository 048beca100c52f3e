"""Follow a page's shell blocks as a reader does: in order, at terminals, in one folder.

A block that starts a server keeps its terminal, and the next block is typed into a new one; a
server on the same port is stopped before. A ``text`` or ``json`` block right behind a shell block
is what the reader should see; ``…`` stands for anything, and in JSON a key ``…`` for further ones.
Where such a block shows ``mail> `` lines, they are typed at the prompt. A block that the page says
to save as a file is saved, and one with values to set in a file changes them there.
"""

import asyncio
import contextlib
import itertools
import json
import os
import pty
import re
import shlex
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.terminal import Terminal, _become_foreground
from tests.docs.pages import OUTPUT, SHELL, Block, blocks
from tests.docs.places import read_otherwise

_SERVER = re.compile(r"^(?:mail server|make serve|python -m mail\.server)\b.*\Z", re.M)
_PORT = re.compile(r"--port (\d+)")
_USUAL_PORT = "8000"
PROMPT = "mail> "
_CTRL_C = "\x03"
PATIENCE = 90.0
"""Seconds for one block."""


@dataclass(frozen=True)
class Step:
    """A block to carry out, and what the page shows as its outcome."""

    block: Block
    shown: Block | None


@dataclass(frozen=True)
class Output:
    """What a block wrote, standard output first."""

    code: int
    stdout: str
    stderr: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return self.stdout + self.stderr


def starts_a_server(code: str) -> bool:
    """Tell whether a block ends with a command that keeps the terminal."""
    return _SERVER.search(code.strip()) is not None


def steps(page: Path) -> Iterator[Step]:
    """Yield what a reader of the page does, in order."""
    found = [*blocks(page), None]
    for block, behind in itertools.pairwise(found):
        if block is None or block.skipped:
            continue
        if block.language in SHELL or block.saved_as or block.set_in:
            shown = behind if behind and behind.follows and behind.language in OUTPUT else None
            yield Step(block, shown)


class Reader:
    """Somebody who follows a page.

    Args:
        home: the folder in which every terminal opens.
        variables: the environment of every terminal.
        replaced: what is read as something else, in blocks and in what they show.
    """

    def __init__(self, home: Path, variables: Mapping[str, str], replaced: Mapping[str, str]):
        self._home = home
        self._variables = dict(variables)
        self._replaced = dict(replaced)
        self._servers: dict[str, Terminal] = {}
        self._terminals = contextlib.AsyncExitStack()
        self._open_terminal()

    def beside(self) -> "Reader":
        """Return somebody else with a terminal in the same folder."""
        return Reader(self._home, self._variables, self._replaced)

    async def follow(self, page: Path) -> None:
        """Carry out all of a page.

        Raises:
            AssertionError: a step failed, or showed something else than the page.
        """
        for step in steps(page):
            await self.carry_out(step)

    async def __aenter__(self) -> "Reader":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the servers as Ctrl-C does, and see that they stop well."""
        async with self._terminals:
            for server in self._servers.values():
                await _stop(server)

    async def run(self, code: str) -> Output:
        """Type a block at the terminal; return what it wrote."""
        kept = "{ echo; export -p; printf 'cd %q\\n' \"$PWD\"; } >&3"
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", f"{self._script(code)}\n{kept.replace('&3', f'&{writing}')}"),
                env=self._variables, pass_fds=(writing,), stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        finally:
            os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as state:
            try:
                async with asyncio.timeout(PATIENCE):
                    stdout, stderr = await process.communicate()
            finally:
                await _end(process)
            self._state = state.read() or self._state
        return Output(process.returncode or 0, stdout.decode(), stderr.decode())

    async def serve(self, code: str) -> Output:
        """Start a server in the terminal, open another; return what it wrote until it listens."""
        command = ("bash", "-c", self._script(code))
        found = _PORT.search(code)
        port = found[1] if found else self._read(_USUAL_PORT)
        if port in self._servers:
            await _stop(self._servers.pop(port))
        terminal = await self._terminals.enter_async_context(_pty(command, self._variables))
        self._servers[port] = terminal
        await terminal.see("listening on[^\n]*\n", PATIENCE)
        self._open_terminal()
        return Output(0, terminal.screen)

    async def carry_out(self, step: Step) -> Output:
        """Do what a step says; return what was seen.

        Raises:
            AssertionError: it failed, or showed something else than the page.
        """
        block = step.block
        code = self._read(block.code)
        shown = self._read(step.shown.code) if step.shown else ""
        if block.saved_as:
            (self._folder() / block.saved_as).write_text(code, encoding="utf-8")
            return Output(0, "")
        if block.set_in:
            change_toml(self._folder() / block.set_in, code)
            return Output(0, "")
        if starts_a_server(code):
            output = await self.serve(code)
        elif PROMPT in shown:
            output = await self._converse(code, shown)
        else:
            output = await self.run(code)
        assert output.code == 0, f"{block.place}: exit code {output.code}\n{output.text}"
        if step.shown:
            same = json_like if step.shown.language == "json" else lines_like
            seen = output.stdout if step.shown.language == "json" else output.text
            assert same(shown, seen), f"{step.shown.place}: the page shows\n{shown}\nbut:\n{seen}"
        return output

    def _read(self, text: str) -> str:
        return read_otherwise(text, self._replaced)

    def _open_terminal(self) -> None:
        """Forget what was exported; the next block is typed at home."""
        self._state = f"cd {shlex.quote(str(self._home))}\n"

    def _folder(self) -> Path:
        return Path(shlex.split(self._state.rpartition("\ncd ")[2] or self._state)[-1])

    def _script(self, code: str) -> str:
        return f"{self._state}\nset -e\n{code}"

    async def _converse(self, code: str, shown: str) -> Output:
        """Type what the page shows behind the prompt, each line when the prompt is there."""
        async with _pty(("bash", "-c", self._script(code)), self._variables) as terminal:
            for line in shown.splitlines():
                if line.startswith(PROMPT):
                    await terminal.see(re.escape(PROMPT.strip()))
                    terminal.type(line.removeprefix(PROMPT))
            code = await terminal.end()
            return Output(code, re.sub(rf"^.*(?={PROMPT})", "", terminal.screen, flags=re.M))


@contextlib.asynccontextmanager
async def _pty(command: Iterable[str], variables: Mapping[str, str]) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command, env={**variables, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        stdin=slave, stdout=slave, stderr=slave, preexec_fn=_become_foreground,
    )  # fmt: skip
    os.close(slave)
    terminal = Terminal(process, master)
    try:
        yield terminal
    finally:
        await _end(process)
        terminal.close()


async def _stop(server: Terminal) -> None:
    server.press(_CTRL_C)
    code = await server.end()
    assert code == 0, f"a server ended with {code}:\n{server.screen}"


def change_toml(file: Path, values: str) -> None:
    """Change values of a TOML file that has them all, as somebody with an editor does."""
    text, table = file.read_text(encoding="utf-8"), ""
    for line in values.splitlines():
        if line.startswith("["):
            table = re.escape(line)
        elif line:
            key = re.escape(line.partition(" =")[0])
            place = rf"(^{table}$[^\[]*?)^{key} = .*?$"
            text, count = re.subn(place, lambda found: found[1] + line, text, flags=re.M)  # noqa: B023
            assert count == 1, f"{file} has no '{line}' to change"
    file.write_text(text, encoding="utf-8")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def lines_like(shown: str, seen: str) -> bool:
    """Tell whether the lines shown are among those seen, in order."""
    rest = iter(line.strip() for line in seen.splitlines())
    return all(
        any(re.fullmatch(_pattern(line.strip()), found) for found in rest)
        for line in shown.splitlines()
        if line.strip()
    )


def json_like(shown: str, seen: str) -> bool:
    """Tell whether the JSON shown is the JSON seen."""
    return _same(json.loads(shown), json.loads(seen))


def _same(shown: Any, seen: Any) -> bool:
    if isinstance(shown, str):
        return shown == "…" or (
            isinstance(seen, str) and re.fullmatch(_pattern(shown), seen, re.S) is not None
        )
    if isinstance(shown, dict) and isinstance(seen, dict):
        named = shown.keys() - {"…"}
        complete = named <= seen.keys() if "…" in shown else named == seen.keys()
        return complete and all(_same(shown[name], seen[name]) for name in named)
    if isinstance(shown, list) and isinstance(seen, list):
        return len(shown) == len(seen) and all(map(_same, shown, seen))
    return bool(shown == seen)


def _pattern(text: str) -> str:
    return ".*".join(map(re.escape, text.split("…")))
