"""A real Chromium for tests of pages: driven through a pipe, without any package beside the browser.

`Browser` starts one with an empty profile; `Tab` opens a page, runs JavaScript in it, presses keys, and keeps
what must not happen: requests, errors of the console, exceptions. The protocol is Chromium's own
(``--remote-debugging-pipe``): JSON messages that end with a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE_S = 60.0


class Browser:
    """One Chromium process, and the pipe to it."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process, self._write, self._read = process, write, read
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            came = self._receive(deadline - time.monotonic())
            # Events that came in one piece with the answer, also behind it, belong to the next wait.
            self.events += [message for message in came if message.get("id") != self._number]
            for answer in came:
                if answer.get("id") == self._number:
                    assert "error" not in answer, (method, answer["error"])
                    found = answer["result"]
                    assert isinstance(found, dict)
                    return found
        raise TimeoutError(f"{method}: no answer from the browser in {PATIENCE_S:.0f} s")

    def wait_for(self, method: str) -> None:
        """Wait until an event has come."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(event.get("method") == method for event in self.events):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{method} did not happen in {PATIENCE_S:.0f} s")
            self.listen(deadline - time.monotonic())

    def listen(self, patience: float) -> None:
        """Keep the events that come next."""
        self.events += self._receive(patience)

    def _receive(self, patience: float) -> list[dict[str, Any]]:
        ready, _, _ = select.select([self._read], [], [], max(patience, 0))
        if not ready:
            return []
        data = os.read(self._read, 1 << 20)
        assert data, f"the browser has ended, with {self._process.poll()}"
        *whole, self._rest = (self._rest + data).split(b"\0")
        return [json.loads(text) for text in whole]

    @contextmanager
    def tab(
        self, page: Path | str, *, width: int = 1000, height: int = 800, dark: bool = False
    ) -> Iterator[Tab]:
        """Open a file, or an address, in a tab of its own, and wait until it is drawn."""
        self.events.clear()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        try:
            for domain in ("Page", "Runtime", "Network", "Log"):
                tab.call(f"{domain}.enable")
            tab.call(
                "Emulation.setDeviceMetricsOverride",
                width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
            )  # fmt: skip
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            tab.call("Emulation.setEmulatedMedia", features=[scheme])
            tab.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
            self.wait_for("Page.loadEventFired")
            tab.run(
                "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
            )
            yield tab
        finally:
            self.call("Target.closeTarget", targetId=target)


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to this tab."""
        return self._browser.call(method, self._session, **params)

    def run(self, expression: str) -> Any:
        """Value of a JavaScript expression in the page; promises are waited for."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def first_paint_ms(self) -> float:
        """Milliseconds from opening the page to its first contentful paint.

        Chromium reports a paint some time after it was made, so the entry is waited for. On a busy machine
        the number says more about the machine than about the page; tests ask only that there is one.
        """
        found = self.run(
            f"new Promise((done) => {{ setTimeout(() => done(null), {500 * PATIENCE_S});"
            " new PerformanceObserver((list) => {"
            "   const entry = list.getEntriesByName('first-contentful-paint')[0];"
            "   if (entry) done(entry.startTime); }).observe({type: 'paint', buffered: true}); })"
        )
        assert found is not None, f"nothing was painted in {PATIENCE_S / 2:.0f} s"
        return float(found)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more
            )

    def screenshot(self, path: Path) -> None:
        """Keep a picture of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 8000), "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def reload(self) -> None:
        """Load the page again, and wait until it is there."""
        self._browser.events.clear()
        self.call("Page.reload")
        self._browser.wait_for("Page.loadEventFired")

    def follow(self, page: Path, address: str) -> None:
        """Open a page that goes on to an address by itself, and wait until the tab is there."""
        self._browser.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + PATIENCE_S
        while not any(
            event.get("method") == "Page.frameNavigated" and event["params"]["frame"]["url"] == address
            for event in self._browser.events
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the page did not go on to {address} in {PATIENCE_S:.0f} s")
            self._browser.listen(deadline - time.monotonic())

    def wait_until(self, condition: str) -> None:
        """Wait until a JavaScript expression holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition} did not come true in {PATIENCE_S:.0f} s")
            time.sleep(0.02)

    @property
    def addresses(self) -> list[str]:
        """All addresses that were asked for, the page's own first."""
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    @property
    def requests(self) -> list[str]:
        """Addresses that the page asked for, but for itself and for what it carries in it."""
        found = self.addresses
        return [url for url in found if not url.startswith(("data:", "file:"))] + found[1:]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, what the policy refused, and exceptions."""
        wanted = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [
            json.dumps(event["params"]) for event in self._browser.events if event.get("method") in wanted
        ]


@contextmanager
def start_browser() -> Iterator[Browser]:
    """Start Chromium with an empty profile, and end it with all its processes.

    Raises
    ------
    FileNotFoundError
        If there is none; tools/system-packages installs it.
    """
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise FileNotFoundError("chromium is not installed; tools/system-packages installs it")
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(prefix="weft-browser-") as profile:
        # Chromium reads commands from descriptor 3 and writes answers to 4, which the shell arranges.
        plumbing = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        words = [
            "bash",
            "-c",
            plumbing,
            "chromium",
            program,
            *FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        process = subprocess.Popen(
            words,
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        browser = Browser(process, write, read)
        try:
            yield browser
        finally:
            with suppress(Exception):
                browser.call("Browser.close")
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(write)
            os.close(read)
            _empty(Path(profile))


def _empty(profile: Path) -> None:
    """Remove what late processes of the browser may still be writing."""
    for _ in range(300):
        shutil.rmtree(profile, ignore_errors=True)
        if not profile.exists():
            break
        time.sleep(0.1)
    profile.mkdir(exist_ok=True)  # so that its owner finds it
