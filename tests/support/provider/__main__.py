"""The fake provider as a process of its own, which outlives the server under test."""

import argparse
import asyncio
import importlib
import json
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.support.provider.faults import Fault
from tests.support.provider.server import FakeProvider, default_script


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; without ``arguments`` with those of this process."""
    asyncio.run(_main(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.provider")
    parser.add_argument("--port", type=int, default=0, help="0 for any free port")
    parser.add_argument("--port-file", type=Path, help="where to write the port once it listens")
    parser.add_argument("--log", type=Path, help="JSON lines about the requests")
    parser.add_argument("--script", help="<module>:<object>; the default finishes every task")
    parser.add_argument("--key", help="the only API key that is accepted")
    parser.add_argument("--token-delay", type=float, default=0.0, help="seconds per piece")
    parser.add_argument("--proxy", action="store_true", help="be a LiteLLM proxy before Claude")
    parser.add_argument("--personality", default="", help="a provider whose rules hold for all")
    parser.add_argument(
        "--fault", action="append", default=[], help="a Fault as JSON, for one request each"
    )
    return parser


async def _main(options: argparse.Namespace) -> None:
    script = default_script
    if options.script:
        module, _, name = options.script.partition(":")
        script = getattr(importlib.import_module(module), name)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    provider = FakeProvider(
        script,
        port=options.port,
        log=options.log,
        key=options.key,
        token_delay=options.token_delay,
        proxy=options.proxy,
    )
    provider.personality = options.personality
    provider.faults.extend(Fault(**json.loads(text)) for text in options.fault)
    async with provider:
        if options.port_file:
            ready = options.port_file.with_suffix(".tmp")
            ready.write_text(str(provider.port))
            ready.replace(options.port_file)
        await stop.wait()


if __name__ == "__main__":
    main()
