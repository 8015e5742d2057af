"""`weft._core` needs no particular system: it includes the standard library, nanobind and its own headers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
CPP = ROOT / "cpp"
LISTS = ("SHARED", "CORE", "LINUX", "RUNTIME")
KERNELS = tuple(f"cpp/runtime/kernels_{level}.cpp" for level in ("plain", "avx2", "avx512"))

# The C++ library's own headers have no ending; those of POSIX, Linux and of processors end in .h.
PORTABLE = re.compile(r"[a-z_0-9]+|nanobind/.*")


def sources(*lists: str) -> list[str]:
    """Return what `CMakeLists.txt` has in its lists of these names."""
    text = (ROOT / "CMakeLists.txt").read_text("utf-8")
    found: list[str] = []
    for name in lists:
        match = re.search(rf"set\(WEFT_{name}_SOURCES\n(.*?)\)", text, re.DOTALL)
        assert match is not None, name
        found += match[1].split()
    return found


def reached_from(names: Iterable[str]) -> set[Path]:
    """Return these sources, and all headers of Weft that they include by any way."""
    waiting, found = [ROOT / name for name in names], set[Path]()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            included = re.findall(r'^#include "(.+)"', path.read_text("utf-8"), re.MULTILINE)
            waiting += [CPP / name for name in included]
    return found


def foreign_headers(names: Iterable[str]) -> list[str]:
    """Return every header that is neither Weft's own nor portable, with the file that includes it."""
    return [
        f"{path.relative_to(ROOT)}: {header}"
        for path in sorted(reached_from(names))
        for header in re.findall(r"^#\s*include\s*<(.+)>", path.read_text("utf-8"), re.MULTILINE)
        if not PORTABLE.fullmatch(header)
    ]


def test_the_core_includes_no_header_of_a_system() -> None:
    core = sources("SHARED", "CORE")
    assert len(core) > 25
    assert foreign_headers(core) == []


def test_the_core_includes_nothing_of_the_runtime() -> None:
    reached = reached_from(sources("SHARED", "CORE"))
    assert [path for path in reached if CPP / "runtime" in path.parents] == []


def test_the_check_finds_the_headers_of_linux() -> None:
    assert foreign_headers(["cpp/common/huge_pages.cpp"]) == ["cpp/common/huge_pages.cpp: sys/mman.h"]
    assert "cpp/runtime/shared_memory.cpp: linux/futex.h" in foreign_headers(sources("RUNTIME"))


def test_every_source_is_in_one_list() -> None:
    listed = [*sources(*LISTS), *KERNELS]
    assert sorted(listed) == sorted(str(path.relative_to(ROOT)) for path in CPP.rglob("*.cpp"))
