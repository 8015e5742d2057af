"""Take pictures of every page that Weft makes: ``.venv/bin/python tools/screenshots.py``.

They are for people to look at after a change of reports, the studio or the documentation site. Every page is
taken in a light and a dark scheme and on a small screen, into build/screenshots:

- reports of a plan, two comparisons and a training job, those of benchmarks/reporting/pages.py,
- reports that commands write, one for each kind of result that those do not have,
- the studio after an edit, and its page of the API,
- pages of the documentation site, which ``make docs`` builds.

Words choose pages by the beginning of their names: ``tools/screenshots.py report-plan site``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks" / "reporting"))

import pages
from support.browser import Browser, Tab, start_browser
from support.studio import start_studio

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "screenshots"
SITE = ROOT / "build" / "site"
SITE_PAGES = ("index", "tutorial", "report", "papers/ace", "reference/weft.planning")
LOOKS = {"light": (1100, False), "dark": (1100, True), "small": (390, False)}
"""Width in pixels and whether dark, by the end of a picture's name."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "topology": ("topology hosts:8,4,2@intra=100GB/s,uplink=25GB/s/12GB/s/6GB/s --report {page}",),
    "schedule": (
        "export torus:4x4 --algorithm multitree -o tree.weft",
        "report tree.weft --size 1MiB -o {page}",
    ),
    "bench": (
        "plan switch:4 --size 64KiB --size 256KiB --size 1MiB -o four.weft",
        "bench -R 4 -b 64K -e 1M -f 4 --plan four.weft --report {page}",
    ),
    "claims": ("reproduce --report {page}",),
    "packets": ("packets torus:4x4 --algorithm multitree --size 1MiB --report {page}",),
    "probe": ("run -n 4 -- {python} -m weft probe --seconds 2 --report {page}",),
    "verify": ("verify torus:4x4 --algorithm multitree --contention --report {page}",),
    "soak": ("soak --seconds 5 --ranks 2 --seed 7 --report {page}",),
    "trace": (
        "train torus:4x4 --model resnet50 --trace trace.json",
        "report trace.json -o {page}",
    ),
}
"""Commands of weft that write a page, by the name of the page; earlier ones write what the last one reads."""

COMPARED = "document.querySelector('.status')?.textContent.includes('is the fastest of')"
EDITED = "document.querySelectorAll('ol.edits li').length === 1"
EDIT = (
    "(() => { const form = document.forms.edge; form.elements.a.value = '0'; form.elements.b.value = '1';"
    " form.requestSubmit(); })()"
)


def take(
    browser: Browser, page: Path | str, name: str, folder: Path, ready: tuple[str, ...] = ()
) -> list[Path]:
    """Take a page in every look.

    Parameters
    ----------
    browser
        Which one draws it.
    page
        Its file or address.
    name
        How pictures begin.
    folder
        Where they go.
    ready
        Expressions of JavaScript that hold, one after the other, when the page is complete; after the first
        one the studio is edited.
    """
    taken = []
    for look, (width, dark) in LOOKS.items():
        with browser.tab(page, width=width, dark=dark) as tab:
            for number, condition in enumerate(ready):
                tab.wait_until(condition)
                if number == 0:
                    tab.run(EDIT)
            taken.append(_keep(tab, folder / f"{name}-{look}.png"))
    return taken


def _keep(tab: Tab, path: Path) -> Path:
    """Write a picture, and say what on the page is wider than the screen."""
    wide = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    tab.screenshot(path)
    print(f"{path.name}{f': {wide} pixels wider than the screen' if wide > 0 else ''}", flush=True)
    return path


def take_reports(browser: Browser, folder: Path, wanted: tuple[str, ...]) -> Iterator[Path]:
    """Reports as `pages` makes them."""
    with tempfile.TemporaryDirectory(prefix="weft-screenshots-") as made:
        for name, (_, make) in pages.REPORTS.items():
            if f"report-{name}".startswith(wanted):
                file = Path(made) / f"{name}.html"
                file.write_text(make(), "utf-8")
                yield from take(browser, file, f"report-{name}", folder)


def take_commands(browser: Browser, folder: Path, wanted: tuple[str, ...]) -> Iterator[Path]:
    """Reports as commands write them."""
    for name, commands in COMMANDS.items():
        if f"report-{name}".startswith(wanted):
            with tempfile.TemporaryDirectory(prefix="weft-screenshots-") as made:
                page = Path(made) / f"{name}.html"
                for words in commands:
                    given = words.format(page=page, python=sys.executable).split()
                    command = [sys.executable, "-m", "weft", *given]
                    subprocess.run(command, cwd=made, stdout=subprocess.DEVNULL, check=True, timeout=600)
                yield from take(browser, page, f"report-{name}", folder)


def take_studio(browser: Browser, folder: Path, wanted: tuple[str, ...]) -> Iterator[Path]:
    """The studio with one edit, and its description of the API."""
    if not any(name.startswith(wanted) for name in ("studio", "studio-api")):
        return
    with start_studio("torus:4x4") as studio:
        if "studio".startswith(wanted):
            ready = (COMPARED, EDITED, COMPARED)
            yield from take(browser, studio.url, "studio", folder, ready)
        if "studio-api".startswith(wanted):
            yield from take(browser, f"http://127.0.0.1:{studio.port}/api", "studio-api", folder)


def take_site(browser: Browser, folder: Path, wanted: tuple[str, ...]) -> Iterator[Path]:
    """Pages of the documentation."""
    chosen = [name for name in SITE_PAGES if f"site-{Path(name).name}".startswith(wanted)]
    if chosen and not SITE.exists():
        sys.exit(f"screenshots: {SITE} is not there; run make docs first")
    for name in chosen:
        yield from take(browser, SITE / f"{name}.html", f"site-{Path(name).name}", folder)


def main() -> None:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", help="Beginnings of names; all pages without any.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    wanted = tuple(options.pages) or ("",)
    with start_browser() as browser:
        taken = [
            path
            for take_some in (take_reports, take_commands, take_studio, take_site)
            for path in take_some(browser, options.output, wanted)
        ]
    print(f"screenshots: {len(taken)} pictures in {options.output}")


if __name__ == "__main__":
    main()
