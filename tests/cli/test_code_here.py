"""`mail server` finds the swarm's own code in the folder it is started in."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.ports import free_port

GREET = '''
from pydantic import BaseModel
from mail import action
from mail.llm.script import otherwise, say


class Name(BaseModel):
    name: str


@action
async def greet(args: Name) -> str:
    """Greet somebody."""
    return f"Hello, {args.name}!"


HOST = [otherwise(say("Welcome."))]
'''
SWARM = {
    "name": "tiny",
    "version": "1.0.0",
    "entrypoint": "host",
    "agents": [
        {
            "name": "host",
            "factory": "python::mail.factories:LiteLLMSupervisorFunction",
            "comm_targets": [],
            "actions": ["greet"],
            "enable_entrypoint": True,
            "can_complete_tasks": True,
            "agent_params": {"llm": "scripted/greet:HOST", "use_proxy": False},
        }
    ],
    "actions": [],
    "action_imports": ["python::greet:greet"],
}


@pytest.mark.e2e
def test_modules_beside_the_swarms_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text(GREET)
    (tmp_path / "swarms.json").write_text(json.dumps([SWARM]))
    mail = str(Path(sys.executable).with_name("mail"))
    port = str(free_port())
    flags = ["--host", "127.0.0.1", "--port", port, "--store", "memory://"]
    server = subprocess.Popen(
        [mail, "server", "-n", "tiny", "-s", "swarms.json", *flags],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 90
        ping = [mail, "ping", f"http://127.0.0.1:{port}"]
        while subprocess.run(ping, capture_output=True, check=False).returncode:
            assert server.poll() is None, server.communicate()[1].decode()
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        server.terminate()
        server.communicate(timeout=90)
    assert server.returncode == 0
