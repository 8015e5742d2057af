"""Samples of imported files, spoilt at random: each has to be read, or refused in one line.

A sample is read alone, as one of two machines, and merged with another file. Everything random is drawn from
a passed generator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from weft.errors import WeftError
from weft.topology.cluster_import import import_cluster
from weft.topology.load import load_topology

DATA: Final = Path(__file__).parents[1] / "data" / "topology"
SAMPLES: Final = sorted(path for path in DATA.iterdir() if path.is_file())
FORMATS: Final = {
    "Slurm's topology.conf": ".slurm.conf",
    "Slurm's topology.yaml": ".slurm.yaml",
    "ibnetdiscover": ".ibnetdiscover.txt",
    "NCCL's topology XML": ".nccl.xml",
    "NCCL's graph XML": ".ncclgraph.xml",
    "nvidia-smi topo -m": ".nvidia-smi.txt",
}
"""Endings of the samples of each import; those of Weft's own TOML are none of these."""

_SMALL_NETWORK: Final = DATA / "edge.ibnetdiscover.txt"
_WITHOUT_PORTS: Final = DATA / "several.slurm.yaml"
_NETWORKS: Final = ("slurm", "ibnetdiscover")
_PIECES: Final = (b"", b"[", b"]", b",", b"-", b" ", b"\n", b'"', b"9", b"99999", b"=", b"\xff", b"#", b":")


def damage(whole: bytes, chance: Random) -> bytes:
    """Change a file in one to five places: a piece is replaced, or a line stands a second time elsewhere."""
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(data) + 1)
        if chance.random() < 0.2:
            lines = bytes(data).splitlines(keepends=True) or [b""]
            before = sum(map(len, lines[: chance.randrange(len(lines) + 1)]))
            data[before:before] = chance.choice(lines)
        else:
            data[at : at + chance.choice((0, 1, 8, 60))] = chance.choice(_PIECES)
    return bytes(data)


@dataclass(frozen=True)
class Reading:
    """What came of reading one damaged file in one way.

    Parameters
    ----------
    way
        One of `READERS`.
    outcome
        ``"taken"``, ``"refused"`` in one line, or ``"finding"``: anything else.
    said
        The error, if there was one.
    cpu_seconds
        What reading took.
    """

    way: str
    outcome: str
    said: str
    cpu_seconds: float


def read_damaged(sample: Path, count: int, file: Path, chance: Random) -> Iterator[Reading]:
    """Write so many damaged copies of a sample to a file, one after the other, and read each in every way."""
    whole = sample.read_bytes()
    for _ in range(count):
        file.write_bytes(damage(whole, chance))
        for way in READERS:
            yield read_once(way, file, sample)


def read_once(way: str, file: Path, sample: Path) -> Reading:
    """Read a damaged file in one way."""
    began, said, is_expected = time.process_time(), "", True
    try:
        READERS[way](file, sample)
    except WeftError as error:
        said = str(error)
        is_expected = len(said.splitlines()) == 1
    except Exception as error:  # noqa: BLE001 - whatever else escapes is what is looked for
        said, is_expected = f"{type(error).__name__}: {error}", False
    outcome = ("refused" if said else "taken") if is_expected else "finding"
    return Reading(way, outcome, said, time.process_time() - began)


def merge(file: Path, sample: Path) -> None:
    """Merge a damaged network with machines that are right, or damaged machines with a network.

    The network of a dump of NCCL has no ports, so that any number of NICs fits it.
    """
    if any(form in sample.name for form in _NETWORKS):
        import_cluster([file], boxes=["nvlink:2"])
    else:
        network = _WITHOUT_PORTS if sample.suffix == ".xml" else _SMALL_NETWORK
        import_cluster([network], boxes=[str(file)])


READERS: Final[dict[str, Callable[[Path, Path], object]]] = {
    "alone": lambda file, _: load_topology(file),
    "as a box": lambda file, _: load_topology(f"{file}*2@nic=10GB/s"),
    "merged": merge,
}
