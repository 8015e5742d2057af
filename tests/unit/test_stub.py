"""The committed stub of the extension is what the extension is."""

from __future__ import annotations

from pathlib import Path

from nanobind.stubgen import StubGen

from weft import _core

STUB = Path(__file__).parents[2] / "src" / "weft" / "_core.pyi"


def test_committed_stub_equals_the_generated_one() -> None:
    generator = StubGen(_core)
    generator.put(_core)
    assert STUB.read_text(encoding="utf-8") == generator.get(), "cpp/bindings changed: run `make stub`"
