"""Import each module in a process that has imported no other; started by test_imports.py.

The modules come as arguments. One bare interpreter forks a child per module, two at a time: a new
interpreter for each would take minutes. What other projects ship is loaded once, before the forks.
Prints one line per module that cannot be imported, and exits with 1 if there is one.
"""

import importlib
import os
import sys
import traceback

OTHERS = (
    "pydantic",
    "fastapi",
    "uvicorn",
    "jsonschema",
    "aiohttp",
    "httpx",
    "sse_starlette",
    "mcp",
)
AT_ONCE = 2


def import_in_child(name: str) -> int:
    """Fork a child that imports one module; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - whatever stops the import is to be reported
        sys.stdout.write(f"{name}: {traceback.format_exc().splitlines()[-1]}\n")
        sys.stdout.flush()
        os._exit(1)
    os._exit(0)


def main(names: list[str]) -> int:
    """Import every module; return 1 if any of them failed."""
    for other in OTHERS:
        importlib.import_module(other)
    assert not [name for name in sys.modules if name.partition(".")[0] == "mail"]
    failed = running = 0
    for name in names:
        if running == AT_ONCE:
            failed += os.wait()[1] != 0
            running -= 1
        import_in_child(name)
        running += 1
    for _ in range(running):
        failed += os.wait()[1] != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
