"""The committed stubs of the extensions are what the extensions are."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from nanobind.stubgen import StubGen

from weft import _core, _runtime

PACKAGE = Path(__file__).parents[2] / "src" / "weft"


@pytest.mark.parametrize("extension", [_core, _runtime], ids=["core", "runtime"])
def test_committed_stub_equals_the_generated_one(extension: ModuleType) -> None:
    generator = StubGen(extension)
    generator.put(extension)
    stub = PACKAGE / f"{extension.__name__.rpartition('.')[2]}.pyi"
    assert stub.read_text(encoding="utf-8") == generator.get(), "cpp/bindings changed: run `make stub`"
