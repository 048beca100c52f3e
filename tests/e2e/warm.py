"""Loads what a server process needs, once, in the process that all of them are forked from.

LiteLLM alone takes seconds to load, and the tests start dozens of servers. A fork with nothing but
modules in it is a process like any other: its own pid, threads, sockets and database handles.
(tests/cli starts ``mail server`` from nothing.)
"""

from mail.llm import litellm_model
from tests.e2e import served

litellm_model.load_library()

__all__ = ["served"]
