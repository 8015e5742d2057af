"""Fuzz targets that read topologies."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import click

from fuzzing import ROOT
from fuzzing.mutate import change_text
from fuzzing.schedule_files import CABLES, use_schedule
from fuzzing.target import MOST_LINKS, Chance, WrongResult
from weft.algorithms import registry
from weft.cli import main as weft_command
from weft.errors import WeftError
from weft.files import decode_text
from weft.topology import Topology, load_topology
from weft.topology.cluster_fabric import ClusterFabric, join_cluster
from weft.topology.cluster_import import fabric_kind, import_cluster, read_fabric
from weft.topology.load import read_topology
from weft.topology.nccl_xml import parse_nccl_box
from weft.topology.toml_file import format_toml


@functools.cache
def topology_files(pattern: str) -> list[bytes]:
    """Those of the tests."""
    found = [path.read_bytes() for path in sorted((ROOT / "tests" / "data" / "topology").glob(pattern))]
    if pattern == "*.toml":
        specs = (
            "torus:2x2",
            "hosts:4,2@intra=100GB/s,uplink=10GB/s/1GB/s",
            "fullmesh:3@links=2",
            "dgx-a100:1",
        )
        found += [CABLES, *(format_toml(load_topology(spec)).encode() for spec in specs)]
    return found


SPECS: Final = (
    *(
        "ring:8",
        "mesh:4x4",
        "torus:4x4x4@bw=16GB/s,lat=150ns",
        "hypercube:6",
        "fullmesh:8@links=2",
        "switch:8",
    ),
    *(
        "fattree:4,2,4",
        "bigraph:2,4",
        "dragonfly:3,2,2",
        "dgx-a100:2@fabric=flat,routing=ecmp,seed=3",
        "dgx-h100:1",
    ),
    *("hosts:8,4,2@intra=100GB/s,uplink=25GB/s/12GB/s/6GB/s", "cloud:8x8,24", "torus:3x3+fail=0>1"),
    *("servers:4x8@nics=8,fabric=bigraph,leaves=8", "torus:8x8+fail=3-4,rank:7", "hosts:2x4,3"),
)


def make_topology(pattern: str, chance: Chance) -> bytes:
    """A file like those."""
    known = topology_files(pattern)
    return change_text(chance.choice(known), chance, chance.choice(known))


def make_spec(chance: Chance) -> bytes:
    """A spec string."""
    return change_text(chance.choice(SPECS).encode(), chance, chance.choice(SPECS).encode())


def read_topology_file(data: bytes) -> bool:
    """Load a file, and use what loads."""
    return use_topology(read_topology(io.BytesIO(data), "input"))


def read_box_file(data: bytes) -> bool:
    """Read the file of a machine, and put it into a network whose cables are known and one whose are not."""
    box = parse_nccl_box(decode_text("input", data), "input")
    for fabric in fabrics():
        with suppress(WeftError):
            use_topology(join_cluster("joined", fabric, dict.fromkeys(fabric.nodes, box)))
    return True


@functools.cache
def fabrics() -> list[ClusterFabric]:
    """Networks of the tests that are small."""
    texts = [topology_files(pattern)[0].decode() for pattern in ("*.ibnetdiscover.txt", "*.slurm.yaml")]
    return [read_fabric(text, "fabric", str(fabric_kind(text))) for text in texts]


_PART: Final = b"\n#### next file\n"


@functools.cache
def merged_files() -> list[list[bytes]]:
    """Files that belong together: cables, the same machines as Slurm names them, and a machine's inside."""
    cables = topology_files("*.ibnetdiscover.txt")[0]
    nodes = read_fabric(cables.decode(), "fabric", "ibnetdiscover").nodes
    machines = f"SwitchName=all Nodes={','.join(nodes)}\n".encode()
    boxes = [*topology_files("*.nvidia-smi.txt"), *topology_files("*.nccl.xml")]
    return [[cables, machines, box] for box in boxes]


def make_merged(chance: Chance) -> bytes:
    """Files that belong together, one of which is changed."""
    files = list(chance.choice(merged_files()))
    place = chance.randrange(len(files))
    files[place] = change_text(files[place], chance, chance.choice(merged_files())[place])
    return _PART.join(files)


def read_merged(data: bytes) -> bool:
    """Import several files as one cluster, and use what comes of it."""
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as folder:
        paths = []
        for number, part in enumerate(data.split(_PART)[:3]):
            path = Path(folder, str(number))
            path.write_bytes(part)
            paths.append(str(path))
        return use_topology(import_cluster(paths[:2], boxes=paths[2:]).topology)


def read_spec(data: bytes) -> bool:
    """Load a spec; not what would be the name of a file."""
    text = data.decode("utf-8", "surrogateescape")
    return ":" in text and use_topology(load_topology(text))


def use_topology(topology: Topology) -> bool:
    """Look at it from all sides."""
    chance = Chance(topology.digest)
    ranks = [chance.randrange(topology.ranks) for _ in range(8)]
    for src, dst in pairwise(ranks):
        if src != dst:
            topology.route(src, dst)
    if topology.links <= MOST_LINKS:
        text = format_toml(topology)
        if read_topology(io.BytesIO(text.encode()), "written").digest != topology.digest:
            msg = "written down and read again it is another topology"
            raise WrongResult(msg)
        run_command("topology", text.encode(), "--svg", "/dev/null")
        with suppress(WeftError):
            use_schedule(registry.find("ring").build(topology, "all_reduce"), chance)
    return True


def run_command(verb: str, *words: str | bytes) -> None:
    """Run ``weft`` here; what is bytes goes to a file of its own."""
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as folder:
        names = []
        for number, word in enumerate(words):
            if isinstance(word, bytes):
                path = Path(folder, str(number))
                path.write_bytes(word)
                word = str(path)
            names.append(word)
        nothing = io.TextIOWrapper(io.BytesIO(), "utf-8")
        before, os.environ["WEFT_DEBUG"] = os.environ.get("WEFT_DEBUG"), "1"  # so that everything is raised
        try:
            with contextlib.redirect_stdout(nothing), suppress(WeftError, click.ClickException):
                weft_command([verb, *names])
        finally:
            del os.environ["WEFT_DEBUG"]
            if before is not None:
                os.environ["WEFT_DEBUG"] = before
