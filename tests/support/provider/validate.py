"""The checks of a real provider: what it answers with 400."""

from collections.abc import Mapping
from typing import Any

from tests.support.provider import (
    validate_anthropic,
    validate_completions,
    validate_native,
    validate_responses,
)
from tests.support.provider.inbound import WireName
from tests.support.provider.issued import Issued
from tests.support.provider.validate_completions import OPENAI, Dialect

__all__ = ["problems_of"]


def problems_of(
    body: Mapping[str, Any],
    *,
    wire: WireName = "completions",
    headers: Mapping[str, str] | None = None,
    issued: Issued | None = None,
    dialect: Dialect = OPENAI,
    hosted: bool = False,
) -> list[str]:
    """Return what is wrong with the body of a request.

    Args:
        body: The request.
        wire: Its format.
        headers: By their names in lower case; without them, headers are not checked.
        issued: What this provider wrote before, if that is known.
        dialect: How its chat completions differ from OpenAI's.
        hosted: Whether it is Bedrock that asks Anthropic's models.
    """
    issued = issued or Issued()
    if wire == "responses":
        return validate_responses.problems_of(body, issued)
    if wire == "anthropic":
        return validate_anthropic.problems_of(body, headers, issued, hosted=hosted)
    if wire in ("gemini", "ollama"):
        return validate_native.problems_of(body, wire)
    return validate_completions.problems_of(body, dialect)
