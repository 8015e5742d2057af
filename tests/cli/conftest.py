"""Running the command line inside the test's own process, through the very function that ``weft`` calls."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from cli.running import Outcome, Run

from weft.cli import main


@pytest.fixture
def weft(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run ``weft`` with some words, in an empty directory and a terminal of 120 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("WEFT_DEBUG", raising=False)

    def run(*words: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    return run
