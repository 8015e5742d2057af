"""Fuzz targets that read schedules and plans."""

from __future__ import annotations

import functools
import io
import json
import struct
import zlib
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final

import msgspec
import numpy as np
from support.mutation import draw_mutant
from support.schedules import relayed_all_to_all, ring_all_reduce, routed_all_reduce

from fuzzing.mutate import change_bytes, change_text, change_tree
from fuzzing.target import MAX_WORK, MOST_BYTES, MOST_RANKS, MOST_SEGMENTS, Chance
from weft import _core, _runtime, limits
from weft.algorithms import registry
from weft.collective_names import REDUCING
from weft.errors import LimitError, WeftError
from weft.planning import plan as make_plan
from weft.planning import plan_file
from weft.runtime.element_ranges import cut_into_chunks
from weft.runtime.transport.link_connections import IN_TURN, find_link_connections
from weft.schedule import Schedule, container
from weft.schedule.codec import MAGIC, VERSION, decode_schedule, encode_schedule
from weft.schedule.json_form import schedule_to_json
from weft.schedule.text import format_schedule
from weft.simulation import simulate
from weft.simulation.simulator import SHARING
from weft.topology import load_topology
from weft.topology.load import read_topology
from weft.verification import verify

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
"""Ranks whose links have addresses, and so connections of their own."""


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
    if schedule.ranks <= MOST_RANKS:
        elements, segment = chance.choice((0, 1, 999, 100_000)), chance.choice((1, 64, 1 << 16))
        for rank in range(schedule.ranks):
            lower(schedule, rank, elements, segment, chance.choice((1, 2)))
    return correct


def lower(schedule: Schedule, rank: int, elements: int, segment: int, streams: int) -> _runtime.Script | None:
    """Script of a rank, as the native engine has it written; None if it would be too long."""
    link_connections = find_link_connections(schedule.topology, list(range(schedule.ranks)), rank)
    counts = [len(link_connections.ends.get(other, ())) or streams for other in range(schedule.ranks)]

    def of(known: dict[int, int]) -> np.ndarray[Any, np.dtype[np.int32]]:
        return np.array([known.get(other, IN_TURN) for other in range(schedule.ranks)], np.int32)

    try:
        start = cut_into_chunks(schedule, elements)
        return _runtime.write_script(
            table=schedule.table,
            ranks=schedule.ranks,
            slots=schedule.slots,
            start=start,
            pairs=schedule.collective == "all_to_all",
            elsewhere=schedule.collective in REDUCING,
            output_start=np.zeros(0, np.int64),
            segment=segment,
            rank=rank,
            max_segments=MOST_SEGMENTS,
            connections=np.array(counts, np.int32),
            out=of(link_connections.out),
            in_=of(link_connections.into),
            of_route=link_connections.of_routes(schedule),
            needs_all=schedule.collective == "all_reduce",
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
