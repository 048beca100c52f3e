"""A learner in a process of its own, to be killed: ``python learner_process.py URL LOG``.

Its model adds a line that names the approval, after a moment, and writes each call to the log.
"""

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mail.clock import SystemClock
from mail.db.urls import open_store
from mail.services.learning import Learner

MODEL_SECONDS = 0.02


async def learn(url: str, log: Path) -> None:
    """Take up feedback until killed."""

    async def propose(current: str, messages: Sequence[Mapping[str, Any]]) -> str:
        found = re.search(r"line of (\w+)", str(messages[0]["content"]))
        assert found is not None
        with log.open("a") as file:
            file.write(f"{found[1]}\n")
        await asyncio.sleep(MODEL_SECONDS)
        return f"{current}\nThe line of {found[1]}."

    store = open_store(url, exclusive=False)
    await store.open()
    clock = SystemClock()
    await Learner(
        store=store, swarm=lambda: ("office", {"style": "Be brief."}), clock=clock, propose=propose
    ).run()


if __name__ == "__main__":
    asyncio.run(learn(sys.argv[1], Path(sys.argv[2])))
