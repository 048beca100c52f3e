"""The parts of commands, on top of click: those of ``mail``, and those of its prompt."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import click

from mail.core.suggest import did_you_mean

Namespace = SimpleNamespace
Run = Callable[..., Any]
Sections = Mapping[str, Mapping[str, tuple[str, click.Command]]]


def argument(name: str, told: str = "", **more: Any) -> click.Argument:
    """Return an argument, and what the help tells of it."""
    return click.Argument([name], help=told, **more)


def option(*names: str, told: str, **more: Any) -> click.Option:
    """Return an option, and what the help tells of it."""
    return click.Option(names, help=told, **more)


def flag(*names: str, told: str, **more: Any) -> click.Option:
    """Return an option without a value."""
    return click.Option(names, is_flag=True, help=told, **more)


def positive(text: str) -> float:
    """Read an argument that is a finite number above 0.

    Raises:
        click.BadParameter: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise click.BadParameter("must be a number above 0")
    return value


COUNT = click.IntRange(1, 10**18)
HELP = ("-h", "--help")
JSON = flag("--json", told="print JSON")
CONFIG = option("-c", "--config", metavar="PATH", told="configuration file (default: mail.toml)")


class Command(click.Command):
    """A command whose function gets its arguments as the attributes of one object.

    At a prompt, a command with ``slash`` begins with one: without, the line is a message. There,
    what stands after the first ``free`` arguments is a text that needs no quotation marks.
    ``doing`` is what it does in the words of an error: ``getting tasks``.
    """

    def __init__(
        self,
        names: str,
        run: Run,
        params: Iterable[click.Parameter],
        summary: str = "",
        doing: str = "",
        **more: Any,
    ) -> None:
        name, *self.aliases = names.split()
        self.names = (name, *self.aliases)
        self.slash: bool = more.pop("slash", False)
        self.free: int | None = more.pop("free", None)
        self.run, self.doing, self.summary = run, doing, summary
        super().__init__(name, callback=run, params=list(params), help=sentence(summary), **more)

    @property
    def arguments(self) -> list[click.Parameter]:
        """The values at its place, without an option."""
        return [param for param in self.params if param.param_type_name == "argument"]

    @property
    def first(self) -> str | None:
        """The name of the first value without an option."""
        return self.arguments[0].name if self.arguments else None

    @property
    def most(self) -> float:
        """The largest number of values without an option."""
        return sum(math.inf if param.nargs < 0 else 1 for param in self.arguments)

    @property
    def flags(self) -> dict[str, Sequence[str]]:
        """Its options by their names, with the values that they may have."""
        found: dict[str, Sequence[str]] = dict.fromkeys(HELP, ())
        for param in self.params:
            if param not in self.arguments:
                values = getattr(param.type, "choices", ())
                found |= dict.fromkeys((*param.opts, *param.secondary_opts), values)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        return self.run(Namespace(**ctx.params))

    def read(self, words: Sequence[str], parent: click.Context | None = None) -> Namespace:
        """Return the arguments in words, and the command itself."""
        slash = "/" if self.slash and parent is not None and parent.obj else ""
        with self.make_context(f"{slash}{self.name}", list(words), parent=parent) as ctx:
            return Namespace(command=self, **ctx.params)


class Group(click.Group):
    """A command with subcommands.

    Args:
        sections: The help's lists: by the title of a section the names of commands, each with
            its summary.
        more: Further arguments of click.
    """

    def __init__(
        self, sections: Sections | None = None, *, name: str | None = None, **more: Any
    ) -> None:
        super().__init__(name, no_args_is_help=False, **more)
        self.sections = sections or {}
        for part in self.sections.values():
            for each, (summary, made) in part.items():
                made.help = made.help or sentence(summary)
                self.add_command(made, each)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of its commands in their order."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one: ``validate`` is a command of ``swarms``."""
        name = args[0]
        if name[:1] == "-" or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        raise click.UsageError(self.unknown(ctx, name))

    def unknown(self, ctx: click.Context, name: str) -> str:
        """Return what to say of a command that there is not."""
        inside = [
            f"'mail {each} {name}'"
            for each, group in self.commands.items()
            if isinstance(group, Group) and name in group.commands
        ]
        meant = f" Did you mean {' or '.join(inside)}?" if inside else ""
        meant = meant or did_you_mean(name, self.commands)
        return f"there is no command {name!r}.{meant} `{ctx.command_path}` lists the commands"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by their sections."""
        for title, part in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, (summary, _) in part.items()])
        if not self.sections:
            super().format_commands(ctx, formatter)

    def add(
        self, name: str, summary: str, *params: click.Parameter, **more: Any
    ) -> Callable[[Run], Command]:
        """Make a subcommand of a function."""

        def made(run: Run) -> Command:
            command = Command(name, run, params, summary, **more)
            self.add_command(command)
            return command

        return made


def command(
    *params: click.Parameter, kind: type[Command] = Command, **more: Any
) -> Callable[[Run], Command]:
    """Make a command of a function; `mail.cli.commands` has its name and its summary."""
    return lambda run: kind("command", run, params, **more)


def sentence(text: str) -> str:
    """Return a summary as a sentence."""
    return f"{text[0].upper()}{text[1:]}." if text else ""


def mistake(error: click.UsageError) -> str:
    """Return what is wrong with a command line, in a line, and which help explains it."""
    text = error.format_message()
    if isinstance(error, click.NoSuchOption):  # click would name all that are a little like it
        text = error.message + did_you_mean(error.option_name, error.possibilities or ())
    text = f"{text[0].lower()}{text[1:]}"
    if error.ctx is None:
        return text
    end = "" if text[-1] in ".?" else "."
    return f"{text}{end} `{error.ctx.command_path} --help` explains it"
