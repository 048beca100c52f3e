"""One swarm behind a real server: ask it a question, watch every event, see the answer.

Starts ``mail server`` on a free loopback port with one of the swarms of ``swarms.json``, asks it
through `mail.client.MAILClient`, and stops it again. Offline unless ``--llm`` names a model.
"""

import argparse
import asyncio
import json
import os
import sys
from functools import partial
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

TASK = "single-swarm-demo"
QUESTIONS = {
    "example": "What will the weather be in Paris tomorrow, and what is 17 * 23?",
    "example-no-proxy": "What will the weather be in Paris tomorrow, and what is 17 * 23?",
    "consulting": (
        "We have 200 orders a week, growing 8 percent a month. What should we plan for in 12 "
        "months?"
    ),
    "research": "Why are spring tides so large, and how do salt marshes protect the coast?",
    "support": "My blanket from order A-1003 has a hole. I would like a refund.",
    "data_analysis": "How much cargo came in, and which quay had more?",
}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("question", nargs="?", help="what to ask (default: one for the swarm)")
    parser.add_argument(
        "--swarm", default="example-no-proxy", choices=QUESTIONS, help="default: %(default)s"
    )
    parser.add_argument(
        "--llm",
        metavar="MODEL",
        default=os.environ.get("MAIL_LLM"),
        help="a model for all agents, in place of the swarm's own; default: MAIL_LLM",
    )
    parser.add_argument(
        "--decision",
        default="approved",
        help="the answer to a call that waits for a person (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="default: %(default)s"
    )
    return parser.parse_args()


def tell(data: dict[str, Any]) -> str:
    """Return what an event says, on one line: of a message, who wrote what to whom."""
    message = data.get("extra_data", {}).get("full_message", {}).get("message")
    if message is None:
        return short(data.get("description") or data.get("response") or "")
    recipients = message.get("recipients") or [message["recipient"]]
    names = ", ".join(recipient["address"] for recipient in recipients)
    return short(
        f"{message['sender']['address']} → {names} [{message['subject']}] {message['body']}"
    )


async def follow(client: MAILClient, body: str, **options: Any) -> dict[str, Any]:
    """Post a message, print the task's events as they come, and return the last one's data."""
    posting = client.post_message_stream(body, subject="A question", task_id=TASK, **options)
    async with await posting as stream:
        async for event in stream:
            data: dict[str, Any] = json.loads(event.data or "{}")
            print(f"{event.id or '':>4}  {event.event or '':<26} {tell(data)}", flush=True)
            if event.event == "task_error":
                raise DemoFailedError(f"the task failed: {data.get('response')}")
            if event.event == "task_complete":
                return data
    raise DemoFailedError("the stream ended without an answer")


async def converse(client: MAILClient, options: argparse.Namespace) -> str:
    """Ask the question, answer what waits for a person, and return the swarm's answer."""
    question = options.question or QUESTIONS[options.swarm]
    headline(f"Asking: {question}")
    last = await follow(client, question)
    while last.get("status") == "paused":
        headline(f"A person is asked, and answers: {options.decision}")
        results = []
        for opened in last["breakpoints"]:
            print(f"{opened['name']} {opened['arguments']}")
            results.append({"call_id": opened["call_id"], "content": options.decision})
        last = await follow(
            client,
            "",
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=results,
        )
    return str(last["response"])


async def demo(options: argparse.Namespace, folder: Path) -> None:
    """Run the whole demonstration in a folder."""
    source = with_model(options.llm, folder)
    place = Place(folder, free_port(), swarm=options.swarm, source=source)
    headline(f"Starting the swarm '{place.swarm}' at {place.url}")
    print(f"model: {options.llm or 'as swarms.json says'}")
    async with server(place):
        token = await make_token(place)
        config = ClientConfig(timeout=60.0, verbose=False)
        async with MAILClient(place.url, token, config=config) as client:
            answer = await converse(client, options)
            headline("Answer")
            print(answer)


if __name__ == "__main__":
    given = arguments()
    sys.exit(asyncio.run(run_in_folder(partial(demo, given), given.timeout)))
