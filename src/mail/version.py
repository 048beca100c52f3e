"""The version of this package and of the protocol it speaks, known without reading any file."""

from typing import Final

VERSION: Final = "1.3.6"
PROTOCOL_VERSION: Final = "1.3"


def get_version() -> str:
    """Return the package version, for example ``"1.3.6"``."""
    return VERSION


def get_protocol_version() -> str:
    """Return the protocol version: the first two parts of the package version."""
    return PROTOCOL_VERSION
