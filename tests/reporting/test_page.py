"""The page of a report in a real Chromium: what is drawn, what moves, and that nothing is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser, Tab, start_browser

import weft
from weft.reporting import make_document, make_page, motion

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


def test_chunks_that_set_out_do_not_hide_the_numbers_of_ranks(browser: Browser, tmp_path: Path) -> None:
    """The middle of each node looks as without a run, on straight links and on bows."""
    topology = weft.load_topology("torus:4x4")
    weft.report(topology, output=tmp_path / "still.html")
    run = tmp_path / "run.html"
    weft.report(weft.algorithms.multitree.all_reduce(topology), output=run, size="1MiB")
    section = document_of(run, "fabric")
    assert {len(line) for line in section["lines"]} == {4, 8}
    assert section["runs"][0]["motion"]["start"][0] == 0
    left, top, right, bottom = section["bounds"]
    look = f"""(() => {{
      const canvas = document.querySelector('canvas.fabric'), width = canvas.clientWidth;
      const scale = Math.min(width / ({right} - {left}), 640 / ({bottom} - {top}), 1.6);
      const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return {json.dumps([node[:2] for node in section["nodes"]])}.map(([nodeX, nodeY]) => {{
        const x = Math.round(scale * (nodeX - {left}) + (width - scale * ({right} - {left})) / 2);
        const y = Math.round(scale * (nodeY - {top}));
        return [...Array(64).keys()].flatMap((index) => {{
          const at = 4 * ((y - 4 + Math.floor(index / 8)) * canvas.width + x - 4 + index % 8);
          return [...all.slice(at, at + 4)];
        }});
      }});
    }})()"""
    seen = []
    for path in (tmp_path / "still.html", run):
        with browser.tab(path) as tab:
            seen.append(tab.run(look))
            assert is_quiet(tab)
    assert seen[0] == seen[1]


def test_lines_have_the_colour_of_their_use(browser: Browser, tmp_path: Path) -> None:
    """The middle of each line has the colour of the share of the time that its link is busy."""
    path = tmp_path / "report.html"
    spec = "ring:6@bw=10GB/s+speed=0-1:40GB/s,1-2:20GB/s,2-3:15GB/s+fail=0-5"
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology(spec))
    weft.report(schedule, output=path, size="1MiB")
    section = document_of(path, "fabric")
    busy = section["runs"][0]["busy"]
    levels = [0 if share <= 0 else 1 + min(int(5 * share * 0.999999), 4) for share in busy]
    assert len(set(levels)) >= 3
    left, top, right, bottom = section["bounds"]
    middles = [((line[0] + line[-2]) / 2, (line[1] + line[-1]) / 2) for line in section["lines"]]
    assert {len(line) for line in section["lines"]} == {4}
    look = f"""(() => {{
      const canvas = document.querySelector('canvas.fabric'), width = canvas.clientWidth;
      const scale = Math.min(width / ({right} - {left}), 640 / ({bottom} - {top}), 1.6);
      const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return {json.dumps(middles)}.map(([middleX, middleY]) => {{
        const x = Math.floor(scale * (middleX - {left}) + (width - scale * ({right} - {left})) / 2);
        const y = Math.floor(scale * (middleY - {top}));
        return [...Array(9).keys()].map((index) => {{
          const at = 4 * ((y - 1 + Math.floor(index / 3)) * canvas.width + x - 1 + index % 3);
          return [...all.slice(at, at + 3)];
        }});
      }});
    }})()"""
    with browser.tab(path) as tab:
        names = "['level0', 'level1', 'level2', 'level3', 'level4', 'level5']"
        shown = tab.run(
            f"{names}.map((name) => {{ const one = document.createElement('span'); one.className = name;"
            " document.body.append(one); return getComputedStyle(one).backgroundColor"
            ".match(/[0-9]+/g).map(Number); })"
        )
        seen = tab.run(look)
        assert len({tuple(colour) for colour in shown}) == 6
        for level, pixels in zip(levels, seen, strict=True):
            assert shown[level] in pixels
        assert is_quiet(tab)


def test_a_run_in_steps_moves_its_chunks_with_the_slider(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(motion, "_MOST_RECORDED", 10)
    path = tmp_path / "report.html"
    weft.report(weft.algorithms.ring.all_reduce(weft.load_topology("ring:6")), output=path)
    moving = document_of(path, "fabric")["runs"][0]["motion"]
    assert moving["unit"] == "steps"
    with browser.tab(path) as tab:
        seen = []
        for step in (0, 3, 7):
            moment = 1000 * step + 500
            move_slider(tab, round(1000 * moment / moving["end"]))
            shown = round(round(1000 * moment / moving["end"]) * moving["end"] / 1000)
            ways = zip(moving["start"], moving["took"], moving["step"], strict=True)
            under_way = [one for start, took, one in ways if start <= shown < start + took]
            assert set(under_way) == {step}
            assert said(tab).startswith("step ")
            assert said(tab).endswith(f": {len(under_way)} chunks under way; step {step}")
            seen.append(picture(tab))
        assert len(set(seen)) == 3
        assert is_quiet(tab)


def test_bars_are_as_long_as_the_numbers_of_the_json(browser: Browser, tmp_path: Path) -> None:
    found = weft.compare(SPEC, "16MiB", algorithms=["ring", "multitree", "forest"])
    path = tmp_path / "report.html"
    weft.report(found, output=path)
    document = found.to_dict()
    seconds = {row["label"]: row["seconds"] for row in document["results"]}
    most = max(document["bound_seconds"], *seconds.values())
    with browser.tab(path) as tab:
        bars = tab.run(
            "[...document.querySelectorAll('.bar-group')].map((group) => [group.querySelector('.bar-label')"
            ".textContent, group.querySelector('rect').width.baseVal.value, group.querySelector('line')"
            ".x1.baseVal.value, group.querySelector('.value').textContent])"
        )
        assert [bar[0] for bar in bars] == list(seconds)
        for label, width, bound, text in bars:
            assert width == pytest.approx(1000 * seconds[label] / most, rel=1e-5)
            assert bound == pytest.approx(1000 * document["bound_seconds"] / most, rel=1e-5)
            assert float(text.split()[0]) == pytest.approx(
                seconds[label] * {"s": 1, "ms": 1e3, "µs": 1e6, "us": 1e6}[text.split()[1]], rel=0.01
            )
        assert is_quiet(tab)


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
        assert tab.run(
            "[...document.querySelectorAll('td.number, td.whole')].filter(cell => {"
            " const text = document.createRange(); text.selectNodeContents(cell);"
            " return new Set([...text.getClientRects()].map(place => Math.round(place.top))).size > 1;"
            "}).length"
        ) == 0  # fmt: skip
        assert is_quiet(tab)


def test_names_of_links_are_not_broken_on_a_small_screen(browser: Browser, page: Path) -> None:
    with browser.tab(page, width=380) as tab:
        lines = tab.run(
            "[...document.querySelectorAll('td.word, section.words p')].flatMap((cell) => {"
            " const words = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT); const found = [];"
            " while (words.nextNode())"
            "  for (const name of words.currentNode.data.matchAll(/[^ ,]+->[^ ,.]+/g)) {"
            "  const place = document.createRange(); place.setStart(words.currentNode, name.index);"
            "  place.setEnd(words.currentNode, name.index + name[0].length);"
            "  found.push(new Set([...place.getClientRects()].map((one) => Math.round(one.top))).size); }"
            " return found; })"
        )
        assert len(lines) > 20
        assert set(lines) == {1}
        assert tab.run("document.documentElement.scrollWidth") <= 380


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
        legend = tab.run(
            "[...document.querySelectorAll('section.timeline li')].map((one) => one.textContent)"
        )
        assert legend == ["forward", "backward", "wait", "other colours: one for each group"]
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
