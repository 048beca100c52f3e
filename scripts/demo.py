"""`make demo`: a swarm of agents answers a question over HTTP, before your eyes.

Everything is real: a server process on a free loopback port, a database, a token, a client that
reads the event stream. Only the language model is scripted, so that it works offline and always
the same. With ``MAIL_LLM=<litellm model>`` (and the provider's key in the environment) that model
thinks instead; ``MAIL_DEMO_LLM`` is for this demo alone. ``litellm_proxy/<model>`` is reached
through the LiteLLM proxy at ``LITELLM_PROXY_API_BASE``, in the name of the demo's user. The exit
code is 0 only if the swarm answered and the server stopped well.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ports import free_port
from serving import (
    DemoFailedError,
    Place,
    headline,
    make_token,
    run_in_folder,
    server,
    short,
    with_model,
)

from mail.client import MAILClient
from mail.config import ClientConfig

QUESTION = "What will the weather be in Paris tomorrow, and what is 17 * 23?"
EXPECTED = "391"
TIME_LIMIT = 300.0


def tell_message(extra: Mapping[str, Any]) -> list[str]:
    """Tell who wrote to whom, and what."""
    message = extra["full_message"]["message"]
    if message["subject"] == "::action_complete::":
        return []  # the prompt that makes the agent go on; the result itself is shown already
    recipients = message.get("recipients") or [message["recipient"]]
    names = ", ".join(recipient["address"] for recipient in recipients)
    first = f"{message['sender']['address']} → {names}   [{short(message['subject'], 60)}]"
    return [first, f"    {short(message['body'])}"]


def tell_tool_call(extra: Mapping[str, Any]) -> list[str]:
    """Tell which tool an agent uses; writing a message is shown by the message itself."""
    name = extra["tool_name"]
    if name.startswith("send_") or name == "task_complete":
        return []
    agent = extra.get("caller", "agent")
    return [f"{agent} uses {name} {short(extra.get('tool_args', {}), 70)}"]


def tell_result(extra: Mapping[str, Any]) -> list[str]:
    """Tell what an action returned."""
    return [f"{extra['tool_name']} returned: {short(extra.get('result', ''))}"]


TELL: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "new_message": tell_message,
    "tool_call": tell_tool_call,
    "action_complete": tell_result,
    "action_error": tell_result,
}
"""Kind of event to the lines that tell it; other kinds are not shown."""


async def show_timeline(client: MAILClient) -> str:
    """Post the question, print the events as they arrive, and return the answer."""
    began = time.monotonic()
    async with await client.post_message_stream(QUESTION, subject="A question") as stream:
        async for event in stream:
            data = json.loads(event.data or "{}")
            tell = TELL.get(event.event or "")
            stamp = f"{time.monotonic() - began:6.2f}s "
            for line in tell(data["extra_data"]) if tell else ():
                print(stamp + line, flush=True)
                stamp = " " * len(stamp)
            if event.event == "task_complete":
                print(f"{stamp}task complete after {event.id} events", flush=True)
                return str(data["response"])
            if event.event == "task_error":
                raise DemoFailedError(f"the task failed: {data.get('response')}")
    raise DemoFailedError("the stream ended without an answer")


async def show_tasks(client: MAILClient) -> None:
    """Print what the server keeps about the caller's tasks."""
    for task_id, task in (await client.get_tasks()).items():
        state = task.get("status", "completed" if task["completed"] else "running")
        print(f"{task_id}  {state}  owner {task['task_owner']}  {task['event_count']} events")


async def demo(folder: Path) -> None:
    """Run the whole demo in a folder."""
    model = os.environ.get("MAIL_DEMO_LLM") or os.environ.get("MAIL_LLM")
    place = Place(folder, free_port(), source=with_model(model, folder))
    headline(f"Starting a MAIL server at {place.url}")
    scripted = "scripted (offline). MAIL_LLM=<litellm model> uses a real one."
    print(f"model: {model or scripted}")
    async with server(place):
        headline("Making an access token (mail token create --role user --id newcomer)")
        token = await make_token(place)
        print(f"{token[:9]}…  (only its hash is stored)")
        config = ClientConfig(timeout=60.0, verbose=False)
        async with MAILClient(place.url, token, config=config) as client:
            swarm = (await client.ping())["swarm"]
            headline(f"Asking the swarm '{swarm['name']}' (POST /message, stream)")
            answer = await show_timeline(client)
            headline("Answer")
            print(answer)
            headline("Tasks (GET /tasks)")
            await show_tasks(client)
        if not model and EXPECTED not in answer:
            raise DemoFailedError(f"the answer lacks {EXPECTED}")


def read_arguments() -> None:
    """Answer ``--help``; the demo has no flags."""
    argparse.ArgumentParser(
        description="A swarm of agents answers a question over HTTP, before your eyes. Offline.",
        epilog="MAIL_LLM=<litellm model> in the environment lets that model think instead.",
    ).parse_args()


async def main() -> int:
    """Run the demo within its time limit; return the exit code."""
    code = await run_in_folder(demo, TIME_LIMIT)
    if code == 0:
        print("\nNext: start a server of your own with docs/quickstart.md.")
    return code


if __name__ == "__main__":
    read_arguments()
    sys.exit(asyncio.run(main()))
