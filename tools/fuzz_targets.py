"""What `tools/fuzz.py` feeds: everything in Weft that reads bytes somebody else wrote.

A target makes an input from a random generator and reads it. An input is bytes and says everything: who reads
it again does the same. Where both sides speak in turn, the input is the seed of what the hostile side says.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import json
import os
import random
import re
import select
import socket
import struct
import sys
import tempfile
import termios
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import numpy as np

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # what the property tests already know how to make

from packets import test_table_file as ni_tables  # noqa: E402
from runtime.test_heartbeats import word as heartbeat_word  # noqa: E402
from support.faults.control_frames import damage_control_frames  # noqa: E402
from support.faults.damage import KINDS as DAMAGES  # noqa: E402
from support.mutation import draw_mutant  # noqa: E402
from support.schedules import relayed_all_to_all, ring_all_reduce, routed_all_reduce  # noqa: E402

from weft import _core, limits  # noqa: E402
from weft.algorithms import registry  # noqa: E402
from weft.cli import main as weft_command  # noqa: E402
from weft.errors import LimitError, WeftError  # noqa: E402
from weft.packets import tables_to_json  # noqa: E402
from weft.planning import plan as make_plan  # noqa: E402
from weft.planning import plan_file  # noqa: E402
from weft.runtime import Member  # noqa: E402
from weft.runtime.bootstrap import handshake  # noqa: E402
from weft.runtime.bootstrap.listener import Listener, open_socket  # noqa: E402
from weft.runtime.bootstrap.members import LossVerdict, decode  # noqa: E402
from weft.runtime.operation_queue import cut_into_chunks  # noqa: E402
from weft.runtime.transport.link_connections import IN_TURN, find_link_connections  # noqa: E402
from weft.schedule import Schedule, container  # noqa: E402
from weft.schedule.codec import MAGIC, VERSION, decode_schedule, encode_schedule  # noqa: E402
from weft.schedule.json_form import schedule_to_json  # noqa: E402
from weft.schedule.text import format_schedule  # noqa: E402
from weft.simulation import simulate  # noqa: E402
from weft.simulation.simulator import SHARING  # noqa: E402
from weft.topology import Topology, load_topology  # noqa: E402
from weft.topology.load import read_topology  # noqa: E402
from weft.topology.toml_file import format_toml  # noqa: E402
from weft.verification import verify  # noqa: E402

Chance = random.Random

MAX_WORK: Final = 2e7
"""Operations that verifying or simulating one input may take: some hundredths of a second."""

MOST_BYTES: Final = 1 << 20
_MOST_RANKS: Final = 16
_MOST_LINKS: Final = 2000
_MOST_SEGMENTS: Final = 20_000
_NUMBERS: Final = (
    *(0, 1, 2, 3, 7, 8, 64, 255, 256, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32, 2**40, 2**62),
    *(2**63 - 1, 2**63, 2**64, 2**70, -1, -2, -(2**31), -(2**63)),
)
_VALUES: Final = (
    *_NUMBERS,
    *range(12),
    None,
    True,
    False,
    "",
    "x",
    "reduce",
    "é\x1b\0",
    [],
    [0],
    {},
    0.5,
    1e300,
)
_BYTES: Final = (
    b"\0",
    b"\xff",
    b"\xff\xfe",
    b"\n",
    b'"',
    b"[",
    b"{",
    b"=",
    b",",
    b"-",
    b"@",
    b"+",
    b"<",
    b"&",
)


@dataclass(frozen=True)
class Target:
    """One reader.

    Parameters
    ----------
    make
        An input.
    read
        Reads it; True if it was taken and not refused. What it raises beyond `WeftError` is a finding.
    """

    make: Callable[[Chance], bytes]
    read: Callable[[bytes], bool]


class Wrong(AssertionError):
    """What was read is not what it should be."""


# changing bytes and trees


def change_bytes(data: bytes, chance: Chance, other: bytes = b"") -> bytes:
    """Bytes changed, cut out, put in, repeated, or taken from another file."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at, length = chance.randrange(len(changed) + 1), chance.choice((0, 1, 1, 2, 4, 8, 64))
        kind = chance.randrange(7)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at : at + length] = chance.randbytes(chance.randrange(9))
        elif kind == 2:
            changed[at : at + length] = chance.choice(_BYTES)
        elif kind == 3:
            changed[at : at + length] = b""
        elif kind == 4:
            first = chance.randrange(len(changed) + 1)
            changed[at:at] = changed[first : first + chance.choice((1, 8, 64, 512))] * chance.choice(
                (1, 1, 2, 50)
            )
        elif kind == 5 and other:
            first = chance.randrange(len(other))
            changed[at : at + length] = other[first : first + chance.choice((8, 64, 512))]
        elif kind == 6 and chance.random() < 0.1:
            del changed[at:]
    return bytes(changed[:MOST_BYTES])


def change_text(data: bytes, chance: Chance, other: bytes = b"") -> bytes:
    """The same, and numbers, words and lines changed as who knows the format would."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        kind = chance.randrange(4)
        if kind == 0:
            data = change_bytes(data, chance, other)
        elif kind == 1:
            data = _replace(rb"\d+", data, chance, str(chance.choice(_NUMBERS)).encode())
        elif kind == 2:
            words = re.findall(rb"[\w.:/-]+", other or data) or [b"x"]
            data = _replace(rb"[\w.:/-]+", data, chance, chance.choice(words))
        else:
            lines = data.splitlines(keepends=True)
            at = chance.randrange(len(lines) + 1)
            lines[at : at + chance.randrange(3)] = (
                chance.choices(lines, k=chance.randrange(3)) if lines else []
            )
            data = b"".join(lines)
    return data[:MOST_BYTES]


def _replace(pattern: bytes, data: bytes, chance: Chance, by: bytes) -> bytes:
    found = list(re.finditer(pattern, data))
    if not found:
        return data
    one = chance.choice(found)
    return data[: one.start()] + by + data[one.end() :]


def change_tree(tree: Any, chance: Chance) -> Any:
    """A document of maps and lists with something else at a few places."""
    tree = deepcopy(tree)
    for _ in range(chance.choice((1, 1, 2, 4))):
        known = ni_tables.places(tree)
        if not known:
            break
        # Some key at the top first: most places are in the longest list, and that is not what matters most.
        top = chance.choice(sorted({place[0] for place in known}, key=str))
        place = chance.choice([place for place in known if place[0] == top])
        inner: Any = tree
        for key in place[:-1]:
            inner = inner[key]
        _change_entry(inner, place[-1], chance)
    return tree


def _change_entry(inner: Any, key: Any, chance: Chance) -> None:
    kind, value = chance.randrange(6), inner[key]
    if kind == 0:
        del inner[key]
    elif kind == 1 and isinstance(inner, list):
        inner.insert(chance.randrange(len(inner) + 1), deepcopy(chance.choice(inner)))
    elif kind == 2 and isinstance(inner, dict):
        inner[chance.choice([*inner, "x"])] = deepcopy(value)
    elif kind == 3 and isinstance(value, int):
        inner[key] = value + chance.choice((-1, 1))
    elif kind == 4 and isinstance(value, list):
        chance.shuffle(value)
    else:
        inner[key] = deepcopy(chance.choice(_VALUES))


# schedules and plans


CABLES: Final = b"".join(
    (
        b'name = "cables"\nranks = 3\n',
        *(
            b'[[links]]\nsrc = %d\ndst = %d\nbandwidth = "10GB/s"\nlatency = "1us"\nduplex = true\n'
            b'src_address = "10.0.%d.1"\ndst_address = "10.0.%d.2"\n' % (src, dst, number, number)
            for number, (src, dst) in enumerate(((0, 1), (0, 1), (1, 2)))
        ),
    )
)
"""Ranks with addresses, and so with lanes."""


@functools.cache
def schedules() -> list[Schedule]:
    """Small ones of all kinds."""
    found = [ring_all_reduce(load_topology("ring:4")), routed_all_reduce(), relayed_all_to_all()]
    cables = read_topology(io.BytesIO(CABLES), "cables")
    places = [cables, *map(load_topology, ("torus:2x2", "hosts:2,1", "fullmesh:3@links=2", "ring:5"))]
    for topology in places:
        for algorithm in registry.ALGORITHMS.values():
            for collective in algorithm.collectives:
                with suppress(WeftError):
                    found.append(algorithm.build(topology, collective))
    return [one for one in found if one.transfers <= 400]


@functools.cache
def schedule_files() -> list[bytes]:
    """The same in the binary form."""
    return [encode_schedule(schedule) for schedule in schedules()]


def use_schedule(schedule: Schedule, chance: Chance) -> bool:
    """Verify, simulate, print and lower it; whether it is correct."""
    format_schedule(schedule, max_rows=20)
    correct = False
    with suppress(WeftError):
        verify(
            schedule, slots=chance.choice((None, None, 1, 2)), fused=chance.random() < 0.3, max_work=MAX_WORK
        )
        correct = True
    with suppress(WeftError):
        simulate(
            schedule,
            chance.choice((0, 1, 1000, 1 << 20, limits.MAX_SIZE_BYTES)),
            segment_bytes=chance.choice((None, None, 1, 100, 1 << 16)),
            sharing=chance.choice(SHARING),
            element_bytes=chance.choice((1, 4)),
            record=chance.random() < 0.2,
            max_work=MAX_WORK,
        )
    if schedule.ranks <= _MOST_RANKS:
        elements, segment = chance.choice((0, 1, 999, 100_000)), chance.choice((1, 64, 1 << 16))
        for rank in range(schedule.ranks):
            lower(schedule, rank, elements, segment, chance.choice((1, 2)))
    return correct


def lower(schedule: Schedule, rank: int, elements: int, segment: int, streams: int) -> _core.Script | None:
    """Script of a rank, as the native engine has it written; None if it would be too long."""
    lanes = find_link_connections(schedule.topology, list(range(schedule.ranks)), rank)
    counts = [len(lanes.ends.get(other, ())) or streams for other in range(schedule.ranks)]

    def of(known: dict[int, int]) -> np.ndarray[Any, np.dtype[np.int32]]:
        return np.array([known.get(other, IN_TURN) for other in range(schedule.ranks)], np.int32)

    try:
        start = cut_into_chunks(schedule, elements)
        return _core.write_script(
            schedule.table,
            schedule.ranks,
            schedule.slots,
            start,
            schedule.collective == "all_to_all",
            segment,
            rank,
            _MOST_SEGMENTS,
            np.array(counts, np.int32),
            of(lanes.out),
            of(lanes.into),
            lanes.of_routes(schedule),
        )
    except (_core.TooMany, WeftError):  # the bound here is lower than the runtime's
        return None


def reseal(data: bytes) -> bytes:
    """With the checksum that fits, so that what is behind it is reached."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def repack(data: bytes, magic: bytes, version: int, chance: Chance) -> bytes:
    """A file with another header, packed as it should be."""
    header, body = container.unpack(data, version, "x")
    if chance.random() < 0.3:
        return container.pack(magic, version, change_bytes(header, chance), [bytes(body)])
    tree = change_tree(msgspec.msgpack.decode(header), chance)
    try:
        return container.pack(magic, version, msgspec.msgpack.encode(tree), [bytes(body)])
    except (OverflowError, LimitError):  # a number that MessagePack has no form for
        return data


def make_binary(chance: Chance) -> bytes:
    """A .weft file."""
    kind = chance.randrange(4)
    if kind == 0:  # a legal schedule, as a rule a wrong one, in a sound file
        generator = np.random.default_rng(chance.getrandbits(32))
        return encode_schedule(draw_mutant(chance.choice(schedules()), generator)[1])
    data = chance.choice(schedule_files())
    if kind == 1:
        return repack(data, MAGIC, VERSION, chance)
    changed = change_bytes(data, chance, chance.choice(schedule_files()))
    return reseal(changed) if kind == 2 else changed


@functools.cache
def schedule_trees() -> list[Any]:
    """The same as documents."""
    return [json.loads(schedule_to_json(schedule)) for schedule in schedules()]


def make_json(chance: Chance) -> bytes:
    """The JSON form."""
    tree = chance.choice(schedule_trees())
    kind = chance.randrange(4)
    if kind == 0:
        return change_text(schedule_to_json(chance.choice(schedules())), chance)
    if kind == 1:
        return json.dumps(change_tree(tree, chance)).encode()[:MOST_BYTES]
    return json.dumps(_change_rows(deepcopy(tree), chance)).encode()


def _change_rows(tree: Any, chance: Chance) -> Any:
    """Other transfers and routes, most of them legal."""
    rows, routes = tree["transfers"], tree.setdefault("routes", [])
    links = len(tree["topology"]["links"]["src"])
    for _ in range(chance.choice((1, 1, 2, 5, 30))):
        row = chance.choice(rows) if rows else [0, 0, 0, 1, "copy"]
        kind = chance.randrange(6)
        if kind == 0:
            routes.append([chance.randrange(links) for _ in range(chance.choice((0, 1, 1, 2, 3)))])
        elif kind == 1 and routes:
            row[5:] = [chance.randrange(len(routes)), chance.randrange(3), chance.randrange(3)]
        elif kind == 2:
            rows.insert(chance.randrange(len(rows) + 1), list(row))
        elif kind == 3:
            row[4] = chance.choice(("copy", "reduce"))
        else:
            row[chance.randrange(4)] = chance.choice((0, 1, 2, 3, 4, chance.randrange(20), 2**20))
    if chance.random() < 0.3:
        tree["weights"] = [chance.choice((0, 1, 2, 2**40, 2**62)) for _ in tree["weights"]]
        tree["denominator"] = sum(tree["weights"]) or 1
    return tree


def read_schedule(data: bytes) -> bool:
    """Load either form, and use what loads."""
    return use_schedule(decode_schedule(data, "input", max_work=MAX_WORK), Chance(data))


@functools.cache
def plans() -> list[bytes]:
    """Two small ones."""
    found = [
        make_plan("ring:4", ["4KiB", "16MiB"], algorithms=["ring", "recursive_doubling", "swing"]),
        make_plan("hosts:2,1", ["1KiB", "1MiB"], collective="broadcast"),
    ]
    return [plan_file.encode_plan(plan) for plan in found]


def make_plan_file(chance: Chance) -> bytes:
    """A plan file; now and then its schedules are others, and it says so."""
    data, version = chance.choice(plans()), plan_file.VERSION
    kind = chance.randrange(4)
    if kind == 0:
        return _exchange_schedule(data, chance)
    if kind == 1:
        return repack(data, plan_file.MAGIC, version, chance)
    changed = change_bytes(data, chance, chance.choice(plans()))
    return reseal(changed) if kind == 2 else changed


def _exchange_schedule(data: bytes, chance: Chance) -> bytes:
    packed, body = container.unpack(data, plan_file.VERSION, "x")
    header = msgspec.msgpack.decode(packed)
    blobs, start = [], 0
    for record in header["schedules"]:
        blobs.append(bytes(body[start : start + record["stored"]]))
        start += record["stored"]
    number = chance.randrange(len(blobs))
    generator = np.random.default_rng(chance.getrandbits(32))
    changed = draw_mutant(decode_schedule(blobs[number]), generator)[1]
    blobs[number] = encode_schedule(changed)
    header["schedules"][number] |= {"digest": changed.digest, "stored": len(blobs[number])}
    return container.pack(plan_file.MAGIC, plan_file.VERSION, msgspec.msgpack.encode(header), blobs)


def read_plan(data: bytes) -> bool:
    """Load a plan, explain it, and use what it chooses."""
    plan, chance = plan_file.decode_plan(data, "input", max_work=MAX_WORK), Chance(data)
    plan.explain()
    for size in (0, 1, 10**6, limits.MAX_SIZE_BYTES):
        with suppress(WeftError):
            use_schedule(plan.choose(size).schedule, chance)
    return True


# topologies


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
    *("fattree:4,2,4", "bigraph:2,4", "dragonfly:3,2,2", "dgx-a100:2@routing=ecmp,seed=3", "dgx-h100:1"),
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
    if topology.links <= _MOST_LINKS:
        text = format_toml(topology)
        if read_topology(io.BytesIO(text.encode()), "written").digest != topology.digest:
            msg = "written down and read again it is another topology"
            raise Wrong(msg)
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


# tables of interfaces, flight records


def make_table(chance: Chance) -> bytes:
    """A table of network interfaces."""
    data = tables_to_json(chance.choice((ni_tables.TORUS, ni_tables.SWITCHED)))
    if chance.random() < 0.7:
        return json.dumps(change_tree(json.loads(data), chance)).encode()
    return change_text(data, chance)


def read_table(data: bytes) -> bool:
    """Read it and run it packet by packet, as the property test does."""
    before = limits.MAX_PACKET_EVENTS
    limits.MAX_PACKET_EVENTS = 20_000  # type: ignore[misc]
    try:
        ni_tables.run_anything(data)
    finally:
        limits.MAX_PACKET_EVENTS = before  # type: ignore[misc]
    return True


@functools.cache
def flights() -> list[bytes]:
    """Records of one job."""
    return [path.read_bytes() for path in sorted((ROOT / "tests" / "cli" / "flights").glob("*.json"))]


def make_flight(chance: Chance) -> bytes:
    """One record for each line, some of them changed."""
    found = []
    for data in flights():
        if chance.random() < 0.6:
            data = json.dumps(change_tree(json.loads(data), chance)).encode()
        elif chance.random() < 0.3:
            data = change_text(data, chance)
        found.append(data.replace(b"\n", b" "))
    return b"\n".join(found[: chance.choice((1, 3, 3, 3))])


def read_flight(data: bytes) -> bool:
    """Explain them, as a table and as JSON."""
    records = data.split(b"\n")
    run_command("explain", *records)
    run_command("explain", "--json", *records)
    return True


# the control plane


def make_seed(chance: Chance) -> bytes:
    """Seed of what a hostile side says."""
    return str(chance.getrandbits(64)).encode()


def read_control_frames(data: bytes) -> bool:
    """Frames that were changed on their way."""
    chance = Chance(data)
    end, problem = damage_control_frames(chance.choice(DAMAGES), chance)
    if problem:
        raise Wrong(problem)
    return end == "unchanged"


def make_record(chance: Chance) -> bytes:
    """Payload of a frame."""
    member, verdict = Member.here(chance.randrange(4)), LossVerdict("join", 1, "host", 7, (2, 3), 1.5, "text")
    value = chance.choice((member, [member] * 3, verdict))
    data = msgspec.msgpack.encode(value)
    if chance.random() < 0.5:
        with suppress(OverflowError):
            return msgspec.msgpack.encode(change_tree(msgspec.msgpack.decode(data), chance))
    return change_bytes(data, chance)


def read_record(data: bytes) -> bool:
    """Take it for each of the things that a frame may hold."""
    taken = False
    kinds: tuple[type[Any], ...] = (Member, tuple[Member, ...], LossVerdict)
    for kind in kinds:
        with suppress(WeftError):
            found = decode(data, kind, "rank 1")
            taken = True
            if isinstance(found, LossVerdict):
                str(found.error())
    return taken


@functools.cache
def _listener() -> tuple[Listener, bytes, int]:
    secret = b"s" * 32
    listening = open_socket(socket.AF_INET, ("127.0.0.1", 0))
    return Listener([listening], secret, 1 << 16), secret, listening.getsockname()[1]


def read_handshake(data: bytes) -> bool:
    """Somebody connects, and says what a member would say, or nearly; whether it was admitted."""
    chance = Chance(data)
    listener, secret, port = _listener()
    with socket.create_connection(("127.0.0.1", port), 10) as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.setblocking(False)
        hello = handshake.Hello(
            chance.choice((1, 2**32 - 1, chance.getrandbits(32))),
            chance.choice((2, -1, chance.getrandbits(31))),
            chance.randbytes(32),
            chance.randbytes(32),
        )
        known = secret if chance.random() < 0.9 else chance.randbytes(32)
        said = hello.sign(known)
        changed = change_bytes(said, chance, said) if chance.random() < 0.5 else said
        true = known == secret and changed[: len(said)] == said
        found = _say(listener, caller, changed)
        challenge = b""
        with suppress(BlockingIOError, ConnectionError):
            challenge = caller.recv(1024)
        if bool(challenge) > true:
            msg = "a challenge for a hello that is none"
            raise Wrong(msg)
        if len(challenge) == handshake.CHALLENGE_BYTES and changed == said and not found:
            record = chance.randbytes(chance.choice((0, 1, 100, limits.MAX_MEMBER_BYTES)))
            answer = handshake.read_challenge(secret, hello, challenge).answer(record)
            changed = change_bytes(answer, chance, said) if chance.random() < 0.5 else answer
            found = _say(listener, caller, changed)
            if bool(found) != (changed[: len(answer)] == answer) or any(
                one.record != record for one in found
            ):
                msg = f"an answer of {len(answer)} bytes, changed to {len(changed)}: {len(found)} admitted"
                raise Wrong(msg)
            with suppress(WeftError, handshake.Gone):
                for one in found:
                    one.admit().receive()
        for one in found:
            one.channel.close()
    listener.serve()
    return bool(found)


def _say(listener: Listener, caller: socket.socket, data: bytes) -> list[Any]:
    with suppress(ConnectionError):
        caller.sendall(data)
    found: list[Any] = []
    for _ in range(3):
        select.select([listener], [], [], 0.002)
        found += listener.serve()
    return found


# the data plane


_JOB_RANKS: Final = 33


@functools.cache
def _watching_host() -> _core.Host:
    host = _core.Host(0, 1, 1 << 20, crowded=True, readable=False)
    host.start_watch(30_000, 60_000, [0], _JOB_RANKS)
    return host


def make_heartbeats(chance: Chance) -> bytes:
    """Words from every other rank; most with the checksum that fits."""
    odd = (-1, 0, 1, 3, _JOB_RANKS - 1, _JOB_RANKS, 2**31 - 1, -(2**31))
    said = []
    for _ in range(1, _JOB_RANKS):
        words = b""
        for _ in range(chance.randrange(1, 50)):
            cut = (chance.choice(odd), chance.choice(odd), chance.choice(odd))
            whom = chance.choice(odd), chance.choice(odd), chance.choice(odd)
            news = (chance.randrange(3), 11, whom[0], whom[1], whom[2], chance.randrange(12))
            kind = chance.choice((*range(10), 2**32 - 1))
            words += heartbeat_word(kind, chance.choice(odd), cut, news)
        said.append(change_bytes(words, chance) if chance.random() < 0.5 else words)
    return msgspec.msgpack.encode(said)


def read_heartbeats(data: bytes) -> bool:
    """Say it, and look what rank 0 believes."""
    host = _watching_host()
    pairs = [socket.socketpair() for _ in range(1, _JOB_RANKS)]
    beats = _core.Heartbeats(host, [-1, *(near.fileno() for near, _ in pairs)], 30_000, 60_000)
    try:
        for (_, far), words in zip(pairs, msgspec.msgpack.decode(data, type=list[bytes]), strict=True):
            far.sendall(words)
        deadline = time.monotonic() + 5
        while any(struct.unpack("i", fcntl.ioctl(near, termios.FIONREAD, b"\0" * 4))[0] for near, _ in pairs):
            if time.monotonic() > deadline:
                msg = "what was said is not heard"
                raise Wrong(msg)
            time.sleep(0.0005)
    finally:
        beats.close()
        _close(pairs)
    cut = host.cut
    if cut is not None and not (0 <= cut[0] < cut[1] < _JOB_RANKS and cut[2] >= 0):
        msg = f"a cut between {cut}"
        raise Wrong(msg)
    host.mend()
    return True


def _close(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    for pair in pairs:
        pair[0].close()
        pair[1].close()


_ELEMENTS: Final = 3001
_FINGERPRINT: Final = 0x1234_5678_9ABC
_TALK_MS: Final = 30


@dataclass(frozen=True)
class Talk:
    """What rank 1 says to rank 0 in one operation, over each of its connections."""

    schedule: Schedule
    checksums: bool
    streams: int
    said: tuple[bytes, ...]


class Strangers(threading.local):
    """Ranks that were never lost before: making a host anew for each input would take most of the time."""

    _left: list[int]

    def __init__(self) -> None:
        self._left = []

    @contextmanager
    def executor(self, rank: int, talk: Talk, ends: list[socket.socket]) -> Iterator[_core.Executor]:
        """An executor of two ranks, of which the other is at the other ends."""
        if not self._left:
            self._host = _core.Host(0, 1, 1 << 16, crowded=True, readable=False)
            self._host.start_watch(30_000, 60_000, [0], limits.MAX_JOB_RANKS)
            self._left = list(range(1, limits.MAX_JOB_RANKS))
        job, local = [0, 0], [-1, -1]
        sockets: list[list[int]] = [[], []]
        job[1 - rank], local[rank], sockets[1 - rank] = self._left.pop(), 0, [end.fileno() for end in ends]
        self._host.reset(0)
        self._host.mend()
        executor = _core.Executor(self._host, 0, 1, rank, job, local, sockets, [0, 0], talk.checksums)
        try:
            yield executor
        finally:
            executor.close()


_strangers: Final = (Strangers(), Strangers())


def _run(rank: int, talk: Talk, ends: list[socket.socket], timeout_ms: int) -> tuple[_core.Status, Any]:
    script = lower(talk.schedule, rank, _ELEMENTS, 500, talk.streams)
    assert script is not None
    array = np.full(_ELEMENTS, rank + 1, np.float32)
    scratch = np.zeros((script.scratch_elements + script.stage_elements) * 4, np.uint8)
    with _strangers[rank].executor(rank, talk, ends) as executor:
        ending = executor.run(
            script, _FINGERPRINT, array, array, scratch, False, "float32", "sum", timeout_ms
        )
    return ending.status, array


@functools.cache
def talks() -> list[Talk]:
    """Overheard from two executors."""
    found = []
    for name in ("direct", "ring", "recursive_doubling"):
        schedule = registry.find(name).build(load_topology("fullmesh:2"), "all_reduce")
        for checksums in (True, False):
            for streams in (1, 2):
                talk = Talk(schedule, checksums, streams, ())
                found.append(Talk(schedule, checksums, streams, _overhear(talk)))
    return found


def _overhear(talk: Talk) -> tuple[bytes, ...]:
    pairs = [[socket.socketpair() for _ in range(talk.streams)] for _ in range(2)]
    statuses: list[_core.Status] = []

    def run(rank: int) -> None:
        statuses.append(_run(rank, talk, [here for here, _ in pairs[rank]], 30_000)[0])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    said = [b""] * talk.streams
    while any(thread.is_alive() for thread in threads):
        for rank, lane in ((rank, lane) for rank in range(2) for lane in range(talk.streams)):
            with suppress(BlockingIOError):
                data = pairs[rank][lane][1].recv(1 << 16, socket.MSG_DONTWAIT)
                pairs[1 - rank][lane][1].sendall(data)
                said[lane] += data * rank
        time.sleep(0.0002)
    for some in pairs:
        _close(some)
    assert statuses == [_core.Status.done] * 2, statuses
    return tuple(said)


_AT_ONCE: Final = 32
"""Talks of one input: most of the time of one that is cut short is waiting."""


def make_talks(chance: Chance) -> bytes:
    """Number of each talk, and what is said instead over each connection."""
    return msgspec.msgpack.encode([_make_talk(chance) for _ in range(_AT_ONCE)])


def _make_talk(chance: Chance) -> tuple[int, list[bytes]]:
    number = chance.randrange(len(talks()))
    said = list(talks()[number].said)
    for _ in range(chance.choice((0, 1, 1, 2))):
        lane = chance.randrange(len(said))
        said[lane] = change_bytes(said[lane], chance, chance.choice(talks()).said[0])
    if chance.random() < 0.2:  # an opening of another operation, or of none, with the checksum that fits
        opening = bytearray(said[0][:28].ljust(28, b"\0"))
        opening[chance.randrange(28)] ^= 1 << chance.randrange(8)
        said[0] = bytes(opening) + struct.pack("<I", _core.crc32c(bytes(opening))) + said[0][32:]
    return number, said


@functools.cache
def _speakers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE)


def read_talks(data: bytes) -> bool:
    """Say each to a rank that runs an all-reduce; a sum that passes its checksums is right."""
    found = msgspec.msgpack.decode(data, type=list[tuple[int, tuple[bytes, ...]]])
    return any(list(_speakers().map(lambda one: _read_talk(*one), found)))


def _read_talk(number: int, said: tuple[bytes, ...]) -> bool:
    talk = talks()[number]
    pairs = [socket.socketpair() for _ in said]
    try:
        for (_, there), words in zip(pairs, said, strict=True):
            there.setblocking(False)
            with suppress(BlockingIOError):
                there.sendall(words)
            there.shutdown(socket.SHUT_WR)
        status, array = _run(0, talk, [here for here, _ in pairs], _TALK_MS)
    finally:
        _close(pairs)
    if said == talk.said and status not in (_core.Status.done, _core.Status.timed_out):
        msg = f"nothing was changed, and it ended with {status}"
        raise Wrong(msg)
    if talk.checksums and status == _core.Status.done and not (array == 3).all():
        msg = f"{int((array != 3).sum())} elements of a sum are wrong"
        raise Wrong(msg)
    return status == _core.Status.done


TARGETS: Final = {
    "schedule": Target(make_binary, read_schedule),
    "schedule-json": Target(make_json, read_schedule),
    "plan": Target(make_plan_file, read_plan),
    "toml": Target(functools.partial(make_topology, "*.toml"), read_topology_file),
    "nccl-xml": Target(functools.partial(make_topology, "*.xml"), read_topology_file),
    "nvidia-smi": Target(functools.partial(make_topology, "*.txt"), read_topology_file),
    "spec": Target(make_spec, read_spec),
    "ni-table": Target(make_table, read_table),
    "flight": Target(make_flight, read_flight),
    "control-frames": Target(make_seed, read_control_frames),
    "records": Target(make_record, read_record),
    "handshake": Target(make_seed, read_handshake),
    "heartbeats": Target(make_heartbeats, read_heartbeats),
    "data-frames": Target(make_talks, read_talks),
}
