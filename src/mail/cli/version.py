"""``mail version``."""

import argparse

from mail.version import get_protocol_version, get_version

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print the versions."""
    print(f"MAIL reference implementation version: {get_version()}")
    print(f"MAIL protocol version: {get_protocol_version()}")
    print("(a package of version `x.y.z` speaks protocol version `x.y`)")
    return 0
