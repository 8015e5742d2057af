"""Size of reports, and how soon a browser shows something of them.

Four reports of different kinds are written, and each is opened several times from its file in a headless
Chromium, in a new tab. First paint is the browser's own figure, the entry ``first-contentful-paint`` of
``performance.getEntriesByType("paint")``: milliseconds from the opening of the page to its first content.

Every page has to be below 3 MB and to show something within 2 s each time, or the script fails.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
import result_files
from support.browser import Browser, start_browser

OUTPUT = Path(__file__).with_suffix(".json")
LOADS = 9
MOST_BYTES = 3_000_000
MOST_PAINT_MS = 2000.0
PLAN_SIZES = ("64KiB", "4MiB", "256MiB")
COMPARED_SIZES = ("64KiB", "1MiB", "16MiB", "256MiB")
LARGE_ALGORITHMS = ("hierarchical", "ring", "recursive_doubling")


def plan_report() -> str:
    """A plan for a torus of 64 ranks."""
    return weft.report(weft.plan("torus:8x8", PLAN_SIZES))


def comparison_report() -> str:
    """All algorithms on three uneven hosts, at several sizes."""
    return weft.report(*(weft.compare("hosts:8,4,2", size) for size in COMPARED_SIZES))


def large_report() -> str:
    """Some algorithms on 1,024 GPUs."""
    return weft.report(weft.compare("rails:128x8", "64MiB", algorithms=LARGE_ALGORITHMS))


def training_report() -> str:
    """A simulated training job."""
    return weft.report(weft.train("resnet50", "torus:4x4"))


REPORTS: dict[str, tuple[str, Callable[[], str]]] = {
    "plan": (f"plan for `torus:8x8`, {len(PLAN_SIZES)} sizes", plan_report),
    "comparison": (
        f"comparison on `hosts:8,4,2`, {len(COMPARED_SIZES)} sizes, all algorithms",
        comparison_report,
    ),
    "large": (
        f"comparison on `rails:128x8`, 1,024 GPUs, {len(LARGE_ALGORITHMS)} algorithms",
        large_report,
    ),
    "training": ("training of ResNet-50 on `torus:4x4`, 16 ranks", training_report),
}


def write_reports(folder: Path) -> dict[str, Path]:
    """Write every report into a folder; their files by name."""
    files = {}
    for name, (_, make) in REPORTS.items():
        files[name] = folder / f"{name}.html"
        files[name].write_text(make(), "utf-8")
    return files


def measure_paints(browser: Browser, page: Path, loads: int) -> list[float]:
    """Milliseconds to the first paint, for each time that a page is opened."""
    times = []
    for _ in range(loads):
        with browser.tab(page) as tab:
            times.append(tab.first_paint_ms())
            assert tab.requests == []
            assert tab.complaints == []
    return times


def check(results: list[dict[str, Any]]) -> None:
    """Fail if a page is too large, or was too slow once."""
    for row in results:
        if row["size_bytes"] >= MOST_BYTES or max(row["first_paint_ms"]) >= MOST_PAINT_MS:
            limits = f"{MOST_BYTES / 1e6:g} MB and {MOST_PAINT_MS / 1000:g} s"
            sys.exit(f"pages: beyond {limits}, so nothing is written: {row}")


def page_table(path: Path = OUTPUT) -> str:
    """Sizes and first paints, for docs/report.md."""
    lines = ["| report | size | first paint: median | from | to |", "|---|---|---|---|---|"]
    for row in result_files.read(path)["results"]:
        times = (row["median_first_paint_ms"], min(row["first_paint_ms"]), max(row["first_paint_ms"]))
        cells = " | ".join(f"{time:.0f} ms" for time in times)
        lines.append(f"| {row['report']} | {row['size_bytes'] / 1000:.0f} KB | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loads", type=int, default=LOADS, help="How often each page is opened.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--note", help="How the machine was, which the file then says.")
    options = parser.parse_args()
    started = result_files.start()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="weft-pages-") as folder:
        files = write_reports(Path(folder))
        with start_browser() as browser:
            version = browser.call("Browser.getVersion")["product"]
            measure_paints(browser, files["training"], 1)  # the first tab of a browser waits for its start
            for name, file in files.items():
                times = measure_paints(browser, file, options.loads)
                results.append(
                    {
                        "report": REPORTS[name][0],
                        "size_bytes": file.stat().st_size,
                        "median_first_paint_ms": statistics.median(times),
                        "first_paint_ms": times,
                    }
                )
    check(results)
    parameters = {
        "loads": options.loads,
        "plan_sizes": PLAN_SIZES,
        "compared_sizes": COMPARED_SIZES,
        "large_algorithms": LARGE_ALGORITHMS,
    }
    written = result_files.write(
        options.output,
        started,
        parameters=parameters,
        results=results,
        versions={"chromium": version.partition("/")[2]},
        note=options.note,
    )
    print(f"wrote {written}")
    print(page_table(written), end="")


if __name__ == "__main__":
    main()
