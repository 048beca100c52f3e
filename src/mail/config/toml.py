"""Find and read ``mail.toml``, and fill models from its tables.

The file is ``MAIL_CONFIG_PATH``, else ``./mail.toml``, else ``mail.toml`` in a folder above the
installed package; none of them is fine too. A value comes from the argument, else from the file,
else from the model's own default.
"""

import difflib
import logging
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from mail.config.env import CONFIG_PATH, expanded, setting
from mail.core.schema import problem_text
from mail.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_log = logging.getLogger(__name__)

FILE_NAME: Final = "mail.toml"
_TOP_TABLES: Final = ("client", "models", "server", "stdlib")


def find_config_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the configuration file that applies, or None.

    Raises:
        ConfigError: ``MAIL_CONFIG_PATH`` names a file that does not exist, or a home folder that
            does not.
    """
    if value := setting(CONFIG_PATH, environ):
        named = expanded(value, CONFIG_PATH)
        if not named.is_file():
            raise ConfigError(
                f"{CONFIG_PATH} (or --config) names '{named}', which is not a file; "
                "correct the path, or leave it out"
            )
        return named
    folders = [Path.cwd(), *Path(__file__).resolve().parents]
    return next((f / FILE_NAME for f in folders if (f / FILE_NAME).is_file()), None)


def read_config(path: Path | None) -> dict[str, Any]:
    """Return the tables of a configuration file (empty without one).

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has an unknown top-level key.
    """
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: not valid TOML: its values are nested too deeply") from None
    for key in tables:
        if key not in _TOP_TABLES:
            raise ConfigError(f"{path}: unknown key '{key}'{_suggest(key, _TOP_TABLES)}")
    return tables


def fits(test: Callable[[Any], object], problem: str) -> AfterValidator:
    """Return the check that a value passes a test; an error says the problem."""

    def check(value: Any) -> Any:
        if not test(value):
            raise ValueError(problem)
        return value

    return AfterValidator(check)


def typed_problem(item: "ErrorDetails") -> str:
    """Return what an entry of a pydantic error says, and the type of a value of a wrong one."""
    text = problem_text({key: each for key, each in item.items() if key != "input"})
    if item["type"].endswith("_type"):
        return f"{text}, actually got {type(item['input']).__name__}"
    return text


class WrongSettings(ConfigError):
    """Settings that a model does not take: the text is the first mistake.

    Attributes:
        mistakes: All of them.
    """

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__(mistakes[0])
        self.mistakes = tuple(mistakes)


class FileBacked(BaseModel):
    """A frozen model whose missing values come from one table of ``mail.toml``.

    A wrong value raises `ConfigError`, which names the file (or the class, for an argument), the
    key and the expected type, and never repeats the value, because it may hold a password. Keys of
    earlier versions (``gone``) have no effect; a warning names them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    table: ClassVar[str]
    nested: ClassVar[frozenset[str]]
    aliases: ClassVar[Mapping[str, str]] = {}
    gone: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **given: Any) -> None:
        path = find_config_file()
        merged = {**self._file_values(path), **given}
        try:
            super().__init__(**merged)
        except ValidationError as error:
            mistakes = [self._explain(detail, given, path) for detail in error.errors()]
            raise WrongSettings(mistakes) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.nested = frozenset(
            name
            for name, field in cls.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, FileBacked)
        )

    def overrides(self) -> dict[str, Any]:
        """Return what differs from the file and the defaults, with nested tables, as JSON has it.

        ``type(self)(**self.overrides())`` is the same again, or follows the file if that changed.
        """
        filed = type(self)()
        names = type(self).model_fields
        other = {name for name in names if getattr(self, name) != getattr(filed, name)}
        values = self.model_dump(mode="json", include=other - self.nested)
        return values | {key: getattr(self, key).overrides() for key in other & self.nested}

    def place(self, key: str) -> str:
        """Return what gives a value, as errors name it: the key of the file, or the argument."""
        path = find_config_file()
        filed = self._file_values(path)
        if key in filed and filed[key] == getattr(self, key):
            return f"{path}: [{self.table}] '{key}'"
        return f"{type(self).__name__}: '{key}'"

    @classmethod
    def _file_values(cls, path: Path | None) -> dict[str, Any]:
        found: Any = read_config(path)
        for part in cls.table.split("."):
            found = found.get(part, {})
            if not isinstance(found, dict):
                raise ConfigError(f"{path}: '{part}' of [{cls.table}] must be a table")
        values: dict[str, Any] = {}
        for key, value in found.items():
            if key in cls.gone:
                _tell_gone(path, cls.table, key)
                continue
            name = cls.aliases.get(key, key)
            if name in values:
                raise ConfigError(f"{path}: [{cls.table}] '{key}' is set twice")
            if key not in cls.nested:
                values[name] = value
        return values

    @classmethod
    def _explain(cls, detail: "ErrorDetails", given: Mapping[str, Any], path: Path | None) -> str:
        key = str(detail["loc"][0]) if detail["loc"] else ""
        shown = key + "".join(f"[{part}]" for part in detail["loc"][1:] if isinstance(part, int))
        if key in given or path is None:
            place = f"{cls.__name__}: '{shown}'"
        else:
            place = f"{path}: [{cls.table}] '{shown}'"
        if detail["type"] == "extra_forbidden":
            return f"{place} is not a known key{_suggest(key, cls.model_fields)}"
        return f"{place}: {typed_problem(detail)}"


@cache
def _tell_gone(path: Path | None, table: str, key: str) -> None:
    _log.warning("%s: [%s] '%s' has no effect any more; remove it", path, table, key)


def _suggest(key: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(key, names, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known keys: {', '.join(names)}"
