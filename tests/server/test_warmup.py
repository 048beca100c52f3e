"""A server loads the library behind its models beside its start, and only when it needs it."""

import json
import subprocess
import sys

import pytest

PROBE = """
import gc, json, sys
from mail.llm.resolve import model_for
from mail.server.run import load_models
model_for(sys.argv[1])
thread = load_models()
if thread is not None:
    thread.join()
print(json.dumps([thread is not None, "litellm" in sys.modules, gc.get_freeze_count() > 100_000]))
"""


@pytest.mark.parametrize(
    ("llm", "loaded"),
    [("openai/gpt-5-mini", True), ("scripted/mail.examples.scripts:SUPERVISOR", False)],
)
def test_the_library_is_loaded_for_agents_that_use_it(llm: str, loaded: bool) -> None:
    command = [sys.executable, "-c", PROBE, llm]
    done = subprocess.run(command, capture_output=True, check=True, timeout=55)
    assert json.loads(done.stdout) == [loaded] * 3
