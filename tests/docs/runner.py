"""Run a page's python blocks, one after the other in one namespace; a process of its own.

::

    python -m tests.docs.runner PAGE

``TOKEN`` and ``MAIL_URL`` in the environment name a running server. They stand in for the
``mail_…`` and ``http://localhost:8000`` of the pages, and ``client`` is a client of that server.
A block may use ``await`` at its top level.
"""

import ast
import asyncio
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from tests.docs.pages import Block, blocks

_URL = "http://localhost:8000"


async def _client() -> Any:
    from mail.client import MAILClient

    return MAILClient(os.environ["MAIL_URL"], api_key=os.environ["TOKEN"])


def _run(block: Block, runner: asyncio.Runner, namespace: dict[str, Any]) -> None:
    text = block.code.replace("mail_…", os.environ["TOKEN"]).replace(_URL, os.environ["MAIL_URL"])
    source = "\n" * block.line + text  # so that a traceback names the page's own lines
    code = compile(source, block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, namespace)  # noqa: S307 - our own documentation
    if inspect.iscoroutine(result):
        runner.run(result)


def main(page: Path) -> None:
    """Run the page."""
    found = [block for block in blocks(page, "python") if not block.skipped]
    namespace: dict[str, Any] = {"__name__": "page"}
    with asyncio.Runner() as runner:
        if any("client" in block.code for block in found):
            namespace["client"] = runner.run(_client())
        for block in found:
            sys.stderr.write(f"--- {block.place}\n")
            _run(block, runner, namespace)
        if "client" in namespace and hasattr(namespace["client"], "aclose"):
            runner.run(namespace["client"].aclose())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
