"""LiteLLM is imported by one thread at a time: two would leave each other halves of modules."""

import gc
import subprocess
import sys

from mail.lazy import importing_much

PROGRAM = """
import threading
from mail.llm.litellm_model import load_library, load_parts

broken = []

def load(wire):
    try:
        load_parts([wire])
        load_library().utils
    except Exception as error:
        broken.append(f"{wire}: {error!r}")

wires = ("responses", "completions", "anthropic") * 2
threads = [threading.Thread(target=load, args=(wire,)) for wire in wires]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
import httpx2
httpx2.AsyncClient
print(broken)
"""


def test_threads_that_load_it_at_the_same_time_all_get_the_whole_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=150, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_the_collector_rests_only_while_packages_are_imported() -> None:
    with importing_much():
        with importing_much():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
