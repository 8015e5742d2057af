"""Fuzz targets that read tables of network interfaces and flight records."""

from __future__ import annotations

import functools
import json

from packets import test_table_file as ni_tables

from fuzzing import ROOT
from fuzzing.mutate import change_text, change_tree
from fuzzing.target import Chance
from fuzzing.topology_files import run_command
from weft import limits
from weft.packets import tables_to_json


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
