"""Files of tables: exact through JSON, strict, and harmless whatever is in them."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.examples import examples
from support.random_schedules import schedules

from weft import limits
from weft.algorithms import multitree, registry
from weft.errors import FormatError, InputError, LimitError, UnsupportedError, WeftError
from weft.packets import (
    CODESIGNED,
    Rules,
    Tables,
    make_tables,
    simulate_tables,
    tables_from_json,
    tables_to_json,
    tables_to_text,
)
from weft.packets.table_file import is_table
from weft.schedule import Schedule
from weft.topology import load_topology

TORUS = make_tables(multitree.all_reduce(load_topology("torus:2x3")), 600, ports=3)
SWITCHED = make_tables(registry.find("hdrm").build(load_topology("bigraph:1,4"), "all_reduce"), 64)


def tables_of(schedule: Schedule, size: int, ports: int = 1) -> Tables | None:
    """Tables of a schedule, if it can have some."""
    try:
        return make_tables(schedule, size, ports=ports)
    except UnsupportedError:
        return None


@given(schedules(), st.integers(0, 10**6), st.integers(1, 4))
def test_any_tables_survive_their_file(schedule: Schedule, size: int, ports: int) -> None:
    tables = tables_of(schedule, size, ports)
    if tables is None:
        return
    data = tables_to_json(tables)
    assert tables_from_json(data) == tables
    assert tables_to_json(tables_from_json(data)) == data
    assert is_table(data)
    assert tables_to_text(tables).count("\nrank ") == schedule.ranks


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "broadcast", "reduce", "all_to_all"])
def test_every_collective_has_a_file(collective: str) -> None:
    schedule = registry.find("direct").build(load_topology("switch:4"), collective)
    tables = make_tables(schedule, 1000)
    assert tables.collective == collective
    assert tables_from_json(tables_to_json(tables)) == tables


def test_a_topology_may_be_named_by_its_spec() -> None:
    tree = json.loads(tables_to_json(TORUS))
    tree["topology"] = "torus:2x3"
    assert tables_from_json(json.dumps(tree).encode()) == TORUS


def test_a_file_is_known_whatever_the_order_of_its_keys() -> None:
    tree = json.loads(tables_to_json(TORUS))
    assert is_table(json.dumps(dict(reversed(tree.items()))).encode())
    assert is_table(b'{"format": "weft-ni-table", oh dear')
    assert not is_table(b'{"weft_schedule": 1, "notes": ["weft-ni-table"]}')
    assert not is_table(b"[" * 100_000)
    assert not is_table(b"")


def edit(place: tuple[int | str, ...], value: Any) -> bytes:
    """The torus's file with something else at a place."""
    tree = json.loads(tables_to_json(TORUS))
    inner = tree
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("place", "value", "where"),
    [
        (("format",), "weft-table", "format"),
        (("version",), 2, "version"),
        (("surprise",), 1, None),
        (("algorithm",), 5, "algorithm"),
        (("size_bytes",), -1, "size_bytes"),
        (("size_bytes",), 1e99, "size_bytes"),
        (("ports",), 0, "ports"),
        (("topology",), "torus:0x3", "topology"),
        (("topology",), "/etc/hosts", "topology"),
        (("topology", "ranks"), 10**9, "topology.ranks"),
        (("topology", "links", "src"), [0], "topology"),
        (("ranks",), [], "ranks"),
        (("ranks", 1), {}, "ranks[1]"),
        (("ranks", 1, 0), [], "ranks[1][0]"),
        (("ranks", 1, 0, 0), -1, "ranks[1][0][0]"),
        (("ranks", 1, 0, 0), 99, "ranks[1][0]"),
        (("ranks", 1, 0, 1), "nop", "ranks[1][0][1]"),
        (("ranks", 1, 0, 2), 2**40, "ranks[1][0][2]"),
        (("ranks", 1, 0, 3), 601, "ranks[1][0]"),
        (("ranks", 1, 0, 4), 2**60, "ranks[1][0][4]"),
        (("ranks", 1, 0, 5), [["reduce", 5, 5]], "ranks[1][0]"),
        (("ranks", 1, 0, 5), [["reduce", 5]], "ranks[1][0][5][0]"),
        (("ranks", 1, 0, 6), [[1, 0]], "ranks[1][0]"),
        (("ranks", 1, 0, 6), [[6, 0]], "ranks[1][0]"),
        (("ranks", 1, 0, 6), [[2, 3]], "ranks[1][0]"),
        (("ranks", 1, 0, 6), [[2, 0, [10**8]]], "ranks[1][0][6][0][2][0]"),
        (("ranks", 1, 0, 6), [[2, 0, [500]]], "ranks[1][0]"),
        (("ranks", 1, 0, 6), [[2, 0, []]], "ranks[1][0]"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    place: tuple[int | str, ...], value: Any, where: str | None
) -> None:
    with pytest.raises(FormatError) as caught:
        tables_from_json(edit(place, value), "mine.ni.json")
    assert caught.value.source == "mine.ni.json"
    assert caught.value.place == where
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 10**5, b'{"format": 1}'])
def test_what_is_no_table_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^<json>: "):
        tables_from_json(data)


def test_files_are_bounded_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tables_to_json(TORUS)
    monkeypatch.setattr(limits, "MAX_TEXT_BYTES", len(data) - 1)
    with pytest.raises(FormatError, match="larger than"):
        tables_from_json(data)
    with pytest.raises(LimitError, match="tables of 6 ranks"):
        tables_to_json(TORUS)


def places(tree: Any, here: tuple[int | str, ...] = ()) -> list[tuple[int | str, ...]]:
    """Every place in a document but the top."""
    keys: Any = ()
    if isinstance(tree, dict):
        keys = tree.items()
    elif isinstance(tree, list):
        keys = enumerate(tree)
    found: list[tuple[int | str, ...]] = []
    for key, value in keys:
        found += [(*here, key), *places(value, (*here, key))]
    return found


VALUES = st.one_of(
    st.integers(-2, 12),
    st.sampled_from([255, 256, 65535, 2**24 - 1, 2**31 - 1, 2**31, 2**50, 2**63 - 1, 2**63, 2**70, -(2**63)]),
    st.sampled_from(["reduce", "gather", "", "all_to_all", None, True, [], [0], [[1, 0]], {}, 0.5]),
    st.lists(st.integers(0, 30), max_size=5),
)


def run_anything(data: bytes) -> None:
    """Read a file and run it: either it works, or Weft says in one line what is wrong."""
    complaints = []
    try:
        tables = tables_from_json(data)
    except InputError as error:
        complaints.append(str(error))
    else:
        tables_to_text(tables)
        assert tables_from_json(tables_to_json(tables)) == tables
        for rules, detail in product((Rules(), CODESIGNED), ("packet", "message")):
            try:
                result = simulate_tables(tables, rules=rules, detail=detail)
            except WeftError as error:
                complaints.append(str(error))
            else:
                assert 0 <= result.time_ps <= limits.MAX_TIME_PS
    assert all(complaint and "\n" not in complaint for complaint in complaints)


@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_with_anything_anywhere_is_harmless(
    data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_PACKET_EVENTS", 20_000)
    tree = json.loads(tables_to_json(data.draw(st.sampled_from([TORUS, SWITCHED]))))
    # Most places are links of the topology; tables are what is to be broken here.
    for _ in range(data.draw(st.integers(1, 3))):
        within = data.draw(st.sampled_from(["ranks", "ranks", "ranks", "topology", ""]))
        known = [place for place in places(tree) if place[0] == within or (not within and len(place) == 1)]
        if not known:
            continue
        place = data.draw(st.sampled_from(known))
        inner: Any = tree
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = deepcopy(data.draw(VALUES))
    run_anything(json.dumps(tree).encode())


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_with_broken_bytes_is_harmless(data: st.DataObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PACKET_EVENTS", 20_000)
    content = bytearray(tables_to_json(SWITCHED))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255) | st.sampled_from(list(b"0123456789[],")))
    run_anything(bytes(content))
