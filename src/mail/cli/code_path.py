"""Where the modules that a swarm names are looked for, beside the installed ones."""

import sys
from pathlib import Path

__all__ = ["find_code"]


def find_code(*folders: Path) -> None:
    """Let a swarm name modules of these folders, the first one first, as `python -m` would.

    Args:
        folders: The current folder and that of the swarms file.
    """
    for folder in reversed(folders):
        name = str(folder.resolve())
        if name not in sys.path:
            sys.path.insert(0, name)
