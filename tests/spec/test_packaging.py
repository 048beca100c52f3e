"""The specification reaches agents, its routes exist, and versions are told once."""

import re
import tomllib
from pathlib import Path

from mail.core.tools.helptext import build_mail_help_string
from mail.version import PROTOCOL_VERSION, VERSION, get_protocol_version, get_version

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec"
PAGE = (SPEC / "SPEC.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ROUTE = re.compile(r"`((?:GET|POST) /[^`\s]*)`")


def test_the_project_file_has_the_version_of_the_package() -> None:
    assert PROJECT["project"]["version"] == VERSION == get_version()


def test_the_protocol_version_is_the_beginning_of_the_package_version() -> None:
    assert ".".join(VERSION.split(".")[:2]) == PROTOCOL_VERSION == get_protocol_version()


def test_the_folder_is_packaged_where_the_help_tool_looks_for_it() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["spec"] == "mail/spec"


def test_agents_can_ask_for_the_page_and_it_is_not_too_long_for_them() -> None:
    text = build_mail_help_string("a", "s", get_summary=False, get_full_protocol=True)
    protocol, _, table = PAGE.partition("\n## Rules and tests")
    assert text.endswith(protocol.strip()) and table.strip() not in text
    assert len(protocol) < 90_000


def test_the_page_gives_the_routes_that_the_api_page_describes() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(`.*?`)\]", page.split("## ", 1)[0], re.MULTILINE)
    described = {route for row in rows for route in ROUTE.findall(row)}
    table = [line for line in PAGE.splitlines() if line.startswith("| `")]
    built = [line for line in table if "[not built yet]" not in line]
    written = {route for line in built for route in ROUTE.findall(line.split("|")[1])}
    assert written == described


def test_the_index_lists_every_file() -> None:
    page = (SPEC / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", page)
    assert all((SPEC / link).exists() for link in links)
    files = {path.name for path in SPEC.iterdir() if path.is_file()}
    assert files - set(links) == {"README.md"}
    assert "examples/README.md" in links
