"""Read a Dockerfile, and do what it says in a scratch folder, where no Docker engine runs.

Each stage gets the folder ``root`` in place of ``/``: absolute paths in commands, values and
entry points are mapped into it, so that both stages see the same paths, as in a container. A stage
that is done is moved away; ``COPY --from`` takes files from there.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_CONTINUED = re.compile(r"\\\n")
_ABSOLUTE = re.compile(r"(?<![\w./:-])/(?=\w)(?!dev/null)")
_SQLITE = "sqlite:////"


@dataclass(frozen=True)
class Instruction:
    """One line of a Dockerfile: its word, its flags, and the rest."""

    word: str
    flags: Mapping[str, str]
    rest: str

    @property
    def form(self) -> list[str]:
        """The rest as a JSON list (the exec form)."""
        form = json.loads(self.rest)
        assert isinstance(form, list), self.rest
        return form


def instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for line in _CONTINUED.sub(" ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        flags = {}
        while match := re.match(r"--([a-z-]+)=(\S+)\s+", rest):
            flags[match[1]] = match[2]
            rest = rest[match.end() :]
        found.append(Instruction(word, flags, rest.strip()))
    return found


def sent(context: Path) -> Iterator[str]:
    """Yield the files of the build context that .dockerignore lets pass, relative to it."""
    lines = (context / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in map(str.strip, lines) if line and not line.startswith("#")]
    named = {rule[1:] for rule in rules if rule.startswith("!")}
    for path in sorted(context.rglob("*") if "*" not in rules else _below(context, named)):
        name = path.relative_to(context).as_posix()
        if path.is_file() and not _ignored(name, rules):
            yield name


def _below(context: Path, names: set[str]) -> Iterator[Path]:
    for name in names:
        yield context / name
        yield from (context / name).rglob("*")


def _ignored(name: str, rules: list[str]) -> bool:
    parts = name.split("/")
    prefixes = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    ignored = False
    for rule in rules:
        pattern = rule.removeprefix("!")
        ends = pattern.removeprefix("**/")
        hit = any(fnmatch.fnmatchcase(prefix, pattern) for prefix in prefixes) or (
            ends != pattern and any(fnmatch.fnmatchcase(part, ends) for part in parts)
        )
        if hit:
            ignored = not rule.startswith("!")
    return ignored


@dataclass
class Stage:
    """What a stage has come to."""

    folder: str = "/"
    user: str = "root"
    env: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)


class Builder:
    """Builds an image as a folder.

    Args:
        context: the build context, with its .dockerignore.
        scratch: where ``root`` and the finished stages go.
        base: the environment of the base images.
    """

    def __init__(self, context: Path, scratch: Path, base: Mapping[str, str]) -> None:
        self._context = context
        self._scratch = scratch
        self._base = dict(base)
        self._finished: dict[str, Path] = {}
        self._name = ""
        self.root = scratch / "root"
        self.stage = Stage()
        self.ran: list[str] = []

    def build(self) -> Stage:
        """Carry out the whole Dockerfile; return its last stage."""
        does: dict[str, Callable[[Instruction], None]] = {
            "ARG": lambda _: None,
            "FROM": self._from,
            "WORKDIR": self._workdir,
            "COPY": self._copy,
            "RUN": self._run,
            "ENV": self._env,
            "USER": lambda line: setattr(self.stage, "user", line.rest),
            "EXPOSE": lambda line: self.stage.ports.append(line.rest),
            "VOLUME": lambda line: self.stage.volumes.append(line.rest),
            "ENTRYPOINT": lambda line: setattr(self.stage, "entrypoint", line.form),
            "CMD": lambda line: setattr(self.stage, "command", line.form),
            "HEALTHCHECK": self._healthcheck,
        }
        text = (self._context / "Dockerfile").read_text(encoding="utf-8")
        for line in instructions(text):
            does[line.word](line)
        return self.stage

    def here(self, text: str) -> str:
        """Return a text with the absolute paths in it mapped into the scratch folder."""
        return _ABSOLUTE.sub(f"{self.root}/", text.replace(_SQLITE, f"sqlite:///{self.root}/"))

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a process in the stage."""
        env = dict(self._base)
        for name, value in self.stage.env.items():
            env[name] = self.here(value).replace(f"${name}", self._base.get(name, ""))
        return env

    @property
    def folder(self) -> Path:
        """The working folder of the stage."""
        return Path(self.here(self.stage.folder)) if self.stage.folder != "/" else self.root

    def _from(self, line: Instruction) -> None:
        if self._name:
            self._finished[self._name] = self.root.rename(self._scratch / self._name)
        self._name = line.rest.partition(" AS ")[2] or "final"
        self.root.mkdir()
        self.stage = Stage()

    def _workdir(self, line: Instruction) -> None:
        self.stage.folder = line.rest
        self.folder.mkdir(parents=True, exist_ok=True)

    def _env(self, line: Instruction) -> None:
        for assignment in shlex.split(line.rest):
            name, _, value = assignment.partition("=")
            self.stage.env[name] = value

    def _healthcheck(self, line: Instruction) -> None:
        word, _, form = line.rest.partition(" ")
        assert word == "CMD", line.rest
        self.stage.healthcheck = json.loads(form)

    def _run(self, line: Instruction) -> None:
        self.ran.append(line.rest)
        done = subprocess.run(
            ["sh", "-ec", self.here(line.rest)], cwd=self.folder, env=self.variables,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"RUN {line.rest}\n{done.stdout}"

    def _copy(self, line: Instruction) -> None:
        *sources, target = line.rest.split()
        into = Path(self.here(target)) if target.startswith("/") else self.folder / target
        for source in sources:
            if "from" in line.flags:
                stage = self._finished[line.flags["from"]]
                shutil.copytree(stage / source.lstrip("/"), into, symlinks=True)
            else:
                self._copy_from_context(source.removeprefix("./"), into, target.endswith("/"))

    def _copy_from_context(self, source: str, into: Path, is_folder: bool) -> None:
        names = [
            name
            for name in sent(self._context)
            if name == source or f"/{name}".startswith(f"/{source}/")
        ]
        assert names, f"nothing in the build context is named {source}"
        for name in names:
            inside = os.path.relpath(name, source)
            target = (
                into / (Path(source).name if is_folder else "") if inside == "." else into / inside
            )
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._context / name, target)
