"""A program written against 1.3.6 as first released. Nothing in it is to change.

It runs in an empty folder; the last line that it prints is what it saw, as JSON.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from mail import MAILSwarmTemplate
from mail.client import MAILClient
from mail.config import ClientConfig
from mail.errors import ClientHTTPError
from mail.utils import get_protocol_version, get_version
from mail.utils.openai import SwarmOAIClient
from mail.utils.parsing import read_python_string

HERE = Path(__file__).parent
QUESTION = "How many apples are there?"


async def library() -> dict[str, object]:
    template = MAILSwarmTemplate.from_swarm_json_file("stockroom", str(HERE / "swarms.json"))
    swarm = template.instantiate({}, user_id="me")
    message, events = await swarm.post_message_and_run(QUESTION, show_events=True)
    await swarm.shutdown()
    client = SwarmOAIClient(template)
    answer = await client.responses.create(input=QUESTION)
    return {
        "library": message["message"]["body"],
        "events": bool(events),
        "responses": answer.output_text,
    }


def mail(*words: str) -> str:
    command = [sys.executable, "-m", "mail.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def start(port: int) -> "subprocess.Popen[bytes]":
    flags = ["--port", str(port), "--swarm-name", "stockroom"]
    flags += ["--swarm-source", str(HERE / "swarms.json"), "--store", "sqlite:///mail.db"]
    return subprocess.Popen(
        [sys.executable, "-m", "mail.cli", "server", *flags],
        stdout=subprocess.DEVNULL,
        stderr=sys.stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
    )


def stop(server: "subprocess.Popen[bytes]") -> None:
    server.send_signal(signal.SIGTERM)
    server.wait(30)


async def answering(client: MAILClient) -> None:
    for _ in range(600):
        try:
            await client.ping()
        except ClientHTTPError:
            await asyncio.sleep(0.1)
        else:
            return
    raise TimeoutError("the server did not start")


async def over_http() -> dict[str, object]:
    kept = socket.socket()  # holds the port for the servers of this run
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port = kept.getsockname()[1]
    token = mail("token", "create", "--role", "user", "--id", "me", "--store", "sqlite:///mail.db")
    url = f"http://127.0.0.1:{port}"
    config = ClientConfig(timeout=60.0)
    server = start(port)
    try:
        async with MAILClient(url=url, api_key=token, config=config) as client:
            await answering(client)
            who = await client.get_whoami()
            stream = await client.post_message_stream(QUESTION, task_id="t-1")
            kinds = [event.event async for event in stream if event.event != "ping"]
            answer = await client.post_message(body=QUESTION, subject="Stock", task_id="t-2")
    finally:
        stop(server)
    server = start(port)
    try:
        async with MAILClient(url, token, config=config) as client:
            await answering(client)
            task = await client.get_task("t-1")
    finally:
        stop(server)
    return {
        "http": answer["response"],
        "kinds": kinds,
        "after restart": task["status"],
        "caller": who["role"],
    }


def main() -> None:
    sys.path.insert(0, str(HERE))
    assert get_version().startswith(get_protocol_version())
    assert read_python_string("stock:count_stock").name == "count_stock"
    seen = {**asyncio.run(library()), **asyncio.run(over_http())}
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
