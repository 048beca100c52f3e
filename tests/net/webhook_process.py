"""Tasks that end, and what sends their messages, to be killed.

``python webhook_process.py DATABASE URL LOG``: each task that was committed is a line of the log.
"""

import asyncio
import sys
import uuid
from pathlib import Path

from mail.clock import SystemClock
from mail.db.urls import open_store
from mail.net.webhook import WebhookSender, WebhookSettings
from mail.services.webhook import WebhookNews
from tests.support.hooks import EVENTS, SECRET, post


async def work(database: str, url: str, log: Path, tasks: int) -> None:
    """End tasks and send until killed."""
    store, clock = open_store(database, exclusive=False), SystemClock()
    await store.open()
    news = WebhookNews(EVENTS, clock)
    settings = WebhookSettings(
        url=url, secret=SECRET.encode(), allow_private=True, first_pause=0.02, longest_pause=0.05
    )
    sender = WebhookSender(store, lambda: "office", news, settings, clock)
    sending = asyncio.create_task(sender.run())
    for _ in range(tasks):
        ended = post(f"t-{uuid.uuid4()}")
        ended.webhooks = news.told_by(ended)
        await store.commit(ended)
        with log.open("a") as file:
            file.write(f"{ended.webhooks[0].message_id}\n")
        news.wake()
    await sending


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
