"""A load generator in a process of its own: ``python -m benchmarks.http_load``.

It reads its task as JSON from standard input, and writes what it measured as JSON. It speaks HTTP
over bare sockets, so that it needs far less of the machine than the server that it measures.
"""

import asyncio
import json
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Load", "Measured", "generate", "stall"]

_SECONDS = 120.0
_LARGEST_HEAD = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to ask of a server.

    Attributes:
        url: Where the server is.
        path: The path of every POST.
        tokens: The callers' tokens: one connection for each.
        body: The body of every POST.
        seconds: How long to repeat the request on every connection; 0 asks once, all at the same
            time, and reads the answer as a stream of events.
    """

    url: str
    path: str
    tokens: list[str]
    body: dict[str, Any]
    seconds: float = 0.0


@dataclass
class Measured:
    """What came back.

    Attributes:
        seconds: How long it took.
        waits: Seconds from each request to its answer, or to the first event of its stream.
        refused: Answers with another status than 200.
        wrong: The first such answer.
    """

    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    refused: int = 0
    wrong: str = ""

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.waits) / self.seconds


async def generate(load: Load) -> Measured:
    """Run a load in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.http_load"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    output, _ = await process.communicate(json.dumps(asdict(load)).encode())
    if process.returncode:
        raise RuntimeError("the load generator failed; see its traceback above")
    return Measured(**json.loads(output))


async def stall(url: str, token: str, method: str, path: str, body: str = "") -> socket.socket:
    """Send a request; its answer may fill what the kernel buffers, and there it stops."""
    host, _, port = urlsplit(url).netloc.partition(":")
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(stalled, (host, int(port)))
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    lines += [f"Content-Length: {len(body)}", "", body]
    await loop.sock_sendall(stalled, "\r\n".join(lines).encode())
    return stalled


async def _run(load: Load) -> Measured:
    host, _, port = urlsplit(load.url).netloc.partition(":")
    measured = Measured()
    connections = [
        await asyncio.open_connection(host, int(port), limit=_LARGEST_HEAD) for _ in load.tokens
    ]
    requests = [_request(load, token) for token in load.tokens]
    began = time.perf_counter()
    work = _stream if load.seconds == 0 else _repeat
    async with asyncio.timeout(_SECONDS), asyncio.TaskGroup() as group:
        for connection, request in zip(connections, requests, strict=True):
            group.create_task(work(connection, request, began + load.seconds, measured))
    measured.seconds = time.perf_counter() - began
    for _, writer in connections:
        writer.close()
    return measured


def _request(load: Load, token: str) -> bytes:
    body = json.dumps(load.body)
    lines = [
        f"POST {load.path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", body]).encode()


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _repeat(
    connection: _Connection, request: bytes, until: float, measured: Measured
) -> None:
    reader, writer = connection
    while (began := time.perf_counter()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        measured.waits.append(time.perf_counter() - began)
        _check(head, body, measured)


async def _stream(
    connection: _Connection, request: bytes, until: float, measured: Measured
) -> None:
    reader, writer = connection
    began = time.perf_counter()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        _check(head, await reader.readexactly(_length(head)), measured)
        return
    await reader.readuntil(b"data:")
    measured.waits.append(time.perf_counter() - began)
    await reader.readuntil(b"\r\n0\r\n\r\n")


def _length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0])


def _check(head: bytes, body: bytes, measured: Measured) -> None:
    if not head.startswith(b"HTTP/1.1 200"):
        measured.refused += 1
        measured.wrong = measured.wrong or f"{head[:12].decode()} {body[:200].decode()}"


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(_run(Load(**json.load(sys.stdin)))))))
