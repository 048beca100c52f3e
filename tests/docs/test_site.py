"""The pages as a website: nothing is missing, links hold, nothing comes from elsewhere."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT, anchors
from tests.support.browser import find_chromium

pytestmark = pytest.mark.timeout(600)  # the first one may have to install Chromium

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built the way `make lint` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """What mkdocs loads of ours."""
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs_site.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_small_and_all_of_them_are_shown() -> None:
    text = "".join(path.read_text("utf-8") for path in (*DOCS.glob("*.md"), ROOT / "README.md"))
    found = [
        each for kind in ("png", "webp", "svg") for each in (DOCS / "assets").glob(f"*.{kind}")
    ]
    assert [each.name for each in found if f"assets/{each.name})" not in text] == []
    assert sum(each.stat().st_size for each in found) < 1_500_000


@pytest.fixture
def browser(tmp_path: Path) -> Callable[[str], str]:
    """Chromium without a network: give it an address, get the page as its scripts left it."""
    command = [
        find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=10000",
        f"--user-data-dir={tmp_path}", "--dump-dom",
    ]  # fmt: skip

    def visit(address: str) -> str:
        done = subprocess.run(
            [*command, address], capture_output=True, encoding="utf-8", timeout=60, check=True
        )
        return done.stdout

    return visit


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """What mkdocs.yml says."""
    return dict(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8")))


def test_the_menu_has_four_groups_and_in_them_every_page_once(settings: dict[str, Any]) -> None:
    home, *groups = settings["nav"]
    assert home == {"Home": "README.md"}
    assert [next(iter(group)) for group in groups] == [
        "Tutorial", "How-to", "Reference", "Explanation"
    ]  # fmt: skip
    named = list(_pages(groups))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"README.md"}
    assert len(named) == len(set(named))
    assert {name for name in named if not name.startswith("repository/")} == pages


def test_the_index_has_every_page_in_the_group_that_the_menu_gives_it(
    settings: dict[str, Any],
) -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for group in settings["nav"][1:]:
        [(title, entries)] = group.items()
        listed = set(_links_below(index, f"## {title}"))
        assert listed >= {name.replace("repository/", "../") for name in _pages(entries)}, title


def test_every_page_is_in_the_site_with_its_anchors(site: Path) -> None:
    for page in PAGES[1:]:
        place = page.relative_to(DOCS).with_suffix(".html")
        built = site / (place.with_name("index.html") if place.stem == "README" else place)
        ids = set(re.findall(r'<h[1-6] id="([^"]*)"', built.read_text(encoding="utf-8")))
        assert ids == anchors(page), page


def test_the_start_page_has_no_menu_beside_it_for_it_is_one(site: Path) -> None:
    primary = r'md-sidebar--primary"[^>]*hidden'
    assert re.search(primary, (site / "index.html").read_text(encoding="utf-8"))
    assert not re.search(primary, (site / "tasks.html").read_text(encoding="utf-8"))


def test_links_that_leave_docs_lead_to_copies(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="repository/CONTRIBUTING.html"' in start
    spec = (site / "repository" / "spec" / "SPEC.html").read_text(encoding="utf-8")
    assert 'src="repository/assets/demo.svg"' in start
    schema = re.search(r'href="(MAIL-core[^"#]*)"', spec)
    assert schema, "SPEC.md names its schema"
    copied = site / "repository" / "spec" / schema[1]
    assert copied.read_bytes() == (ROOT / "spec" / schema[1]).read_bytes()


def test_nothing_is_loaded_from_elsewhere(site: Path, hook: ModuleType) -> None:
    assert list(hook.foreign(site)) == []


def test_pages_with_diagrams_load_what_draws_them_from_the_site(
    site: Path, hook: ModuleType
) -> None:
    drawn = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        scripts = re.findall(r'<script defer src="([^"]*mermaid[^"]*)"', text)
        assert len(scripts) == ('<pre class="mermaid"' in text), page
        for script in scripts:
            assert (page.parent / script).resolve() == (site / hook.MERMAID).resolve()
            drawn += 1
    assert drawn
    assert (site / hook.MERMAID).with_name("LICENSE").is_file()


def test_the_search_needs_no_web_server(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    assert '<script src="assets/iframe-worker/shim.js">' in start
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert json.loads(index.removeprefix("var __index = "))["docs"]


def test_diagrams_are_drawn_in_a_browser_without_a_network(
    site: Path, browser: Callable[[str], str]
) -> None:
    for page in site.rglob("*.html"):
        if diagrams := page.read_text(encoding="utf-8").count('<pre class="mermaid"'):
            shown = browser(page.as_uri())
            assert shown.count('<div class="mermaid"') == diagrams, page
            assert '<pre class="mermaid"' not in shown


def test_the_search_finds_pages_in_a_browser_without_a_server(
    site: Path, browser: Callable[[str], str]
) -> None:
    shown = browser(f"{(site / 'index.html').as_uri()}?q=interrupt")
    assert re.search(r'<a href="[^"]*tasks\.html[^"]*" class="md-search-result__link"', shown)


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/x.css">',
        '<img src="http://example.com/x.png">',
        '<p style="background: url(https://example.com/x.png)">',
    ],
)
def test_what_would_be_loaded_from_elsewhere_is_found(
    html: str, hook: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(f'<a href="https://example.com">fine</a>{html}')
    assert len(list(hook.foreign(tmp_path))) == 1


def test_a_style_sheet_from_elsewhere_is_found(hook: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@import 'https://example.com/x.css'; b { color: red }")
    assert list(hook.foreign(tmp_path)) == ["a.css: https://example.com/x.css"]


def test_the_settings_are_as_strict_as_they_can_be(settings: dict[str, Any]) -> None:
    strictness = settings["validation"]
    assert {level for part in strictness.values() for level in part.values()} == {"warn"}
    assert set(strictness["links"]) == {
        "not_found", "anchors", "absolute_links", "unrecognized_links"
    }  # fmt: skip
    assert set(strictness["nav"]) == {"omitted_files", "not_found", "absolute_links"}


def _pages(entries: Any) -> Iterator[str]:
    """Yield the pages of a part of the menu, however deep."""
    if isinstance(entries, str):
        yield entries
    for entry in entries.values() if isinstance(entries, dict) else ():
        yield from _pages(entry)
    for entry in entries if isinstance(entries, list) else ():
        yield from _pages(entry)


def _links_below(text: str, heading: str) -> list[str]:
    section = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    return [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", section)]
