"""Loads what servers and providers need, once, in the process that all of them are forked from.

LiteLLM alone takes seconds to load, and the tests start dozens of servers. A fork with nothing but
modules in it is a process like any other: its own pid, threads, sockets and database handles.
(tests/cli starts ``mail server`` from nothing.)
"""

import gc
import importlib

from mail.llm import litellm_model
from tests.e2e import served

# What a server would import as it starts and at its first task.
_LATER = (
    "anyio._backends._asyncio",
    "jsonschema",
    "litellm.llms.fal_ai.cost_calculator",
    "litellm.proxy.openai_files_endpoints.common_utils",
    "mail.db.postgres.driver",
    "mail.db.sqlite.driver",
    "mail.factories.action",
    "mail.factories.supervisor",
    "tests.e2e.script",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
)

litellm_model.load_parts()
for name in _LATER:
    importlib.import_module(name)
# Else each fork would copy all of this at its first collection.
gc.freeze()

__all__ = ["served"]
