"""What the pages refer to: files, anchors, routes, tools and settings that exist."""

import pkgutil
import re
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from fastapi.routing import APIRoute

from mail.auth.builtin import BuiltinAuth
from mail.config.server import ServerConfig, SwarmConfig
from mail.config.stdlib import StdlibConfig
from mail.config.toml import FileBacked
from mail.core.events import EVENT_KINDS, STREAM_KINDS
from mail.core.runtime.handlers import HANDLERS
from mail.core.tasks import TaskState
from mail.core.tools.catalogue import CATALOGUE
from mail.db import open_store
from mail.db.memory import MemoryStore
from mail.server.app import create_app
from mail.server.deps import Mailboxes, Peers
from mail.server.errors import STATUS_OF
from mail.server.routes.messages import MessageIn, MessageOptions
from mail.server.routing import MAILRoute
from tests.docs.pages import PAGES, ROOT, anchors, headings, internal_links, name_of, pictures

DOCS = ROOT / "docs"
ATTACKS = ROOT / "tests" / "attacks.md"
FILES = {"mail.db", "mail.db.lock", "mail.toml"}
BASES = (ROOT, ROOT / "src" / "mail")
FOLDERS = (
    "tests|scripts|src|spec|docs|benchmarks|server|core|llm|db|cli|factories|utils|config|auth|egress"
    "|logs|mcp|responses_api"
)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_internal_links_lead_somewhere(page: Path) -> None:
    for link in internal_links(page):
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pictures_are_in_the_repository(page: Path) -> None:
    for picture in pictures(page):
        assert (page.parent / picture).is_file(), f"{name_of(page)} shows {picture}"


def test_the_readme_opens_with_a_picture() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").startswith("![")


def test_pictures_load_nothing() -> None:
    drawn = [*(ROOT / "assets").glob("*.svg")]
    assert drawn
    for picture in drawn:
        text = picture.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "", 1)
        assert not re.search(r"https?:|//|@import|@font-face|<script|<image", text), picture


def test_the_index_lists_every_page() -> None:
    listed = {link.partition("#")[0] for link in internal_links(DOCS / "README.md")}
    assert {page.name for page in DOCS.glob("*.md")} - listed == {"README.md"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_names_and_files_on_a_page_exist(page: Path) -> None:
    codes = set(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")))
    names = {code for code in codes if re.fullmatch(r"mail(\.[A-Za-z_]\w*)+", code)}
    missing = {name for name in names - FILES - _loggers() if not _is_importable(name)}
    files = {code for code in codes if re.fullmatch(rf"(?:{FOLDERS})/[\w./]*", code)}
    missing |= {name for name in files if not any((base / name).exists() for base in BASES)}
    assert not missing


@cache
def _loggers() -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    return {name for text in texts for name in re.findall(r'getLogger\("([\w.]+)"\)', text)}


def _is_importable(dotted: str) -> bool:
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in set(internal_links(ROOT / "README.md"))


def test_the_api_page_has_every_route_and_no_other() -> None:
    config = ServerConfig(
        swarm=SwarmConfig(name="example-no-proxy", source=str(ROOT / "swarms.json"))
    )
    store = open_store("memory://")
    app = create_app(config, store=store, auth=BuiltinAuth(store))
    parts = ("/docs/{name}", "/console/", "/console/{name}")
    served = {
        f"{method} {route.path.replace(':path', '')}"
        for route in app.routes
        if isinstance(route, APIRoute) and route.path not in parts
        for method in route.methods
    }
    route = re.compile(r"`((?:GET|POST|PUT|PATCH|DELETE) /\S*)`")
    described = {name for heading in headings(DOCS / "api.md") for name in route.findall(heading)}
    table = (DOCS / "api.md").read_text(encoding="utf-8").split("## ", 1)[0]
    rows = re.findall(r"^\| \[(`[^`]+`)\]\((\S+?)\) \|", table, re.M)
    assert {name for cell, _ in rows for name in route.findall(cell)} == served
    elsewhere = {name for cell, link in rows if link[0] != "#" for name in route.findall(cell)}
    assert described | elsewhere == served
    assert not described & elsewhere


def test_the_api_page_has_every_status_and_no_other() -> None:
    section = _section("api.md", "## Errors")
    described = {int(status) for status in re.findall(r"^\| (\d{3}) \|", section, re.M)}
    assert described == {*STATUS_OF.values(), 405, 414, 500}


def test_the_pages_agree_on_what_needs_no_token() -> None:
    app = create_app(ServerConfig(), store=MemoryStore())
    routes = [route for route in app.routes if isinstance(route, MAILRoute)]
    public = {
        f"{method} {route.path}"
        for route in routes
        for method in route.methods
        if not route.audience.roles
    }
    public -= {"GET /docs/{name}", "GET /console/", "GET /console/{name}"}  # what is in them
    table = (DOCS / "api.md").read_text(encoding="utf-8").split("## ", 1)[0]
    rows = re.findall(r"^\| \[`([A-Z]+ [^`]+)`\]\([^)]*\) \| anybody \|", table, re.M)
    assert set(rows) == public
    section = _section("security.md", "## Authentication and roles")
    sentence = section.strip().partition(" needs a")[0]
    said = set(re.findall(r"`([A-Z]+ /[^`]*)`", sentence))
    assert said == public - {"GET /openapi.json"}
    assert "(or `.json`)" in sentence


def test_the_table_of_roles_has_every_route() -> None:
    app = create_app(ServerConfig(), store=MemoryStore())
    declared = {}
    for route in app.routes:
        assert isinstance(route, MAILRoute)
        audience = route.audience
        if not audience.roles:
            continue
        agent = "agent" in audience.roles
        allowed = (
            agent and not isinstance(audience, Peers),
            agent and not isinstance(audience, Mailboxes),
            "user" in audience.roles,
            "admin" in audience.roles,
        )
        for method in route.methods:
            declared[f"{method} {route.path.replace(':path', '')}"] = allowed
    rows = re.findall(r"^\| (`.*)$", _section("mail-desk.md", "## Who may call what"), re.M)
    told = {}
    for row in rows:
        routes, *cells = (cell.strip() for cell in row.strip("|").split(" | "))
        for name in re.findall(r"`([A-Z]+ /[^`]*)`", routes):
            assert name not in told, name
            told[name] = tuple(cell.rstrip(" |") != "no" for cell in cells)
    assert told == declared


def test_the_api_page_has_every_field_of_a_message_and_no_other() -> None:
    section = _section("api.md", "### `POST /message`")
    fields, options, *_ = re.split(r"^\| In `kwargs`.*$", section, maxsplit=1, flags=re.M)
    described = _first_column(fields)
    known = {field.alias or name for name, field in MessageIn.model_fields.items()}
    assert described == known - {"message"}  # the old name of the body stands beside it
    options = options.partition("\n\n")[0]
    assert _first_column(options) == set(MessageOptions.model_fields)


def test_the_api_page_names_every_event() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    not_yet = {kind for kind in EVENT_KINDS if kind.startswith(("interswarm_", "run_loop_"))}
    not_yet.add("shutdown_requested")
    for kind in (EVENT_KINDS | STREAM_KINDS) - not_yet:
        assert f"`{kind}`" in text, kind


def test_the_tools_page_has_every_tool_and_no_other() -> None:
    described = {
        name
        for heading in headings(DOCS / "agents-and-tools.md")
        for name in re.findall(r"`([a-z_]+)`", heading)
    }
    assert described == set(CATALOGUE)
    assert described == set(HANDLERS)


@pytest.mark.parametrize("model", [ServerConfig, StdlibConfig])
def test_the_configuration_page_has_every_setting_and_no_other(model: type[FileBacked]) -> None:
    for table, keys in _tables(model).items():
        assert _first_column(_section("configuration.md", f"### `[{table}]`")) == keys, table


@pytest.mark.parametrize(
    ("heading", "fewest"),
    [
        ("## On the server", 20),
        ("## By mail of other swarms", 10),
        ("## By a tool of an MCP server", 3),
        ("## By a participant", 4),
        ("## What only a proxy stops", 4),
    ],
)
def test_every_attack_has_its_test(heading: str, fewest: int) -> None:
    table = _part(ATTACKS, heading).split("\n| Attack ", 1)[1]
    rows = re.findall(r"^\| (?!-).*", table.partition("\n")[2], re.MULTILINE)
    assert len(rows) >= fewest
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", row)
        assert named, row
        for file, names in named:
            text = (ROOT / file).read_text(encoding="utf-8")
            for name in names.split("::"):
                assert re.search(rf"^ *(?:async )?(?:def|class) {name}\b", text, re.MULTILINE), row


def test_the_security_page_leads_to_the_attacks_whose_links_hold() -> None:
    assert "../tests/attacks.md" in set(internal_links(DOCS / "security.md"))
    test_internal_links_lead_somewhere(ATTACKS)
    text = ATTACKS.read_text(encoding="utf-8")
    assert len(re.findall("^[|] Attack ", text, re.M)) == len(re.findall("^## ", text, re.M))


def test_what_coding_agents_are_told_exists() -> None:
    page = ROOT / "AGENTS.md"
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    commands = set(re.findall(r"`make ([a-z ]+)", text))
    assert {name for command in commands for name in command.split()} <= targets
    folders = re.findall(r"`((?:src|spec|docs|tests)/[\w/]*)`", text)
    assert "src/mail/core/runtime/" in folders
    missing = [name for name in folders if not (ROOT / name).is_dir()]
    assert not missing
    for link in internal_links(page):
        assert (ROOT / link).is_file(), link


def test_the_layers_on_the_architecture_page_are_those_that_lint_checks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    checked = [set(re.findall(r"[\w.]+", layer)) for layer in layers]
    section = _section("architecture.md", "## Layers")
    rows = re.findall(r"^\| (\w+) \| (`.+?) \|", section, re.M)
    told = {layer: re.findall(r"`mail\.([\w.]+)`", names) for layer, names in rows}
    assert told.pop("protocol") == ["core"]  # one row for its many layers
    assert [set(names) for names in told.values()] == [
        names for names in checked if not all(name.startswith("core.") for name in names)
    ]
    drawn = dict(re.findall(r'^ +(\w+)\["<b>\1</b>: (.+)"\]$', section, re.M))
    assert drawn.pop("protocol") == "the rest of core"
    assert {layer: names.split(", ") for layer, names in drawn.items()} == told
    [chain] = re.findall(r"^ +(\w+ --> .+)$", section, re.M)
    assert chain.split(" --> ") == [layer for layer, _ in rows]


def test_the_states_on_the_tasks_page_are_those_of_a_task() -> None:
    diagram = _section("tasks.md", "## States").partition("```mermaid")[2].partition("```")[0]
    drawn = set(re.findall(r"(?:--> |^ +)(\w+)(?=:)", diagram, re.M))
    assert drawn - {"ended"} == {state.value for state in TaskState}


def _section(page: str, heading: str) -> str:
    return _part(DOCS / page, heading)


def _part(page: Path, heading: str) -> str:
    text = page.read_text(encoding="utf-8")
    return text.partition(f"\n{heading}\n")[2].partition("\n#")[0]


def _first_column(section: str) -> set[str]:
    rows = re.findall(r"^\| (.+?) \|", section, re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def _tables(model: type[FileBacked]) -> dict[str, set[str]]:
    nested = getattr(model, "nested", frozenset())
    aliases = set(getattr(model, "aliases", {}))
    tables = {model.table: {*model.model_fields, *aliases} - nested}
    for name in nested:
        kind = model.model_fields[name].annotation
        assert isinstance(kind, type) and issubclass(kind, FileBacked)
        tables.update(_tables(kind))
    return tables
