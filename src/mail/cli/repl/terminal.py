"""Command input: typed at a terminal, with editing, completion and history, or piped in."""

import asyncio
import io
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from mail.cli.repl.parsing import LEAVE, CommandParser, build_parser, command_names, split
from mail.logs.setup import redact

__all__ = ["CommandCompleter", "CommandHistory", "PipedLines", "TypedLines"]

PROMPT: Final = "mail> "
_MORE: Final = "... "
_HELP: Final = ("help", "?")
_KNOWN: Final = frozenset({*command_names(), *LEAVE, *_HELP})
_QUOTING: Final = re.compile(r"[\s'\"\\]+")
_WITH_SECRETS: Final = (
    "l",
    "login",
    "mi",
    "msg-i",
    "message-interswarm",
    "sr",
    "swarm-r",
    "swarm-register",
)


class TypedLines:
    """Lines typed at a terminal. A backslash at the end of a line continues it.

    Args:
        runner: The event loop runner for the prompt.
        history: The history file; created if it does not exist.
    """

    interactive = True

    def __init__(self, runner: asyncio.Runner, history: Path) -> None:
        self._runner = runner
        self._history = CommandHistory(history)
        self._prompt: PromptSession[str] = PromptSession(
            history=self._history,
            completer=CommandCompleter(build_parser("", typed=True)),
            complete_while_typing=False,
        )

    def read(self) -> str:
        """Return the next command; see `mail.cli.repl.loop.Lines`."""
        line = self._ask(PROMPT)
        while _goes_on(line):
            line = line[:-1] + self._ask(_MORE)
        self._history.remember(line)
        return line

    def _ask(self, prompt: str) -> str:
        line = self._runner.run(self._typed(prompt))
        if line is None:
            raise KeyboardInterrupt
        return line

    async def _typed(self, prompt: str) -> str | None:
        # A KeyboardInterrupt raised out of a coroutine would stop its event loop.
        try:
            return await self._prompt.prompt_async(prompt)
        except KeyboardInterrupt:
            return None


class PipedLines:
    """Lines from a file or a pipe."""

    interactive = False

    def __init__(self, source: TextIO | None = None) -> None:
        self._source = source or sys.stdin
        if isinstance(self._source, io.TextIOWrapper):
            self._source.reconfigure(errors="surrogateescape")  # `split` refuses such a line

    def read(self) -> str:
        """Return the next command; see `mail.cli.repl.loop.Lines`."""
        line = self._next()
        while _goes_on(line):
            line = line[:-1] + self._next()
        return line

    def _next(self) -> str:
        line = self._source.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


class CommandHistory(FileHistory):
    """A history file that only its owner can read, without lines that contain keys.

    If the file cannot be read or written, there is no history, and no error.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Return the earlier lines, newest first."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def append_string(self, string: str) -> None:
        """Ignore a line of the prompt: it may be incomplete; `remember` gets the whole command."""

    def remember(self, line: str) -> None:
        """Add a complete command to the history, and to the file unless it may contain a key."""
        if line.strip() and line not in self.get_strings()[-1:]:
            super().append_string(line)

    def store_string(self, string: str) -> None:
        """Write a line to the file, unless it may contain a key."""
        if _may_hold_key(string):
            return
        try:
            self._file.touch(mode=0o600, exist_ok=True)
            self._file.chmod(0o600)
            super().store_string(string)
        except OSError:
            return


def _may_hold_key(line: str) -> bool:
    """Tell whether a line may contain a key, or is not a command (perhaps a pasted key)."""
    try:
        words = split(line)
    except ValueError:
        words = _QUOTING.sub(" ", line).split()
    if not words or words[0] not in _KNOWN or redact(line) != line:
        return True
    return any(word in _WITH_SECRETS for word in (words[1:] if words[0] in _HELP else words[:1]))


class CommandCompleter(Completer):
    """Completes commands, their flags, and the values of flags with a fixed set of values."""

    def __init__(self, parser: CommandParser) -> None:
        self._parser = parser

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield completions of the word before the cursor."""
        before = document.text_before_cursor
        words = before.split()
        word = "" if not words or before.endswith(" ") else words.pop()
        for candidate in self._candidates(words, word):
            if candidate.startswith(word):
                yield Completion(candidate, -len(word))

    def _candidates(self, words: list[str], word: str) -> Iterable[str]:
        commands = sorted(self._parser.subcommands)
        if not words:
            return sorted((*commands, "help", *LEAVE))
        if words[0] in _HELP:
            return commands if len(words) == 1 else ()
        command = self._parser.subcommands.get(words[0])
        if command is None:
            return ()
        if values := command.flags.get(words[-1]):
            return values
        return sorted(f for f in command.flags if f.startswith("--")) if word[:1] == "-" else ()
