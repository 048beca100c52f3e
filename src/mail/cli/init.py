"""``mail init``: create a project that runs offline: a swarm, an action and tests."""

import importlib.util
import shlex
from importlib import resources
from pathlib import Path
from typing import Final

from mail.cli.common import tell
from mail.cli.table import JSON, Namespace, argument, command
from mail.errors import ConfigError

_FILES: Final = (
    "mail.toml",
    "swarms.json",
    "actions.py",
    "model.py",
    "test_swarm.py",
    "README.md",
    ".env.example",
    ".gitignore",
)
_NEXT: Final = """
Start the server:

{enter}    mail server

In a second terminal, in the same folder and environment, create a token and ask:

{enter}    export MAIL_API_KEY=$(mail token create --role user --id me)
    mail client http://localhost:8000 message "How many apples are left?"

Run the tests, which need neither the server nor a model:

{install}    pytest

model.py selects the model; README.md explains the files."""


@command(
    argument(
        "folder",
        "where to create the project (default: the current folder)",
        type=Path,
        default=Path(),
    ),
    JSON,
)
def run(arguments: Namespace) -> int:
    """Write the files of the project and print the next commands."""
    folder: Path = arguments.folder
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"'{folder}' is not a folder; name another one: mail init my-swarm")
    taken = [name for name in _FILES if (folder / name).exists()]
    if taken:
        raise ConfigError(
            f"{', '.join(taken)} in '{folder}' would be overwritten, so nothing was written; "
            "name another folder: mail init my-swarm"
        )
    templates = resources.files("mail.cli").joinpath("project")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        text = templates.joinpath(f"{name.removeprefix('.')}.txt").read_text("utf-8")
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
    enter = "" if folder.resolve() == Path.cwd() else f"    cd {shlex.quote(str(folder))}\n"
    install = "" if importlib.util.find_spec("pytest") else "    pip install pytest\n"
    told = f"created in {folder.resolve()}: {', '.join(_FILES)}"
    answer = {"folder": str(folder.resolve()), "files": _FILES}
    return tell(arguments, answer, told, _NEXT.format(enter=enter, install=install))
