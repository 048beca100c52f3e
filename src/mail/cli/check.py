"""``mail server --check``: check everything that the server needs to start.

All parts are checked, even if an earlier one fails. Nothing is changed: no database, table,
folder or file is created.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mail.cli import check_parts as parts
from mail.cli.check_parts import Finding
from mail.cli.check_settings import check_settings
from mail.cli.code_path import find_code
from mail.cli.exits import DONE
from mail.cli.flags import in_flags
from mail.cli.plain import cleaned
from mail.cli.swarms import stdout_to_stderr

__all__ = ["check_server"]


def check_server(flags: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> int:
    """Check everything and print a line for each finding.

    Args:
        flags: The values of the flags, by table of ``mail.toml``.
        as_json: Print one JSON object instead: ``ok`` and ``checks``.

    Returns:
        0 if the server could start, 2 if a setting is invalid, 1 for any other error.
    """
    with stdout_to_stderr(), _silent():
        config, findings = check_settings(flags)
        find_code(Path.cwd(), Path(config.swarm.source).parent)
        findings += parts.check_environment()
        findings += parts.check_swarm(config)
        store = parts.check_store(config)
        findings += store.findings
        findings += parts.check_auth(store)
        findings += parts.check_address(config)
        findings += parts.check_logs(Path("logs"))
    _print(findings, as_json=as_json)
    return max((found.code for found in findings if found.status == "error"), default=DONE)


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress log lines, which the findings replace, and compiled modules."""
    before, nowhere = sys.dont_write_bytecode, logging.NullHandler()
    logging.getLogger().addHandler(nowhere)  # so that the handler of last resort prints nothing
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)
        sys.dont_write_bytecode = before


def _print(findings: list[Finding], *, as_json: bool) -> None:
    from mail.logs.redaction import redact

    lines = [
        (f.status, f.part, cleaned(" ".join(redact(in_flags(f.text)).split()))) for f in findings
    ]
    if as_json:
        checks = [{"status": status, "part": part, "text": text} for status, part, text in lines]
        ok = all(status != "error" for status, _, _ in lines)
        print(json.dumps({"ok": ok, "checks": checks}, indent=2))
        return
    for status, part, text in lines:
        print(f"{status:<8} {part:<13} {text}")
