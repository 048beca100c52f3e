"""An MCP server, by hand: ``python mcp_program.py FOLDER`` has the tool ``note``.

``note`` adds a line to ``notes`` in the folder, and then takes as long as ``gates/note`` is there.
Its process ids are in ``programs``. It ends with its standard input.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
START = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "notes", "version": "1"},
}


def add(name, line):
    with (FOLDER / name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def answer(asked):
    result = {
        "initialize": START,
        "tools/list": {"tools": [{"name": "note", "inputSchema": SCHEMA}]},
    }
    found = result.get(asked["method"], {})
    if asked["method"] == "tools/call":
        add("notes", asked["params"]["arguments"]["text"])
        while (FOLDER / "gates" / "note").exists():
            time.sleep(0.01)
        found = {"content": [{"type": "text", "text": "noted"}]}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": found}) + "\n")
    sys.stdout.flush()


add("programs", str(os.getpid()))
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        threading.Thread(target=answer, args=(message,), daemon=True).start()
