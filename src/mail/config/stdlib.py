"""Settings of the library's ready-made actions: the ``[stdlib]`` tables of ``mail.toml``.

They are read when an action is called, so a change of the file needs no restart.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from mail.config.toml import FileBacked, fits
from mail.errors import ConfigError

_MEBIBYTE: Final = 1024 * 1024
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


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
    reading and for writing. Agents write no more into a workspace that has ``max_total_bytes``, and
    make nothing new in one with ``max_files`` files and folders; 0 lifts each.
    """

    table = "stdlib.fs"

    root: Annotated[str, Field(min_length=1), AfterValidator(_check_folder)] = "workspace"
    shared: bool = False
    max_bytes: Annotated[int, Field(ge=1)] = _MEBIBYTE
    max_total_bytes: Annotated[int, Field(ge=0)] = 1024 * _MEBIBYTE
    max_files: Annotated[int, Field(ge=0)] = 10_000


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


Security = Literal["tls", "starttls", "none"]

_Caller = Annotated[
    str,
    fits(
        re.compile(r"(?:admin|agent|user)(?::\S+)?").fullmatch,
        "must be a role or ROLE:ID, such as 'admin' or 'user:ann'",
    ),
]
_Address = Annotated[
    str,
    fits(
        re.compile(r"[^\s@<>,;:\"\\\x00-\x1f\x7f]+@[A-Za-z0-9.-]+").fullmatch,
        "must be an email address such as 'ann@example.org'",
    ),
]


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, OSError, KeyError):
        raise ValueError("must be the name of a time zone such as 'Europe/Berlin'") from None
    return value


Line = Annotated[str, fits(str.isprintable, "must be one line without control characters")]
Port = Annotated[int, Field(ge=1, le=65535)]


class EmailConfig(FileBacked):
    """``[stdlib.email]``: whose mailbox the email actions use, and where it is.

    ``callers`` are those whose agents may use it, as roles or ``ROLE:ID``; for the backends that
    reach other servers at least one must be named. ``folder`` holds the local mailbox and the
    calendar file. Passwords are in the environment, under the names ``…_password_env``.
    ``timeout`` is seconds for each answer of a server, ``max_bytes`` how much of an email is read.
    """

    table = "stdlib.email"

    backend: Literal["local", "imap", "gmail"] = "local"
    address: _Address = "me@example.org"
    background: str = ""
    timezone: Annotated[str, AfterValidator(_check_zone)] = "UTC"
    callers: list[_Caller] = Field(default_factory=list)
    folder: Annotated[str, Field(min_length=1), AfterValidator(_check_folder)] = "mailbox"
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    max_bytes: Annotated[int, Field(ge=1024)] = 4 * _MEBIBYTE
    imap_host: Line = ""
    imap_port: Port = 993
    imap_security: Security = "tls"
    imap_user: Line = ""
    imap_password_env: Line = "MAIL_IMAP_PASSWORD"  # noqa: S105 - the name of a variable
    imap_mailbox: Line = "INBOX"
    imap_sent: Line = ""
    smtp_host: Line = ""
    smtp_port: Port = 465
    smtp_security: Security = "tls"
    smtp_user: Line = ""
    smtp_password_env: Line = "MAIL_SMTP_PASSWORD"  # noqa: S105 - the name of a variable
    google_token_file: Annotated[str, AfterValidator(_check_folder)] = ""
    google_calendar: Line = "primary"
    google_endpoint: Line = ""

    def check(self) -> None:
        """Check that the backend has the settings that it needs.

        Raises:
            ConfigError: naming the one that is missing.
        """
        needed = {
            "local": (),
            "imap": ("callers", "imap_host", "imap_user", "smtp_host"),
            "gmail": ("callers", "google_token_file"),
        }[self.backend]
        for name in needed:
            if not getattr(self, name):
                raise ConfigError(
                    f"[{self.table}] '{name}' is needed by the backend '{self.backend}'"
                )
        for kind in ("imap", "smtp"):
            host, security = getattr(self, f"{kind}_host"), getattr(self, f"{kind}_security")
            if getattr(self, f"{kind}_user") and security == "none" and host not in _LOOPBACK:
                raise ConfigError(
                    f"[{self.table}] '{kind}_security' must not be 'none': the password would be "
                    "readable on its way"
                )

    def password(self, kind: Literal["imap", "smtp"]) -> str:
        """Return the password for a server, from the environment.

        Raises:
            ConfigError: the variable is not set.
        """
        name = self.imap_password_env if kind == "imap" else self.smtp_password_env
        value = os.environ.get(name, "")
        if not value:
            raise ConfigError(
                f"the environment variable {name} is not set: [{self.table}] needs it"
            )
        return value

    def serves(self, role: str, identifier: str) -> bool:
        """Tell whether the agents of a caller may use the mailbox."""
        if not self.callers:
            return self.backend == "local"
        return role in self.callers or f"{role}:{identifier}" in self.callers


class StdlibConfig(FileBacked):
    """``[stdlib]``: the tables of all ready-made actions."""

    table = "stdlib"

    email: EmailConfig = Field(default_factory=EmailConfig)
    fs: FsConfig = Field(default_factory=FsConfig)
    http: HttpConfig = Field(default_factory=HttpConfig)
