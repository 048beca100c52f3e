"""The pages of the ``help`` tool: from ``help/`` and the packaged specification."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from mail.core.tools.catalogue import CATALOGUE

_NO_SPEC = "The specification is not part of this installation."
_TABLE_OF_TESTS = "\n## Rules and tests"  # the last chapter, which tells agents nothing


@cache
def _page(name: str) -> str:
    pages = resources.files("mail.core.tools").joinpath("help")
    return pages.joinpath(f"{name}.md").read_text("utf-8").strip()


@cache
def _specification() -> str:
    packaged = resources.files("mail").joinpath("spec", "SPEC.md")
    checkout = Path(__file__).parents[4] / "spec" / "SPEC.md"
    for page in (packaged, checkout):
        if page.is_file():
            return page.read_text("utf-8").partition(_TABLE_OF_TESTS)[0].strip()
    return _NO_SPEC


def get_tool_help(tools: Iterable[str]) -> str:
    """Return the guides of some tools, each under a headline with its name.

    Raises:
        ValueError: one of them is not a tool of MAIL.
    """
    guides = []
    for name in tools:
        if name not in CATALOGUE:
            raise ValueError(f"unknown tool name: {name}")
        guides.append(f"===== Tool `{name}` =====\n{_page(name)}\n\n")
    return "".join(guides)


def _guides(tools: Sequence[str]) -> str:  # the function's name is a parameter's, too
    return get_tool_help(tools).strip()


def build_mail_help_string(
    name: str,
    swarm: str,
    get_summary: bool = True,
    get_identity: bool = False,
    get_tool_help: Sequence[str] | None = None,
    get_full_protocol: bool = False,
) -> str:
    """Return the help text for an agent.

    Args:
        name: The agent's name.
        swarm: The swarm it belongs to.
        get_summary: Include the overview.
        get_identity: Include the agent's name and addresses.
        get_tool_help: The tools to explain.
        get_full_protocol: Include the whole specification.

    Raises:
        ValueError: a name in ``get_tool_help`` is not a tool of MAIL.
    """
    sections: list[tuple[str, str]] = []
    if get_summary:
        sections.append(("summary", _page("summary")))
    if get_identity:
        identity = (
            f"**Name**: {name}\n"
            f"**Swarm**: {swarm}\n"
            f"**Local Address**: {name} (same as name)\n"
            f"**Interswarm Address**: {name}@{swarm}"
        )
        sections.append(("your identity", identity))
    if get_tool_help:
        sections.append(("tool help", _guides(get_tool_help)))
    if get_full_protocol:
        sections.append(("full MAIL protocol specification", _specification()))
    return "".join(f"===== {title.upper()} =====\n\n{text}\n\n" for title, text in sections).strip()
