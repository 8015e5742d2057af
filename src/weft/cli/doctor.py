"""``weft doctor``: what this installation has, what it lacks, and whether it works."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from weft.cli import options
from weft.cli.accelerator_facts import describe_alike, find_accelerators
from weft.cli.output import make_console, make_table, one_line, print_json
from weft.errors import printable

if TYPE_CHECKING:
    from weft.cli.console import Console

_REQUIRED: Final = ("numpy", "scipy", "click", "rich", "msgspec")
_CORE: Final = "weft._core"
_RUNTIME: Final = "weft._runtime"
_FEATURES: Final = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "asimd", "sve")


@dataclass(frozen=True, slots=True)
class Extra:
    """Something Weft can use and does without."""

    name: str
    purpose: str
    install: str
    package: str | None = None
    module: str | None = None
    programs: tuple[str, ...] = ()

    def find(self) -> str | None:
        """Version of the package, name of the module, or path of the program; or None."""
        if self.package is not None:
            return _version(self.package)
        if self.module is not None:
            return self.module if util.find_spec(self.module) else None
        return next((path for name in self.programs if (path := _find_program(name))), None)


def _find_program(name: str) -> str | None:
    """Path of a program: beside this Python, where pip puts programs, or as a shell finds it."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


EXTRAS: Final = (
    Extra("runtime", "running collectives", "on Linux, make build in the clone", module=_RUNTIME),
    Extra("torch", "training with PyTorch", "pip install torch", package="torch"),
    Extra("mpi4py", "running under mpirun and srun", "pip install mpi4py", package="mpi4py"),
    Extra("networkx", "topologies from networkx graphs", "pip install networkx", package="networkx"),
    Extra("starlette", "weft studio", "pip install starlette uvicorn", package="starlette"),
    Extra("Open MPI", "running under mpirun", "apt install openmpi-bin libopenmpi-dev", programs=("mpirun",)),
    Extra("iproute2", "emulated clusters", "apt install iproute2", programs=("ip",)),
    Extra(
        "chromium",
        "tests of reports in a browser",
        "apt install chromium",
        programs=("chromium", "chromium-browser", "google-chrome"),
    ),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold."""

    name: str
    ok: bool
    detail: str


@click.command("doctor", epilog=options.examples("weft doctor", "weft doctor --json"))
@options.as_json
def command(as_json: bool) -> None:
    """Check this installation.

    Shows versions, the machine with its GPUs, their driver, NCCL and RDMA devices, and optional tools with
    what they are for; then runs a self-test, which builds a ring all-reduce, verifies it, simulates it, and
    compares the time with the closed form. Exit code 1 if a check fails.
    """
    checks = run_checks()
    if as_json:
        extras = [
            {"name": e.name, "found": e.find(), "purpose": e.purpose, "install": e.install} for e in EXTRAS
        ]
        print_json(
            {
                "ok": all(check.ok for check in checks),
                "versions": versions(),
                "machine": machine(),
                "accelerators": find_accelerators().to_dict(),
                "extras": extras,
                "checks": [asdict(check) for check in checks],
            }
        )
    else:
        _show(checks, make_console())
    if not all(check.ok for check in checks):
        raise click.exceptions.Exit(1)


def run_checks() -> list[Check]:
    """Every check, each on its own: one that breaks does not hide the others."""
    found = []
    for name, check in CHECKS.items():
        try:
            ok, detail = check()
        except Exception as error:  # noqa: BLE001
            ok, detail = False, one_line(f"{type(error).__name__}: {error}", 200)
        found.append(Check(name, ok, detail))
    return found


def versions() -> dict[str, str | None]:
    """Versions of Weft, Python and what Weft needs."""
    found: dict[str, str | None] = {"weft": _version("weft"), "python": platform.python_version()}
    return found | {name: _version(name) for name in _REQUIRED}


def machine() -> dict[str, Any]:
    """System, processors, memory and directory."""
    text = Path("/proc/cpuinfo").read_text("utf-8", "replace") if Path("/proc/cpuinfo").exists() else ""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in lines.items()}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": platform.platform(),
        "processor": fields.get("model name", platform.processor() or platform.machine()),
        "cpus": usable,
        "features": [name for name in _FEATURES if name in flags],
        "memory_bytes": _memory_bytes(),
        "directory": os.environ.get("PWD", "."),
    }


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_extensions() -> tuple[bool, str]:
    """Load the two halves in C++; the one that runs collectives may be missing, but not be broken."""
    installed = _version("weft")
    names = [_CORE, _RUNTIME] if util.find_spec(_RUNTIME) else [_CORE]
    found = [importlib.import_module(name) for name in names]
    for extension in found:
        if (built := extension.version()) != installed:
            wrong = f"{extension.__name__} was built as {built}, but weft {installed} is installed"
            return False, f"{wrong}; run make build"
    return True, f"{installed}, {', '.join(Path(str(extension.__file__)).name for extension in found)}"


def _check_python() -> tuple[bool, str]:
    missing = [name for name in _REQUIRED if _version(name) is None]
    if missing:
        return False, f"missing {', '.join(missing)}; pip install {' '.join(missing)}"
    return sys.version_info >= (3, 11), f"{platform.python_version()} with all {len(_REQUIRED)} packages"


def _check_directory() -> tuple[bool, str]:
    try:
        with tempfile.TemporaryFile(dir="."):
            return True, "files can be written here"
    except OSError as error:
        return False, f"no file can be written here: {error.strerror}; change to another directory"


def _check_simulation() -> tuple[bool, str]:
    """Eight ranks in a ring: fourteen rounds, each a latency and an eighth of the buffer."""
    from weft.algorithms import registry
    from weft.simulation import simulate
    from weft.topology import load_topology
    from weft.units import human_seconds, transfer_ps
    from weft.verification import verify

    topology = load_topology("ring:8@bw=10GB/s,lat=1us")
    schedule = registry.find("ring").build(topology, "all_reduce")
    verify(schedule)
    size_bytes = 8 << 20
    found = simulate(schedule, size_bytes, segment_bytes=None).time_ps
    expected = 14 * (10**6 + transfer_ps(size_bytes // 8, 10 * 10**9))
    if found != expected:
        wrong = f"a ring on 8 ranks takes {found} ps, the closed form says {expected} ps; run make build"
        return False, wrong
    return True, f"ring on 8 ranks: verified, {human_seconds(found / 1e12)}, as the closed form says"


CHECKS: Final[dict[str, Callable[[], tuple[bool, str]]]] = {
    "python": _check_python,
    "extensions": _check_extensions,
    "directory": _check_directory,
    "self-test": _check_simulation,
}


def _show(checks: list[Check], console: Console) -> None:
    from rich.text import Text

    here = machine()
    memory = here["memory_bytes"]
    used = ", ".join(f"{name} {version or 'missing'}" for name, version in versions().items())
    console.print_facts(
        ("versions", used),
        ("system", printable(here["system"])),
        ("processor", f"{here['cpus']} x {printable(here['processor'])}"),
        ("features", " ".join(here["features"]) or "-"),
        ("memory", f"{memory / 2**30:.1f} GiB" if memory else "unknown"),
        ("directory", printable(here["directory"])),
    )
    _show_accelerators(console)
    console.print()
    table = make_table("optional", "found", "for", left=("optional", "found", "for"))
    table.columns[2].no_wrap = False
    for extra in EXTRAS:
        found = extra.find()
        purpose = extra.purpose if found else f"{extra.purpose}: {extra.install}"
        table.add_row(extra.name, Text(printable(found or "no"), "green" if found else "dim"), purpose)
    console.print_table(table)
    console.print()
    table = make_table("check", "", "result", left=("check", "", "result"))
    table.columns[2].no_wrap = False
    for check in checks:
        mark = Text("ok", "green") if check.ok else Text("FAILED", "bold red")
        table.add_row(check.name, mark, printable(check.detail))
    console.print_table(table)


def _show_accelerators(console: Console) -> None:
    """Show what tensors on GPUs would need; Weft's own runtime needs none of it."""
    found = find_accelerators()
    nccl = (*([found.nccl] if found.nccl else []), *found.nccl_libraries)
    console.print()
    console.print_facts(
        (
            "GPUs",
            printable(describe_alike(found.gpus)) or "none: the drivers of NVIDIA and AMD list no device",
        ),
        *((("driver", f"NVIDIA {printable(found.driver)}"),) if found.driver else ()),
        ("NCCL", printable("; ".join(nccl)) or "none: PyTorch's wheels with CUDA bring it"),
        ("RDMA", printable("; ".join(found.rdma)) or "none: the kernel lists no InfiniBand or RoCE device"),
    )
