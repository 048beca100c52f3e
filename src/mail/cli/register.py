"""``mail register``: register ``mail client`` as the handler of ``swarm://`` links.

On Linux this follows the XDG specifications: it writes a desktop entry for the scheme and makes it
the default with ``xdg-mime`` or, without that program, directly in ``mimeapps.list``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from mail.cli.common import FAILED, tell
from mail.cli.table import JSON, Namespace, command
from mail.config.env import base_folder

DESKTOP_FILE: Final = "mail-swarm.desktop"
MIME_TYPE: Final = "x-scheme-handler/swarm"
_DEFAULTS: Final = "[Default Applications]"
_XDG_SECONDS: Final = 30

_INFO_PLIST: Final = """\
macOS opens links only with app bundles. Make one (for example with Automator: "Run Shell Script",
`{command} "$1"`), and add this to its Contents/Info.plist:

<key>CFBundleURLTypes</key>
<array>
  <dict>
    <key>CFBundleURLName</key>
    <string>MAIL Client</string>
    <key>CFBundleURLSchemes</key>
    <array>
      <string>swarm</string>
    </array>
  </dict>
</array>

Then move the app to /Applications and open it once.
"""
_POWERSHELL: Final = """\
Run this in PowerShell as Administrator:

New-Item -Path "HKLM:\\SOFTWARE\\Classes\\swarm" -Force
Set-ItemProperty -Path "HKLM:\\SOFTWARE\\Classes\\swarm" -Name "(Default)" -Value "URL:MAIL Client"
Set-ItemProperty -Path "HKLM:\\SOFTWARE\\Classes\\swarm" -Name "URL Protocol" -Value ""
New-Item -Path "HKLM:\\SOFTWARE\\Classes\\swarm\\shell\\open\\command" -Force
Set-ItemProperty -Path "HKLM:\\SOFTWARE\\Classes\\swarm\\shell\\open\\command" `
  -Name "(Default)" -Value '{command} "%1"'
"""


_PLAIN: Final = Namespace(json=False)


@command(JSON)
def run(arguments: Namespace) -> int:
    """Register the handler on this system."""
    return register(sys.platform, arguments)


def register(platform: str, arguments: Namespace = _PLAIN) -> int:
    """Register on a platform, named as in ``sys.platform``, or print how to do it there."""
    if platform.startswith("linux"):
        return _register_linux(arguments)
    guide = {"darwin": _INFO_PLIST, "win32": _POWERSHELL, "cygwin": _POWERSHELL}.get(platform)
    if guide is None:
        tell(arguments, {"registered": False}, f"Unsupported platform: {platform}")
        return FAILED
    words = [f'"{word}"' if " " in "".join(_command()) else word for word in _command()]
    text = guide.format(command=" ".join([*words, "client"]))
    return tell(arguments, {"registered": False, "guide": text}, text.rstrip("\n"))


def _register_linux(arguments: Namespace) -> int:
    file = base_folder("XDG_DATA_HOME", ".local/share") / "applications" / DESKTOP_FILE
    lines = [f"Created {file}", "Registered as default handler for swarm:// URLs"]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_desktop_entry(), encoding="utf-8")
        _make_default()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        lines = [*lines[: file.exists()], f"Error registering handler: {error}"]
        lines.append(f"By hand: xdg-mime default {DESKTOP_FILE} {MIME_TYPE}")
        tell(arguments, {"registered": False, "error": str(error)}, *lines)
        return FAILED
    return tell(arguments, {"registered": True, "file": str(file)}, *lines)


def _desktop_entry() -> str:
    command = " ".join(_exec_quoted(word) for word in _command())
    return (
        "[Desktop Entry]\n"
        "Type=Application\n"
        "Name=MAIL Client\n"
        "Comment=Talk to a MAIL server\n"
        f"Exec={command} client %u\n"
        f"MimeType={MIME_TYPE};\n"
        "Terminal=true\n"
        "NoDisplay=true\n"
    )


def _make_default() -> None:
    program = shutil.which("xdg-mime")
    if program is None:
        _write_default(base_folder("XDG_CONFIG_HOME", ".config") / "mimeapps.list")
        return
    subprocess.run(  # noqa: S603 - a fixed command line
        [program, "default", DESKTOP_FILE, MIME_TYPE], check=True, timeout=_XDG_SECONDS
    )


def _write_default(file: Path) -> None:
    """Add our line to ``mimeapps.list``; all other lines stay as they are."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    kept, inside = [], False
    for line in lines:
        inside = line.strip() == _DEFAULTS if line.strip().startswith("[") else inside
        if not (inside and line.partition("=")[0].strip() == MIME_TYPE):
            kept.append(line)
    if _DEFAULTS not in map(str.strip, kept):
        kept += ["", _DEFAULTS] if kept else [_DEFAULTS]
    place = [line.strip() for line in kept].index(_DEFAULTS)
    kept.insert(place + 1, f"{MIME_TYPE}={DESKTOP_FILE}")
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    scratch.write_text("\n".join(kept) + "\n", encoding="utf-8")
    scratch.replace(file)


def _command() -> list[str]:
    """Return the command that starts this program; launchers do not know virtual environments."""
    beside = Path(sys.executable).with_name("mail")
    found = str(beside) if beside.is_file() else shutil.which("mail")
    return [found] if found else [sys.executable, "-m", "mail.cli"]


def _exec_quoted(word: str) -> str:
    """Quote a word for ``Exec=``: use double quotes if needed, and double each ``%``."""
    if "\n" in word:
        raise ValueError("the program's path contains a line break")
    word = word.replace("%", "%%")
    if word.replace("/", "").replace("-", "").replace(".", "").replace("_", "").isalnum():
        return word
    for sign in '\\"`$':
        word = word.replace(sign, f"\\{sign}")
    return '"' + word.replace("\\", "\\\\") + '"'
