"""Make the pages of docs/ a website that needs nothing else.

Not a script: mkdocs loads it (see mkdocs.yml). Pages link to files of the repository the way its
web view understands (``../CONTRIBUTING.md``). In the site these files lie below ``repository/``,
and the links lead there; linked Markdown files become pages, and what they link to comes along.
Headings get the anchors that they have in the web view. Pages with diagrams load Mermaid from the
site. A site that would load something from another host is refused.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from pymdownx.superfences import fence_code_format

ROOT = Path(__file__).resolve().parents[1]
COPIED = "repository/"
"""Where files from outside docs/ lie in the site."""

MERMAID = "assets/mermaid/mermaid.min.js"
"""What draws the diagrams; the theme would load it from another host if the page did not.

It is ``@mermaid-js/tiny`` 11.12.0 from npm; the theme does not colour the arrowheads of 11.17.
"""

_CODE_OR_LINK = re.compile(
    r"^(?P<ticks>```+)[^\n]*\n.*?^(?P=ticks)\s*$|`[^`\n]+`"
    r"|(?P<text>\[[^\]]*\]\()(?P<target>[^)\s]+)\)",
    re.M | re.S,
)
_LOADED_BY_STYLE = re.compile(r"(?:@import\s+|url\(\s*)[\"']?([^\"')\s;]+)")
_FOREIGN = re.compile(r"(?:https?:|wss?:)?//", re.I)


def slug(heading: str, separator: str) -> str:
    """Return the anchor of a heading, the one that the repository's web view gives it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set what a YAML file cannot say."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    diagrams = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [diagrams]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages lead to, directly or by way of each other."""
    docs = Path(config.docs_dir)
    for uri in {config.theme["logo"], config.theme["favicon"]}:
        files.append(File.generated(config, uri, abs_src_path=str(_source(uri, config))))
    waiting = [docs / file.src_uri for file in files.documentation_pages()]
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            if target.is_relative_to(docs) or not _is_ours(target):
                continue  # mkdocs itself says what is missing
            uri = COPIED + target.relative_to(ROOT).as_posix()
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
                waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that cross the border of docs/ lead to where the file lies in the site."""
    here = _source(page.file.src_uri, config)
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # the page is an index itself

    def moved(found: re.Match[str]) -> str:
        path, sign, anchor = (found["target"] or "").partition("#")
        if not path or _is_foreign(path):
            return found[0]
        target = Path(os.path.normpath(here.parent / path))
        uri = _uri(target, config)
        relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{found['text']}{relative}{sign}{anchor})"

    return _CODE_OR_LINK.sub(moved, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Give a page what draws its diagrams, and spare all others its weight."""
    if 'class="mermaid"' not in output:
        return output
    script = f'<script defer src="{get_relative_url(MERMAID, page.url)}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Look through the finished site.

    Raises:
        PluginError: it would load something from another host.
    """
    if found := list(foreign(Path(config.site_dir))):
        raise PluginError("the site would load from elsewhere:\n" + "\n".join(found))


def foreign(site: Path) -> Iterator[str]:
    """Yield what the pages and style sheets of a site load from other hosts."""
    for file in sorted(site.rglob("*")):
        if file.suffix in (".html", ".css"):
            text = file.read_text(encoding="utf-8")
            loaded = (
                _loaded_by_page(text) if file.suffix == ".html" else _LOADED_BY_STYLE.findall(text)
            )
            yield from (f"{file.name}: {url}" for url in loaded if _FOREIGN.match(url))


class _Loads(HTMLParser):
    """Collects what a browser loads with a page; links to follow are not among it."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the addresses of one element."""
        names = {"src", "srcset", "data", "poster"} | ({"href"} if tag == "link" else set())
        self.urls += [value for name, value in attrs if name in names and value]
        self.urls += _LOADED_BY_STYLE.findall(dict(attrs).get("style") or "")


def _loaded_by_page(text: str) -> list[str]:
    page = _Loads()
    page.feed(text)
    page.close()
    return page.urls


def _targets(page: Path) -> Iterator[Path]:
    for found in _CODE_OR_LINK.finditer(page.read_text(encoding="utf-8")):
        path = (found["target"] or "").partition("#")[0]
        if path and not _is_foreign(path):
            yield Path(os.path.normpath(page.parent / path))


def _is_foreign(path: str) -> bool:
    return path.startswith("/") or re.match(r"[a-z]+:", path) is not None


def _is_ours(path: Path) -> bool:
    return path.is_relative_to(ROOT) and path.is_file()


def _source(uri: str, config: MkDocsConfig) -> Path:
    """Return the file behind a page of the site."""
    if uri.startswith(COPIED):
        return ROOT / uri.removeprefix(COPIED)
    return Path(config.docs_dir) / uri


def _uri(path: Path, config: MkDocsConfig) -> str:
    """Return where a file of the repository lies in the site."""
    if path.is_relative_to(config.docs_dir):
        return path.relative_to(config.docs_dir).as_posix()
    return COPIED + Path(os.path.relpath(path, ROOT)).as_posix()
