"""Writes `harbour.sql` and `weather.sql` anew: ``python -m tests.core.runtime.old_tasks.write``.

It has been run by the version before tasks had a ledger of open questions; a later one writes
databases that test nothing.
"""

import asyncio
import os
import sqlite3
import tempfile
from pathlib import Path

from mail.core.runtime import RunRequest
from mail.db.urls import open_store
from tests.core.runtime.old_tasks.agents import KINDS, Agents, options
from tests.support.federation import Network, question

EACH = 2


async def main(folder: Path) -> None:
    """Begin the tasks, wait until nothing goes on, and die."""
    async with Network() as network:
        agents, stores = Agents(hanging=True), {}
        for name in ("harbour", "weather"):
            stores[name] = open_store(f"sqlite:///{folder}/{name}.db")
            await stores[name].open()
        harbour = network.add("harbour", agents.harbour, store=stores["harbour"], **options())
        network.add("weather", agents.weather, store=stores["weather"])
        for kind in KINDS:
            for number in range(EACH):
                message = question(f"kind {kind}", f"{kind}-{number}")
                await harbour.runtime().open_run(RunRequest(message=message))
        await asyncio.sleep(5)
        for name in stores:
            with sqlite3.connect(folder / f"{name}.db") as database:
                rows = [line for line in database.iterdump() if _is_row(line)]
            Path(__file__).with_name(f"{name}.sql").write_text("\n".join(rows) + "\n", "utf-8")
        os._exit(0)


def _is_row(line: str) -> bool:
    """Tell whether a line of a dump is a row; schema, its version and indexes are made again."""
    tables = ("schema_version", "sqlite_sequence", "desk_words")
    made = tuple(f'INSERT INTO "{each}' for each in tables)
    return line.startswith('INSERT INTO "') and not line.startswith(made)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
