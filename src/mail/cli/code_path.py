"""The folders in which modules named by a swarm are found, besides the installed ones."""

import sys
from pathlib import Path

__all__ = ["find_code"]


def find_code(*folders: Path) -> None:
    """Add folders to the module search path, the first one first, as `python -m` does.

    Args:
        folders: The current folder and the folder of the swarms file.
    """
    for folder in reversed(folders):
        name = str(folder.resolve())
        if name not in sys.path:
            sys.path.insert(0, name)
