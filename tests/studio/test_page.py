"""The page of the studio in a real Chromium: it compares anew after an edit, and talks to nothing else."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Browser, Tab, start_browser
from support.studio import Studio, start_studio

import weft

HOSTILE = "</script><img src=x onerror=alert(1)><b>bold</b>&amp;'\"`"
DONE = "document.querySelector('.status')?.textContent.includes('is the fastest of')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as found:
        yield found


def status(tab: Tab) -> str:
    return str(tab.run("document.querySelector('.status').textContent"))


def fill(tab: Tab, form: str, **values: str) -> None:
    """Put values into a form and submit it; the comparison of before is not mistaken for the new one."""
    tab.run("document.querySelector('.status').textContent = 'asked'")
    for name, value in values.items():
        tab.run(
            f"(() => {{ const one = document.forms['{form}'].elements['{name}'];"
            f" one.value = {json.dumps(value)};"
            " one.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )
    tab.run(f"document.forms['{form}'].requestSubmit()")


def texts(tab: Tab, selector: str) -> list[str]:
    found = tab.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")
    assert isinstance(found, list)
    return found


def is_quiet(tab: Tab, studio: Studio) -> bool:
    """Whether the page asked the studio alone, and neither complained nor threw."""
    own = f"http://127.0.0.1:{studio.port}/"
    assert [url for url in tab.addresses if not url.startswith((own, "data:", f"blob:{own}"))] == []
    assert not any(studio.token in url for url in tab.addresses[1:])
    assert tab.complaints == []
    return True


def test_the_page_compares_anew_after_each_edit_and_undo(browser: Browser, studio: Studio) -> None:
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        whole = status(tab)
        fill(tab, "edge", action="slow", a="0", b="1", speed="10%")
        tab.wait_until(DONE)
        slow = status(tab)
        assert slow != whole
        assert texts(tab, "ol.edits li") == ["slow 0-1 to 10 % of its speed"]
        fill(tab, "edge", action="cut", a="0", b="1")
        tab.wait_until(DONE)
        assert texts(tab, "ol.edits li")[1] == "cut 0-1"
        fill(tab, "edge", action="add", a="0", b="10", speed="25GB/s", latency="1us")
        tab.wait_until(DONE)
        assert len(texts(tab, "ol.edits li")) == 3
        assert "64 links" in texts(tab, "section.fabric p")[0]
        for left in (2, 1, 0):
            tab.run("document.querySelector('.status').textContent = 'asked'")
            tab.run("document.querySelector('button[name=undo]').click()")
            tab.wait_until(f"{DONE} && document.querySelectorAll('ol.edits li').length === {left}")
        assert status(tab) == whole
        assert is_quiet(tab, studio)


def test_rows_are_shown_before_the_last_algorithm_is_done(browser: Browser, studio: Studio) -> None:
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        tab.run(
            "(() => { window.seen = []; new MutationObserver(() => window.seen.push("
            " [document.querySelectorAll('section.table tbody tr').length,"
            "  document.querySelector('.status').textContent]))"
            " .observe(document.getElementById('results'), {childList: true}); })()"
        )
        fill(tab, "cluster", topology="torus:8x8")
        tab.wait_until(DONE)
        seen = tab.run("window.seen")
        early = [rows for rows, said in seen if " of " in said and "tried" in said]
        assert early[0] < early[-1]
        assert is_quiet(tab, studio)


def test_size_and_algorithms_are_chosen(browser: Browser, studio: Studio) -> None:
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        tab.run(
            "for (const box of document.querySelectorAll('.algorithms input'))"
            " if (['ring', 'multitree'].includes(box.value)) box.click();"
        )
        fill(tab, "compare", size="1KiB")
        tab.wait_until("document.querySelector('.status').textContent.includes('fastest of 2')")
        assert any("1KiB" in title for title in texts(tab, "h2"))
        rows = tab.run(
            "[...document.querySelectorAll('section.table')].find("
            "(one) => one.querySelector('h2').textContent.startsWith('Algorithms'))"
            ".querySelectorAll('tbody tr').length"
        )
        assert rows == 2
        assert is_quiet(tab, studio)


def test_the_headline_says_where_the_bound_holds(browser: Browser, studio: Studio) -> None:
    found = weft.compare("switch:4", "64MiB")
    assert found.best is not None
    condition = found.to_dict()["bound_condition"]
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        fill(tab, "cluster", topology="switch:4")
        tab.wait_until(f"{DONE} && document.forms.cluster.elements.topology.value === 'switch:4'")
        assert status(tab).endswith(f" % of the bound, which holds where {condition}.")
        assert is_quiet(tab, studio)


def test_a_click_on_a_line_chooses_its_cable(browser: Browser, studio: Studio) -> None:
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        fill(tab, "cluster", topology="ring:3")
        tab.wait_until(f"{DONE} && document.querySelector('canvas.fabric').clientHeight > 200")
        tab.run(
            "(() => { const canvas = document.querySelector('canvas.fabric');"
            " const box = canvas.getBoundingClientRect();"
            " for (let y = 4; y < box.height; y += 4) for (let x = 4; x < box.width; x += 4) {"
            "   canvas.dispatchEvent(new MouseEvent('click', {clientX: box.left + x, clientY: box.top + y}));"
            "   if (document.forms.edge.elements.a.value) return; } })()"
        )
        ends = {tab.run(f"document.forms.edge.elements.{name}.value") for name in ("a", "b")}
        assert len(ends) == 2
        assert ends <= {"0", "1", "2"}
        assert is_quiet(tab, studio)


def test_hostile_names_stay_text(browser: Browser, studio: Studio) -> None:
    switch = "<img src=x onerror=alert(2) x="  # names of switches have no >
    text = (
        f"name = {json.dumps(HOSTILE)}\nranks = 2\nswitches = 1\nswitch_names = [{json.dumps(switch)}]\n"
        "hosts = [[0], [1]]\nlinks = [\n"
        '{src = 0, dst = "s0", bandwidth = "10GB/s", latency = "1us", duplex = true},\n'
        '{src = 1, dst = "s0", bandwidth = "10GB/s", latency = "1us", duplex = true}]\n'
    )
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        tab.run("document.querySelector('.status').textContent = 'asked'")
        tab.run(
            "(() => { const files = new DataTransfer();"
            f" files.items.add(new File([{json.dumps(text)}], {json.dumps(HOSTILE)}));"
            " const input = document.querySelector('input[type=file]'); input.files = files.files;"
            " input.dispatchEvent(new Event('change')); })()"
        )
        tab.wait_until(DONE)
        assert tab.run("document.forms.cluster.elements.topology.value") == HOSTILE
        assert any(HOSTILE in note for note in texts(tab, "p.note"))
        fill(tab, "edge", action="slow", a="0", b=switch, speed="50%")
        tab.wait_until(DONE)
        assert texts(tab, "ol.edits li") == [f"slow 0-{switch} to 50 % of its speed"]
        assert tab.run("document.querySelectorAll('img, b, main script').length") == 0
        assert is_quiet(tab, studio)


def test_a_problem_is_shown_and_the_cluster_stays(browser: Browser, studio: Studio) -> None:
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        fill(tab, "edge", action="cut", a="0", b="15")
        tab.wait_until("!document.querySelector('.problem').hidden")
        assert "there is no" in texts(tab, ".problem")[0]
        assert texts(tab, "ol.edits li") == []


def test_the_token_leaves_the_address_and_a_reload_keeps_the_cluster(
    browser: Browser, studio: Studio
) -> None:
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        fill(tab, "edge", action="cut", a="0", b="1")
        tab.wait_until(f"{DONE} && document.querySelectorAll('ol.edits li').length === 1")
        assert tab.run("location.href") == f"http://127.0.0.1:{studio.port}/"
        tab.reload()
        tab.wait_until(f"{DONE} && document.querySelectorAll('ol.edits li').length === 1")


def test_without_the_token_the_page_says_what_to_do(browser: Browser, studio: Studio) -> None:
    with browser.tab(f"http://localhost:{studio.port}/") as tab:
        tab.wait_until("document.querySelector('.problem')")
        assert "token" in texts(tab, ".problem")[0]


def test_a_studio_that_has_ended_is_told_with_what_to_do(browser: Browser) -> None:
    """Both before an edit and in the middle of a comparison."""
    with start_studio("torus:4x4") as ended, browser.tab(ended.url) as tab:
        tab.wait_until(DONE)
        ended.stop(signal.SIGKILL)
        fill(tab, "edge", action="cut", a="0", b="1")
        tab.wait_until("!document.querySelector('.problem').hidden")
        assert "start weft studio again" in texts(tab, ".problem")[0]
    with start_studio("torus:16x16") as ended, browser.tab(ended.url) as tab:
        tab.wait_until("document.querySelector('.status')?.textContent.includes('algorithms tried')")
        ended.stop(signal.SIGKILL)
        tab.wait_until("!document.querySelector('.problem').hidden")
        assert "start weft studio again" in texts(tab, ".problem")[0]
        assert status(tab) == "Nothing was compared."


def test_a_session_that_was_dropped_is_told_with_what_to_do(browser: Browser, studio: Studio) -> None:
    with browser.tab(studio.url) as tab:
        tab.wait_until(DONE)
        studio.ask("DELETE", tab.run("'/api/sessions/' + sessionStorage.getItem('weft-studio-session')"))
        fill(tab, "edge", action="cut", a="0", b="1")
        tab.wait_until("!document.querySelector('.problem').hidden")
        assert "Reload the page" in texts(tab, ".problem")[0]
        tab.reload()
        tab.wait_until(DONE)


def test_the_page_of_the_api_lists_every_route_and_asks_for_nothing(browser: Browser, studio: Studio) -> None:
    paths = studio.ask("GET", "/openapi.json").document["paths"]
    with browser.tab(f"http://127.0.0.1:{studio.port}/api") as tab:
        cells = texts(tab, "td")
        for path, methods in paths.items():
            for method in methods:
                assert f"{method.upper()} {path}" in cells
        assert len(tab.addresses) == 1
        assert tab.complaints == []


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (380, False)])
def test_the_page_fits_its_window_in_either_scheme(
    browser: Browser, studio: Studio, width: int, dark: bool, tmp_path: Path
) -> None:
    with browser.tab(studio.url, width=width, dark=dark) as tab:
        tab.wait_until(DONE)
        fill(tab, "edge", action="slow", a="0", b="1", speed="10%")
        tab.wait_until(DONE)
        assert tab.run("document.documentElement.scrollWidth") <= width
        shade = tab.run("getComputedStyle(document.body).backgroundColor")
        assert (shade == "rgb(255, 255, 255)") is not dark
        tab.screenshot(tmp_path / "studio.png")
        assert is_quiet(tab, studio)
