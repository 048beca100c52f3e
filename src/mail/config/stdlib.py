"""Settings of the library's ready-made actions: the ``[stdlib]`` tables of ``mail.toml``.

They are read when an action is called, so a change of the file needs no restart.
"""

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from mail.config.toml import FileBacked

__all__ = ["FsConfig", "HttpConfig", "StdlibConfig"]

_MEBIBYTE: Final = 1024 * 1024


def _check_folder(value: str) -> str:
    if "\0" in value:
        raise ValueError("a folder name must not contain NUL characters")
    try:
        Path(value).expanduser()
    except RuntimeError:
        raise ValueError(
            "'~' cannot be resolved to a home folder here; use an absolute path"
        ) from None
    return value


class FsConfig(FileBacked):
    """``[stdlib.fs]``: the folder that file actions work in, and how large a file may be.

    ``root`` counts from the folder in which the program was started; the first write makes it.
    Each caller has a folder of its own in it, unless it is ``shared``. ``max_bytes`` holds for
    reading and for writing.
    """

    table = "stdlib.fs"

    root: Annotated[str, Field(min_length=1), AfterValidator(_check_folder)] = "workspace"
    shared: bool = False
    max_bytes: Annotated[int, Field(ge=1)] = _MEBIBYTE


class HttpConfig(FileBacked):
    """``[stdlib.http]``: where the http, mcp and interswarm actions may go, and for how long.

    ``allow`` names hosts, ``host:port``, addresses and networks that may be reached although they
    are not public. ``timeout`` is seconds for a whole call, ``max_bytes`` how much of an answer is
    read.
    """

    table = "stdlib.http"

    allow: list[str] = Field(default_factory=list)
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    max_bytes: Annotated[int, Field(ge=1)] = _MEBIBYTE


class StdlibConfig(FileBacked):
    """``[stdlib]``: the tables of all ready-made actions."""

    table = "stdlib"
    nested = frozenset({"fs", "http"})

    fs: FsConfig = Field(default_factory=FsConfig)
    http: HttpConfig = Field(default_factory=HttpConfig)
