"""A real ``weft studio`` for tests: its process, and requests to it as any program would send them."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 60.0
_ADDRESS = re.compile(r"http://127\.0\.0\.1:([0-9]+)/#(\S+)")


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of a comparison."""
        return [json.loads(line) for line in self.body.splitlines()]


@dataclass(frozen=True)
class Studio:
    """One that runs."""

    process: subprocess.Popen[str]
    port: int
    token: str

    @property
    def url(self) -> str:
        """The address for a browser, with the token."""
        return f"http://127.0.0.1:{self.port}/#{self.token}"

    def send(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str | None] | None = None
    ) -> http.client.HTTPConnection:
        """Send a request; a header that is None is left out, and bytes are sent as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        all_headers: dict[str, str | None] = {"Authorization": f"Bearer {self.token}"}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            all_headers["Content-Type"] = "application/json"
        kept = {name: value for name, value in (all_headers | (headers or {})).items() if value is not None}
        connection.request(method, path, data, kept)
        return connection

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str | None] | None = None
    ) -> Answer:
        """Send a request and read the whole answer."""
        connection = self.send(method, path, body, headers=headers)
        try:
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def open(self, topology: str) -> str:
        """Begin a session; its path."""
        answer = self.ask("POST", "/api/sessions", {"topology": topology})
        assert answer.status == 201, answer.body
        return f"/api/sessions/{answer.document['session']}"

    def counts(self) -> dict[str, int]:
        """What became of comparisons."""
        found = self.ask("GET", "/api/counts").document
        assert isinstance(found, dict)
        return found

    def settle(self) -> dict[str, int]:
        """Wait until nothing runs or waits; the counts then."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.counts())["running"] or found["waiting"]:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Send a signal; exit code and what was written to standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors


@contextmanager
def start_studio(*words: str, environment: Mapping[str, str] | None = None) -> Iterator[Studio]:
    """Start a studio on any free port, with some variables of the environment changed, and end it."""
    command = [sys.executable, "-m", "weft", "studio", "--no-browser", *words]
    pipe = subprocess.PIPE
    # Whoever runs the tests in the background has them ignore Ctrl-C, and children inherit that.
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables)
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        line = process.stdout.readline() if ready else ""
        found = _ADDRESS.search(line)
        assert found is not None, (line, process.poll())
        yield Studio(process, int(found[1]), found[2])
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        except ValueError:
            pass  # its streams were read to the end already
