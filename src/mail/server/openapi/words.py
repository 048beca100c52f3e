"""The vocabulary of the OpenAPI document: what can be said about a shape and about a field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["TASK_ID", "Shape", "Words", "words"]

TASK_ID: Final[Mapping[str, Any]] = {
    "minLength": 1,
    "maxLength": 256,
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
}
"""What holds for the id of a task."""


@dataclass(frozen=True, slots=True)
class Words:
    """What is said about one field.

    Attributes:
        text: The description.
        sometimes: The field may be missing from an answer.
        facets: Further keywords of JSON Schema.
    """

    text: str
    sometimes: bool
    facets: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is said about one component.

    Attributes:
        text: The description.
        fields: One entry per field.
        open: Further fields may come.
        more: Further keywords of JSON Schema.
    """

    text: str
    fields: Mapping[str, Words]
    open: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


def words(text: str, *, sometimes: bool = False, **facets: Any) -> Words:
    """Make the entry of a field."""
    return Words(text, sometimes, facets)
