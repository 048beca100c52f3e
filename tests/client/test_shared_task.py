"""Two callers in one running task: each stream ends with the answer to its own message."""

import asyncio
import json

from aiohttp import web
from aiohttp.test_utils import TestServer

from mail.client import MAILClient

EVENTS = [
    ("1", "new_message", {"task_id": "t", "description": "mine", "extra_data": {}}),
    ("2", "task_complete", {"task_id": "t", "response": "the other caller's answer"}),
    ("3", "task_complete", {"task_id": "t", "response": "my answer"}),
]


async def answer(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number, kind, data in EVENTS:
        frame = f"id: {number}\r\nevent: {kind}\r\ndata: {json.dumps(data)}\r\n\r\n"
        await response.write(frame.encode())
        await asyncio.sleep(0)
    return response


async def test_a_stream_goes_on_past_the_end_of_another_callers_run() -> None:
    app = web.Application()
    app.router.add_post("/message", answer)
    async with TestServer(app) as server, MAILClient(str(server.make_url("/")), "key") as client:
        stream = await client.post_message_stream("mine", task_id="t")
        answers = [
            json.loads(e.data)["response"] async for e in stream if e.event == "task_complete"
        ]
    assert answers == ["the other caller's answer", "my answer"]
