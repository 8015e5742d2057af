"""The page of a report in a real Chromium: what is drawn, what moves, and that nothing is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser, Tab, start_browser

import weft
from weft.reporting import make_document, make_page

SPEC = "hosts:4,2@intra=100GB/s,uplink=10GB/s"
HOSTILE = "</script><img src=x onerror=alert(1)><b>bold</b>&amp;\u2028'\"`"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as found:
        yield found


@pytest.fixture(scope="module")
def compared() -> list[weft.Comparison]:
    return [weft.compare(SPEC, size, algorithms=["ring", "multitree"]) for size in ("64KiB", "16MiB")]


@pytest.fixture
def page(tmp_path: Path, compared: list[weft.Comparison]) -> Path:
    path = tmp_path / "report.html"
    weft.report(*compared, output=path)
    return path


def picture(tab: Tab) -> str:
    found = tab.run("document.querySelector('canvas.fabric').toDataURL()")
    assert isinstance(found, str)
    return found


def said(tab: Tab) -> str:
    return str(tab.run("document.querySelector('section.fabric output').textContent"))


def is_quiet(tab: Tab) -> bool:
    """Whether the page asked for nothing, complained of nothing and threw nothing."""
    assert tab.requests == []
    assert tab.complaints == []
    return True


def move_slider(tab: Tab, place: int) -> None:
    tab.run(
        f"(() => {{ const slider = document.querySelector('section.fabric input[type=range]');"
        f" slider.value = {place}; slider.dispatchEvent(new Event('input')); }})()"
    )


def test_the_slider_moves_chunks(browser: Browser, page: Path) -> None:
    with browser.tab(page) as tab:
        seen = []
        for place in (10, 400, 800):
            move_slider(tab, place)
            seen.append((said(tab), picture(tab)))
        assert len({text for text, _ in seen}) == 3
        assert len({drawn for _, drawn in seen}) == 3
        assert any(" 0 chunks" not in text for text, _ in seen)
        assert is_quiet(tab)


def test_a_chunk_is_drawn_where_its_crossing_says(browser: Browser, page: Path) -> None:
    """Halfway through a crossing, the middle of the link has the colour of a chunk, and before it not."""
    section = document_of(page, "fabric")
    motion = section["runs"][0]["motion"]
    index = max(range(len(motion["start"])), key=lambda number: motion["took"][number])
    start, took = motion["start"][index], motion["took"][index]
    line = section["lines"][motion["line"][index]]
    assert len(line) == 4
    x, y = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    left, top, right, bottom = section["bounds"]
    look = f"""(() => {{
      const canvas = document.querySelector('canvas.fabric'), width = canvas.clientWidth;
      const scale = Math.min(width / ({right} - {left}), 640 / ({bottom} - {top}), 1.6);
      const x = scale * ({x} - {left}) + (width - scale * ({right} - {left})) / 2, y = scale * ({y} - {top});
      return [...canvas.getContext('2d').getImageData(Math.round(x) - 6, Math.round(y) - 6, 12, 12).data];
    }})()"""
    with browser.tab(page) as tab:
        seen = []
        for moment in (start + took // 2, 0 if start > took else start + took + took // 2):
            move_slider(tab, round(1000 * moment / motion["end"]))
            seen.append(tab.run(look))
        assert seen[0] != seen[1]


def test_keys_move_the_slider_and_press_the_buttons(browser: Browser, page: Path) -> None:
    with browser.tab(page) as tab:
        tab.run("document.querySelector('section.fabric input[type=range]').focus()")
        before = said(tab)
        tab.press("ArrowRight", 39)
        assert said(tab) != before
        tab.run("[...document.querySelectorAll('button')].find((b) => b.textContent === 'Next step').focus()")
        before = said(tab)
        tab.press("Enter", 13, text="\r")
        assert said(tab) != before
        assert is_quiet(tab)


def test_play_goes_on_by_itself_and_pauses(browser: Browser, page: Path) -> None:
    wait = "new Promise((done) => setTimeout(() => done(1), 400))"
    with browser.tab(page) as tab:
        before = said(tab)
        tab.run("document.querySelector('section.fabric button').click()")
        tab.run(wait)
        assert said(tab) != before
        tab.run("document.querySelector('section.fabric button').click()")
        paused = said(tab)
        tab.run(wait)
        assert said(tab) == paused


def document_of(page: Path, kind: str) -> dict[str, Any]:
    """The first section of a kind in the document that stands in a page."""
    text = page.read_text("utf-8").partition('id="document">')[2].partition("</script>")[0]
    found = next(section for section in json.loads(text)["sections"] if section["kind"] == kind)
    assert isinstance(found, dict)
    return found


def test_the_chart_draws_the_numbers_of_the_json(
    browser: Browser, page: Path, compared: list[weft.Comparison]
) -> None:
    with browser.tab(page) as tab:
        data = tab.run("document.querySelector('div.chart').chart.data.map((column) => [...column])")
        labels = tab.run("document.querySelector('div.chart').chart.series.map((line) => line.label)")
        places = tab.run(
            "(() => { const plot = document.querySelector('div.chart').chart;"
            " return plot.data[1].map((value) => plot.valToPos(value, 'y')); })()"
        )
        drawn = tab.run("document.querySelector('div.chart canvas').toDataURL().length")
    documents = [one.to_dict() for one in compared]
    assert data[0] == [one["size_bytes"] for one in documents]
    for label, column in zip(labels[1:], data[1:], strict=True):
        for one, seconds in zip(documents, column, strict=True):
            rows = {row["label"]: row["seconds"] for row in one["results"]}
            assert seconds == ({"bound": one["bound_seconds"]} | rows)[label]
    assert labels[-1] == "bound"
    assert places[0] > places[1]  # a longer time is drawn higher up
    assert drawn > 2000


def test_the_table_below_the_chart_has_the_same_numbers(
    browser: Browser, page: Path, compared: list[weft.Comparison]
) -> None:
    with browser.tab(page) as tab:
        cells = tab.run(
            "[...document.querySelectorAll('section.chart details td')].map((td) => td.textContent)"
        )
    for one in compared:
        assert weft.units.human_seconds(one.bound.seconds) in cells


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (380, False)])
def test_a_page_fits_its_window_in_either_scheme(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    with browser.tab(page, width=width, dark=dark) as tab:
        assert tab.run("document.documentElement.scrollWidth") <= width
        shade = tab.run("getComputedStyle(document.body).backgroundColor")
        assert (shade == "rgb(255, 255, 255)") is not dark
        assert is_quiet(tab)


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    row = {"algorithm": HOSTILE, "label": HOSTILE, "verified": True, "seconds": 0.5, "fraction_of_bound": 0.2}
    result = {
        "topology": HOSTILE, "collective": HOSTILE, "size_bytes": 1 << 20, "bound_seconds": 0.1,
        "bound_explanation": HOSTILE, "results": [row],
        "skipped": [{"algorithm": HOSTILE, "reason": HOSTILE}],
    }  # fmt: skip
    track = {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": HOSTILE}}
    span = {"name": HOSTILE, "ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [track, span]}), "utf-8")
    larger = result | {"size_bytes": 1 << 22}
    path = tmp_path / "report.html"
    weft.report(result, larger, str(trace), output=path, title=HOSTILE)
    with browser.tab(path) as tab:
        assert tab.run("document.title") == HOSTILE
        assert tab.run("document.querySelector('h1').textContent") == HOSTILE
        assert tab.run("document.querySelectorAll('img, b').length") == 0
        assert HOSTILE in tab.run("[...document.querySelectorAll('td')].map((cell) => cell.textContent)")
        assert is_quiet(tab)


def test_the_policy_refuses_a_script_that_came_later(browser: Browser, tmp_path: Path) -> None:
    """The test of the test: what slips in is neither run nor fetched, and shows up as a complaint."""
    path = tmp_path / "report.html"
    html = make_page(make_document([weft.load_topology("ring:4")]))
    path.write_text(html.replace("</body>", "<script>window.slipped = 1</script></body>"), "utf-8")
    with browser.tab(path) as tab:
        assert tab.run("typeof window.slipped") == "undefined"
        assert len(tab.complaints) == 1


def test_a_training_run_shows_its_timeline_and_groups(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    found = weft.train("resnet50", "switch:4@bw=1.25GB/s,lat=25us", iterations=3)
    weft.report(found, output=path)
    with browser.tab(path) as tab:
        before = tab.run("document.querySelector('canvas.timeline').toDataURL()")
        tab.run(
            "(() => { const zoom = document.querySelector('section.timeline input'); zoom.value = 600;"
            " zoom.dispatchEvent(new Event('input')); })()"
        )
        assert tab.run("document.querySelector('canvas.timeline').toDataURL()") != before
        cells = tab.run("[...document.querySelectorAll('dd')].map((cell) => cell.textContent)")
        assert weft.units.human_seconds(found.seconds) in cells
        assert is_quiet(tab)


def test_without_a_run_lines_and_legend_show_speeds(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    weft.report(weft.load_topology(SPEC), output=path)
    with browser.tab(path) as tab:
        legend = tab.run("[...document.querySelectorAll('.legend li')].map((one) => one.textContent)")
        assert legend == ["rank", "switch", "100 GB/s, 12 links", "10 GB/s, 4 links"]
        colours = tab.run(
            "[...document.querySelectorAll('.legend .swatch')].map("
            " (one) => getComputedStyle(one).backgroundColor)"
        )
        assert len(set(colours)) == 4
        assert "rgba(0, 0, 0, 0)" not in colours
        assert is_quiet(tab)


def test_a_large_cluster_is_small_and_painted(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    weft.report(weft.load_topology("rails:128x8"), output=path)
    assert path.stat().st_size < 300_000
    with browser.tab(path) as tab:
        assert tab.first_paint_ms() > 0
        assert "mean use" in tab.run("document.querySelector('section.fabric p').textContent")
        assert is_quiet(tab)
