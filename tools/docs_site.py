"""What the documentation site needs beyond the pages of docs/: a hook of MkDocs, which mkdocs.yml names.

The pages are written for GitHub as well, where a link may lead to any file of the repository. On the site

- a file outside docs/ that a page links to, such as README.md or a result of a benchmark, is a page or a file
  below ``repository/``, and the links lead there;
- a notebook is a page of its cells and their outputs;
- the ``__init__.py`` of a package is its page of the API reference, made from docstrings by mkdocstrings;
- headings have the anchors that GitHub gives them;
- a link such as ``[report.md](report.md)`` has the title of its page as its text.

The build fails if a page would load anything from another server when it is viewed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

TREE = Path(__file__).parents[1]
PAGES_OF_TREE = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Pages outside docs/ that the navigation names."""
LANGUAGES = {".py": "python", ".cpp": "cpp", ".hpp": "cpp", ".sh": "sh", ".c": "c"}
"""Files that are shown as pages, highlighted; others are copied as they are."""
NOTEBOOK = ".ipynb"
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
NAMED_PAGE = re.compile(r"\[([\w./-]+\.(?:md|ipynb))\](?=\(([^)\s#]+)[)#])")
"""A link whose text is the name of its file."""
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*\brel=["']?(?:canonical|next|prev))[^>]*?\bhref=["']?(?:https?:)?//"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//|url\(["']?(?:https?:)?//""",
    re.IGNORECASE,
)
"""What makes a browser fetch from another server while it shows a page."""


def github_anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def edit_prose(text: str, edit: Callable[[str], str]) -> str:
    """Return a page of which `edit` has changed all that is not in a fenced or indented block of code."""
    lines, inside = text.split("\n"), False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and not line.startswith("    "):
            lines[number] = edit(line)
    return "\n".join(lines)


def links(text: str) -> list[str]:
    """Return what a page of Markdown links to in this repository, without anchors."""
    found: list[str] = []

    def keep(line: str) -> str:
        found.extend(LINK.findall(line))
        return line

    edit_prose(text, keep)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def resolve(page: str, link: str) -> str:
    """Return the path in the repository that a link of a page means, a folder's README for the folder."""
    path = normpath(str(PurePosixPath(page).parent / link))
    if (TREE / path / "README.md").exists():
        return f"{path}/README.md"
    return path


def place_on_site(path: str) -> str:
    """Return where a file or folder of the repository lies in the sources of the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if package := package_of(path):
        return f"reference/{package}.md"
    if (TREE / path).is_dir():
        return f"repository/{path}/index.md"
    if path.endswith((*LANGUAGES, NOTEBOOK)):
        return f"repository/{path}.md"
    return f"repository/{path}"


def package_of(path: str) -> str | None:
    """Return the package of the reference whose ``__init__.py`` a path is, or None."""
    match = re.fullmatch(r"src/(weft(?:/\w+)??)(?:/__init__)?\.py", path)
    package = match[1].replace("/", ".") if match else ""
    return package if package in documented() else None


def linked_files() -> Iterator[str]:
    """Yield every file and folder outside docs/ that pages lead to, those of the navigation among them."""
    waiting = [*PAGES_OF_TREE, *(str(page.relative_to(TREE)) for page in (TREE / "docs").rglob("*.md"))]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/"):
            yield path
        if path.endswith(".md"):
            for link in links((TREE / path).read_text("utf-8")):
                target = resolve(path, link)
                if target not in seen and not package_of(target) and (TREE / target).exists():
                    seen.add(target)
                    waiting.append(target)


def page_of_file(path: str) -> str | bytes:
    """Return what the site shows of a file or folder outside docs/."""
    file = TREE / path
    unsearched = "---\nsearch:\n  exclude: true\n---\n\n"
    if file.is_dir():
        names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in file.iterdir())
        shown = [name for name in names if not name.startswith((".", "_"))]
        return f"{unsearched}# {path}\n\nThis folder of the repository has\n\n" + "".join(
            f"- `{name}`\n" for name in shown
        )
    if file.suffix == NOTEBOOK:
        return notebook_page(json.loads(file.read_text("utf-8")))
    language = LANGUAGES.get(file.suffix)
    if language is None:
        return file.read_bytes()
    code = file.read_text("utf-8")
    return f"{unsearched}# {path}\n\n``````{language}\n{code}\n``````\n"


def title_of(path: str) -> str | None:
    """Return the heading of a page, up to a colon, or of a notebook; None of what has none."""
    file = TREE / path
    if not file.is_file():
        return None
    notebook = file.suffix == NOTEBOOK
    text = str(page_of_file(path)) if notebook else file.read_text("utf-8")
    heading = re.search(r"^# (.+)", text, re.MULTILINE)
    return None if heading is None else heading[1] if notebook else heading[1].partition(":")[0]


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page of Markdown: its texts, its code, and below it what the code showed."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"``````python\n{source}\n``````")
        parts += [shown for output in cell.get("outputs", []) if (shown := shown_output(output))]
    return "\n\n".join(parts) + "\n"


def shown_output(output: dict[str, Any]) -> str:
    """Return what a cell showed: a picture or table as HTML where it has one, else its text."""
    data = output.get("data", {"text/plain": output.get("text", "\n".join(output.get("traceback", [])))})
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            html = "".join(data[kind])
            # A blank line would end the block of HTML, and Markdown would read the rest.
            lines = [line.strip() for line in html.splitlines() if line.strip()]
            return '<div class="notebook-output">\n' + "\n".join(lines) + "\n</div>"
    return f"``````text\n{''.join(data.get('text/plain', '')).rstrip()}\n``````"


def assigned(package: str) -> tuple[dict[str, ast.expr], list[str]]:
    """Return what a package or module assigns to names at its top, and the names of its classes."""
    path = TREE / "src" / package.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(file.read_text("utf-8")).body
    found = {
        target.id: node.value
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return found, [node.name for node in body if isinstance(node, ast.ClassDef)]


def public_names(package: str) -> list[str]:
    """Return the names in ``__all__`` of a package; of a module that has none, all classes."""
    found, classes = assigned(package)
    return list(ast.literal_eval(found["__all__"])) if "__all__" in found else classes


def homes() -> dict[str, str]:
    """Return, for each name of ``weft`` that a package of the reference documents, that package."""
    table: dict[str, tuple[str, ...]] = ast.literal_eval(assigned("weft")[0]["_HOMES"])
    table |= {"weft.errors": tuple(public_names("weft.errors"))}
    return {name: home for home, names in table.items() if home in documented() for name in names}


def documented() -> list[str]:
    """Return the packages that have a page of the reference: weft, the public ones in it, and weft.errors."""
    names = [name for name in public_names("weft") if is_module(f"weft.{name}")]
    return ["weft", *(f"weft.{name}" for name in sorted([*names, "errors"]))]


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module or a package."""
    path = TREE / "src" / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def reference_page(package: str) -> str:
    """Return the page of a package: its docstring, and all of its public names with theirs."""
    names = public_names(package)
    modules = [name for name in names if is_module(f"{package}.{name}")]
    others = [name for name in names if name not in modules]
    without = ("members", "show_root_heading", "show_root_toc_entry")
    alone = "    options:\n" + "".join(f"      {option}: false\n" for option in without)
    text = f"# {package}\n\n::: {package}\n{alone}\n"
    if package == "weft":
        known = homes()
        text += "| name | documented in |\n|---|---|\n" + "".join(
            f"| `weft.{name}` | [`{known[name]}.{name}`][{known[name]}.{name}] |\n"
            for name in others
            if name in known
        )
        text += "\nPackages: " + ", ".join(f"[`{name}`]({name}.md)" for name in documented()[1:]) + ".\n\n"
        others, modules = [name for name in others if name not in known], []
    for name in (*others, *modules):
        text += f"::: {package}.{name}\n    options:\n      heading_level: 2\n\n"
    return text


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make anchors as GitHub does."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = github_anchor
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for path in linked_files():
        files.append(File.generated(config, place_on_site(path), content=page_of_file(path)))
    for package in documented():
        page = f"reference/{package}.md"
        files.append(File.generated(config, page, content=reference_page(package)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Lead links to where a file of the repository is on the site, and call pages by their titles."""
    place = page.file.src_uri
    if place.startswith("reference/"):
        return markdown
    outside = place.startswith("repository/")
    source = place.removeprefix("repository/").removesuffix(".md") if outside else f"docs/{place}"
    if outside and not source.endswith((*LANGUAGES, NOTEBOOK)):
        source += ".md"

    def name(match: re.Match[str]) -> str:
        title = title_of(resolve(source, match[2]))
        return f"[{title}]" if title else match[0]

    def lead(match: re.Match[str]) -> str:
        link = match[0]
        target = resolve(source, link)
        if re.match(r"[a-z]+:", link) or not (TREE / target).exists():
            return link  # an address, or broken: MkDocs says so
        return relpath(place_on_site(target), str(PurePosixPath(place).parent))

    return edit_prose(markdown, lambda line: LINK.sub(lead, NAMED_PAGE.sub(name, line)))


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Show ``.. [1]`` and ``::`` of docstrings, which are not Markdown, as ``[1]`` and ``:``."""
    if not page.file.src_uri.startswith("reference/"):
        return html
    return re.sub(r"\.\. (\[\d+\])", r"\1", html).replace("::</p>", ":</p>")


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse pages and styles that load something from another server."""
    from mkdocs.exceptions import PluginError

    for file in sorted(Path(config.site_dir).rglob("*")):
        if file.suffix in (".html", ".css", ".svg") and (match := LOADED.search(file.read_text("utf-8"))):
            where = file.relative_to(config.site_dir)
            raise PluginError(f"{where} loads from another server: {match[0]!r}")
