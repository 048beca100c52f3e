"""MCP servers that are programs: started when they are needed, watched, bounded, and ended.

The SDK has a client for such programs, too, but reads lines of any length. This one ends a program
that sends too much, and starts it again for a later call.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.client import Client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from mail.egress.rules import FetchError
from mail.errors import ToolError

Result = TypeVar("Result")

_IDLE_SECONDS: Final = 600.0
_RESTART_SECONDS: Final = 1.0
_GOODBYE_SECONDS: Final = 1.0
_LONGEST_STDERR: Final = 2000
_LONGEST_REFUSAL: Final = 2000
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
"""The variables of this process that a program gets: none that could be a secret."""

_log = logging.getLogger(__name__)


class Program:
    """A program that is an MCP server; one process of it for each event loop that calls it."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], seconds: float, max_bytes: int
    ) -> None:
        """Describe the program.

        Args:
            command: The program and its arguments.
            env: Its environment, beside the few variables that every program needs.
            seconds: The deadline of one use.
            max_bytes: The size limit of one of its messages, and a quarter of what it may send
                during one use.
        """
        self._command, self._seconds, self._max_bytes = list(command), seconds, max_bytes
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._env = inherited | dict(env)
        self._running: WeakKeyDictionary[asyncio.AbstractEventLoop, _Running] = WeakKeyDictionary()

    async def use(self, work: Callable[[Client], Awaitable[Result]]) -> Result:
        """Do something with the server.

        Raises:
            FetchError: it cannot be started, ends, sends too much, or does not answer in time.
            ToolError: it refuses.
        """
        running = self._now_running()
        began = time.monotonic()
        running.calls += 1
        running.left = 4 * self._max_bytes
        try:
            async with asyncio.timeout(self._seconds):
                client = await asyncio.shield(running.ready)
                return await work(client)
        except TimeoutError:
            if running.heard < began:  # it hangs, and would for others, too
                running.end(FetchError("the program does not answer"))
            text = f"no complete answer within {self._seconds:g} seconds"
            raise FetchError(text) from None
        except (FetchError, ToolError):
            raise
        except ValidationError:
            raise FetchError("the MCP server's answer does not follow the protocol") from None
        except Exception as error:  # noqa: BLE001 - told to the agent
            raise await running.reason(error) from None
        finally:
            running.calls -= 1
            running.used = time.monotonic()

    async def end(self) -> None:
        """End the process of this event loop, if there is one."""
        running = self._running.pop(asyncio.get_running_loop(), None)
        if running is not None:
            running.end(None)
            await asyncio.gather(running.task, return_exceptions=True)

    def _now_running(self) -> "_Running":
        loop = asyncio.get_running_loop()
        running = self._running.get(loop)
        if running is not None and running.ended:
            if time.monotonic() - running.began < _RESTART_SECONDS:
                raise running.failure or FetchError("the program has just ended; try again")
            running = None
        if running is None:
            running = _Running(self._command, self._env, self._seconds, self._max_bytes)
            running.start()
            self._running[loop] = running
        return running


@dataclass(eq=False)
class _Running:
    """One process, and the session with it."""

    command: list[str]
    env: dict[str, str]
    seconds: float
    max_bytes: int
    calls: int = 0
    left: int = 0
    """Bytes that it may still send during this use."""
    began: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    heard: float = 0.0
    failure: FetchError | None = None
    stderr: bytes = b""
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        self.left = 4 * self.max_bytes
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(), name="mcp server")

    @property
    def ended(self) -> bool:
        return self._over.is_set() or self.task.done()

    def end(self, failure: FetchError | None) -> None:
        """End it; the first failure is the one that is told."""
        self.failure = self.failure or failure
        self._over.set()
        if not self.ready.done():
            self.task.cancel()  # it waits for a session that does not come

    async def reason(self, error: Exception) -> FetchError | ToolError:
        """Return what to tell of an error of the session."""
        if isinstance(error, MCPError) and error.code != types.CONNECTION_CLOSED:
            return ToolError(f"the MCP server refused: {error.message[:_LONGEST_REFUSAL]}")
        if not self.ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._over.wait()
        return self.failure or FetchError(f"the exchange failed ({type(error).__name__})")

    async def _run(self) -> None:
        try:
            async with self._pipes() as streams:
                session = Client(
                    nullcontext(streams), read_timeout_seconds=self.seconds, cache=None
                )
                async with session as client:
                    if not self.ready.done():
                        self.ready.set_result(client)
                    await self._until_over()
        except OSError as error:
            text = f"the program cannot be started: {error.strerror or type(error).__name__}"
            self.failure = self.failure or FetchError(text)
        except Exception as error:  # noqa: BLE001 - told to who waits for it
            reason = FetchError(f"no session with the program ({_first(error)})")
            self.failure = self.failure or reason
        finally:
            self._over.set()
            if not self.ready.done():
                self.ready.set_exception(self.failure or FetchError("the program was ended"))
                self.ready.exception()  # whoever waits is told; nobody may be

    async def _until_over(self) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_SECONDS):
                    await self._over.wait()
            if not self.calls and time.monotonic() - self.used >= _IDLE_SECONDS:
                return

    @asynccontextmanager
    async def _pipes(self) -> AsyncGenerator[Any, None]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self.env,
            limit=self.max_bytes,
            start_new_session=True,
        )
        to_session, of_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, of_session = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._read(process, to_session)),
            asyncio.create_task(self._write(process, of_session)),
            asyncio.create_task(self._keep_stderr(process)),
        ]
        try:
            yield of_server, to_server
        finally:
            for task in tasks:
                task.cancel()
            try:
                await self._farewell(process)
            finally:
                _kill(process)
                for stream in (to_session, of_server, to_server, of_session):
                    stream.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await asyncio.gather(*tasks, process.wait(), return_exceptions=True)

    async def _read(self, process: asyncio.subprocess.Process, to_session: Any) -> None:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        much = FetchError(f"the answer is longer than {self.max_bytes} bytes")
        failure = None
        try:
            while line := await process.stdout.readline():
                self.heard = time.monotonic()
                self.left -= len(line)
                if self.left < 0:
                    failure = much
                    break
                await to_session.send(_message(line))
        except ValueError:
            failure = much
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        if failure is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await process.wait()
            failure = FetchError(f"the program has ended (status {process.returncode})")
            said = self.stderr.decode(errors="replace").strip()
            _log.warning("MCP server %r has ended: %s", self.command[0], said)
        self.end(failure)
        to_session.close()

    async def _write(self, process: asyncio.subprocess.Process, of_session: Any) -> None:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        with suppress(OSError):
            async for each in of_session:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()

    async def _keep_stderr(self, process: asyncio.subprocess.Process) -> None:
        """Keep the end of what it says for the log."""
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        while piece := await process.stderr.read(_LONGEST_STDERR):
            self.stderr = (self.stderr + piece)[-_LONGEST_STDERR:]

    async def _farewell(self, process: asyncio.subprocess.Process) -> None:
        """Let it end by itself for a moment, unless it has misbehaved."""
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        process.stdin.close()
        if self.failure is None and process.returncode is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await process.wait()


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError) as error:
        return ValueError(f"a line that is no message ({type(error).__name__})")


def _kill(process: asyncio.subprocess.Process) -> None:
    """End a process and what it has started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__
