"""The table of models, read from ``models.toml`` beside this module.

Docs: ``docs/models.md``; `mail.llm.profiles.Profile` says what the fields mean.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table: which models it is about, and what is known of them.

    Attributes:
        id: Its name.
        example: The name of one of its models.
        models: All of them in words, for people.
        provider: A pattern of the whole name of LiteLLM's provider, in lower case.
        model: A pattern of a part of the model's name without provider and proxy, in lower case.
        fields: Fields of a `mail.llm.profiles.Profile`.
        source: Where the facts come from.
        checked: When they were looked up (ISO date).
        tested: How the row is tested: against a strict ``fake`` provider, or by the ``request``.
    """

    id: str
    example: str
    models: str
    provider: str = ".*"
    model: str = ""
    fields: Mapping[str, Any]
    source: str
    checked: str
    tested: Literal["fake", "request"] = "fake"

    def fits(self, provider: str, name: str) -> bool:
        """Tell whether the row is about a model."""
        if re.fullmatch(self.provider, provider.lower()) is None:
            return False
        return re.search(self.model, name.lower()) is not None


def _read() -> tuple[Row, ...]:
    tables = tomllib.loads((files("mail.llm") / "models.toml").read_text(encoding="utf-8"))
    groups: dict[str, dict[str, Any]] = {}
    for name, group in tables["groups"].items():  # a group comes after those that it is like
        groups[name] = _with_groups(group, groups)
    about = {"checked": tables["checked"]}
    return tuple(_row(about | _with_groups(model, groups)) for model in tables["models"])


def _with_groups(table: dict[str, Any], groups: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return an entry with what its groups say; it wins itself."""
    whole: dict[str, Any] = {}
    for name in table.pop("like", ()):
        whole |= groups[name]
    return whole | {
        key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
    }


def _row(values: dict[str, Any]) -> Row:
    own = {name: values.pop(name) for name in _OWN if name in values}
    return Row(**own, fields=values)


_OWN: Final = ("id", "example", "models", "provider", "model", "source", "checked", "tested")

ROWS: Final = _read()
"""The table; the first row that fits counts, and the last fits every model."""
