"""What this machine has of GPUs, NCCL and RDMA, as ``weft doctor`` shows it.

The kernel's own files are read, and nothing is started: ``/proc/driver/nvidia`` (NVIDIA's driver),
``/sys/class/kfd`` (AMD's) and ``/sys/class/infiniband`` (InfiniBand and RoCE). A driver that hangs hangs
``nvidia-smi`` too, and a check of an installation must not. NCCL is a package of pip or a file in one of the
usual folders of libraries, whose name has the version; it is not loaded.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path("/")
_MOST_DEVICES: Final = 256
_LONGEST: Final = 4096
_AMD_VENDOR: Final = 0x1002
_MOST_LIBRARIES: Final = 50_000
"""Entries of a folder of libraries that are looked at."""

_LIBRARY_FOLDERS: Final = (
    *("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib"),
    *("usr/local/cuda/lib64", "usr/local/nccl/lib", "opt/nccl/build/lib"),
)
_NCCL_LIBRARY: Final = re.compile(r"libnccl\.so\.(2\.[0-9][0-9.]*)")
_DRIVER: Final = re.compile(r"NVRM version:.*?\s([0-9]{2,4}\.[0-9.]+)\s")
_NCCL_PACKAGES: Final = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")


@dataclass(frozen=True, slots=True)
class AcceleratorFacts:
    """The GPUs, NVIDIA's driver, every NCCL and the RDMA devices of this machine, each in words.

    `nccl` is pip's, which torch loads; `nccl_libraries` are those of the system.
    """

    gpus: tuple[str, ...]
    driver: str | None
    nccl: str | None
    nccl_libraries: tuple[str, ...]
    rdma: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON."""
        return asdict(self)


def find_accelerators(root: Path = _ROOT) -> AcceleratorFacts:
    """Look for GPUs, NCCL and RDMA devices.

    Parameters
    ----------
    root
        Where the system's files begin; another folder is for tests.
    """
    gpus = (*_nvidia_gpus(root), *_amd_gpus(root))
    libraries = tuple(_nccl_libraries(root))
    return AcceleratorFacts(gpus, _driver(root), _nccl(), libraries, tuple(_rdma_devices(root)))


def describe_alike(names: tuple[str, ...]) -> str:
    """Name each kind once, with how many there are of it.

    Examples
    --------
    >>> describe_alike(("NVIDIA A100", "NVIDIA A100", "NVIDIA T4"))
    '2 x NVIDIA A100, NVIDIA T4'
    """
    return ", ".join(name if number == 1 else f"{number} x {name}" for name, number in Counter(names).items())


def _nvidia_gpus(root: Path) -> list[str]:
    found = []
    for folder in _folders(root / "proc/driver/nvidia/gpus"):
        fields = dict(
            line.split(":", 1) for line in _read(folder / "information").splitlines() if ":" in line
        )
        found.append(fields.get("Model", "NVIDIA GPU").strip())
    return found


def _driver(root: Path) -> str | None:
    """Version of NVIDIA's driver, as the loaded module of the kernel says it."""
    found = _DRIVER.search(_read(root / "proc/driver/nvidia/version"))
    return found and found[1]


def _amd_gpus(root: Path) -> list[str]:
    """The nodes of AMD's compute driver that are GPUs: a node without SIMD units is a processor."""
    found = []
    for folder in _folders(root / "sys/class/kfd/kfd/topology/nodes"):
        lines = (line.split() for line in _read(folder / "properties").splitlines())
        numbers = {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdigit()}
        if numbers.get("simd_count", 0) and numbers.get("vendor_id") == _AMD_VENDOR:
            version = numbers.get("gfx_target_version", 0)
            major, minor, step = version // 10_000, version // 100 % 100, version % 100
            found.append(f"AMD gfx{major}{minor:x}{step:x}")
    return found


def _nccl() -> str | None:
    """NCCL as pip installs it beside torch."""
    for package in _NCCL_PACKAGES:
        try:
            return f"{metadata.version(package)} ({package})"
        except metadata.PackageNotFoundError:
            continue
    return None


def _nccl_libraries(root: Path) -> list[str]:
    """NCCL as packages of the system install it, by version and file; a file counts once."""
    found: dict[str, str] = {}
    for folder in _LIBRARY_FOLDERS:
        try:
            with os.scandir(root / folder) as entries:
                names = sorted(entry.name for entry in islice(entries, _MOST_LIBRARIES))
        except OSError:  # there is no such folder here
            continue
        for name in names:
            version = _NCCL_LIBRARY.fullmatch(name)
            if version is not None and len(found) < _MOST_DEVICES:
                file = root / folder / name
                found.setdefault(os.path.realpath(file), f"{version[1]} (/{folder}/{name})")
    return list(found.values())


def _rdma_devices(root: Path) -> list[str]:
    found = []
    for device in _folders(root / "sys/class/infiniband"):
        for port in _folders(device / "ports"):
            state = _read(port / "state").partition(":")[2].strip() or "state unknown"
            rate = _read(port / "rate").strip() or "rate unknown"
            layer = _read(port / "link_layer").strip() or "RDMA"
            found.append(f"{device.name} port {port.name}: {layer}, {rate}, {state}")
    return found


def _folders(where: Path) -> list[Path]:
    try:
        return sorted(islice(where.iterdir(), _MOST_DEVICES))
    except OSError:  # there is no such driver here
        return []


def _read(path: Path) -> str:
    """Read the beginning of a file of the kernel; empty if it is not there, or not for this user."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST)
    except OSError:
        return ""
