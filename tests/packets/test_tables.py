"""Tables of schedules: what waits for what and who sends where, written out by hand for small cases."""

from __future__ import annotations

from collections import Counter

import pytest

from weft.algorithms import (
    double_binary_tree,
    hdrm,
    multitree,
    ring,
    ring2d,
)
from weft.errors import LimitError, ScheduleError, UnsupportedError
from weft.packets import (
    TableEntry,
    Tables,
    default_ports,
    make_tables,
    tables_to_text,
)
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.topology import load_topology

Line = tuple[int, str, int, tuple[int, ...], set[tuple[str, int, int]]]


def lines(entries: tuple[TableEntry, ...]) -> list[Line]:
    """Step, operation, flow, receivers and waits."""
    return [(e.step, e.op, e.flow, tuple(s.dst for s in e.sends), set(e.after)) for e in entries]


@pytest.mark.parametrize("ranks", [2, 3, 6])
def test_a_ring_passes_on_what_came_from_behind(ranks: int) -> None:
    tables = make_tables(ring.all_reduce(load_topology(f"ring:{ranks}")), 100 * ranks)
    assert tables.steps == 2 * (ranks - 1) + 1
    for rank in range(ranks):
        ahead, behind = (rank + 1) % ranks, (rank - 1) % ranks
        expected: list[Line] = []
        for step in range(ranks - 1):
            flow = (rank - 1 - step) % ranks
            expected.append((step, "reduce", flow, (ahead,), {("reduce", flow, behind)} if step else set()))
        expected.append((ranks - 1, "reduce", rank, (), {("reduce", rank, behind)}))
        for turn in range(ranks - 1):
            flow = (rank - turn) % ranks
            waits = {("gather", flow, behind)} if turn else set()
            expected.append((ranks + turn, "gather", flow, (ahead,), waits))
        assert lines(tables.ranks[rank]) == expected
        assert {(e.address, e.size_bytes) for e in tables.ranks[rank] if e.sends} == {
            (100 * flow, 100) for flow in range(ranks)
        }


def test_multitree_on_a_full_mesh_sends_each_to_its_root_and_back() -> None:
    tables = make_tables(multitree.all_reduce(load_topology("fullmesh:3")), 12, ports=2)
    assert lines(tables.ranks[1]) == [
        (0, "reduce", 0, (0,), set()),
        (0, "reduce", 2, (2,), set()),
        (1, "reduce", 1, (), {("reduce", 1, 0), ("reduce", 1, 2)}),
        (2, "gather", 1, (0, 2), set()),
    ]


def test_multitree_on_a_line_relays_in_the_middle() -> None:
    tables = make_tables(multitree.all_reduce(load_topology("mesh:3")), 12, ports=2)
    assert lines(tables.ranks[0]) == [
        (0, "reduce", 2, (1,), set()),
        (1, "reduce", 1, (1,), set()),
        (2, "reduce", 0, (), {("reduce", 0, 1)}),
        (3, "gather", 0, (1,), set()),
    ]
    assert lines(tables.ranks[1]) == [
        (1, "reduce", 0, (0,), {("reduce", 0, 2)}),
        (1, "reduce", 2, (2,), {("reduce", 2, 0)}),
        (2, "reduce", 1, (), {("reduce", 1, 0), ("reduce", 1, 2)}),
        (3, "gather", 1, (0, 2), set()),
        (4, "gather", 0, (2,), {("gather", 0, 0)}),
        (4, "gather", 2, (0,), {("gather", 2, 2)}),
    ]
    assert tables.entries == 7  # the middle has a NOP in step 0
    assert "rank 1, 6 entries and 1 NOP\n" in tables_to_text(tables)


def test_a_double_tree_reduces_both_trees_then_spreads_both() -> None:
    schedule = double_binary_tree.all_reduce(load_topology("switch:3"), chunks=1)
    tables = make_tables(schedule, 12)
    assert lines(tables.ranks[2]) == [
        (1, "reduce", 1, (0,), set()),
        (2, "reduce", 0, (0,), {("reduce", 0, 1)}),
        (4, "reduce", 2, (), set()),
        (7, "gather", 0, (1,), {("gather", 0, 0)}),
    ]
    assert lines(tables.ranks[1]) == [
        (0, "reduce", 0, (2,), set()),
        (4, "reduce", 1, (), {("reduce", 1, 0)}),
        (5, "gather", 1, (0,), set()),
    ]


def test_hdrm_halves_and_doubles() -> None:
    topology = load_topology("bigraph:2,4")
    tables = make_tables(hdrm.all_reduce(topology), 8000)
    for rank, entries in enumerate(tables.ranks):
        assert [e.op for e in entries] == ["reduce"] * 4 + ["gather"] * 3
        assert [e.size_bytes for e in entries] == [4000, 2000, 1000, 0, 1000, 2000, 4000]
        partners = [e.sends[0].dst for e in entries if e.sends]
        assert partners == partners[:3] + partners[:3][::-1]
        for entry in (e for e in entries if e.sends):
            assert entry.sends[0].route is not None
            ends = topology.link_src[entry.sends[0].route[0]], topology.link_dst[entry.sends[0].route[-1]]
            assert ends == (rank, entry.sends[0].dst)
        # What is halved in a step has come from the partners of all steps before it.
        for place in range(3):
            assert {src for _, _, src in entries[place].after} == set(partners[:place])


def test_ring2d_closes_each_dimension() -> None:
    tables = make_tables(ring2d.all_reduce(load_topology("torus:2x2")), 16, ports=2)
    first = {("reduce", 0, 1), ("reduce", 2, 1), ("reduce", 4, 2), ("reduce", 6, 2)}
    second = {("reduce", 0, 2), ("reduce", 2, 2), ("reduce", 4, 1), ("reduce", 6, 1)}
    along, down = (1, 1, 2, 2), (2, 2, 1, 1)
    expected: list[Line] = [(0, "reduce", f, (to,), set()) for f, to in zip((1, 3, 5, 7), along, strict=True)]
    expected += [(1, "reduce", 0, (), first)]
    expected += [(2, "gather", f, (to,), set()) for f, to in zip((0, 2, 4, 6), along, strict=True)]
    expected += [
        (3, "reduce", f, (to,), {("gather", f, src)})
        for f, to, src in zip((1, 3, 5, 7), down, along, strict=True)
    ]
    expected += [(4, "reduce", 0, (), second)]
    expected += [(5, "gather", f, (to,), set()) for f, to in zip((0, 2, 4, 6), down, strict=True)]
    assert sorted(lines(tables.ranks[0]), key=lambda line: line[:3]) == expected


def test_messages_of_a_step_take_the_ports_of_their_receiver_in_turn() -> None:
    tables = make_tables(multitree.all_reduce(load_topology("torus:4x4")), "1KiB", ports=2)
    for step in range(tables.steps):
        found = Counter(
            (send.dst, send.port) for e in tables.all_entries() if e.step == step for send in e.sends
        )
        for rank in range(16):
            assert 0 <= found[rank, 0] - found[rank, 1] <= 1


def test_the_bits_of_an_entry() -> None:
    tables = make_tables(multitree.all_reduce(load_topology("torus:4x4")), 128 << 10, ports=4)
    assert tables.entry_bits() == {
        "opcode": 2,
        "flow": 4,
        "parent": 1 + 4,
        "children": 4 * (1 + 4),
        "step": 4,
        "address": 17,
        "size": 14,
    }
    assert tables.table_bits == 27 * 66


def test_waits_for_other_flows_take_bits_of_their_own() -> None:
    tables = make_tables(hdrm.all_reduce(load_topology("bigraph:2,4")), 8000)
    one = 1 + 3 + 1 + 3  # whether it is there, a rank, an operation, a flow
    last = tables.ranks[0][-1]
    assert (len(last.after), len(last.sends)) == (4, 1)
    assert tables.entry_bits()["parent"] == one
    assert tables.entry_bits()["children"] == 4 * one  # three waits beyond the first, and a child


def test_an_empty_table_has_bits_and_a_listing() -> None:
    nothing = Tables(load_topology("ring:2"), "nothing", "all_reduce", 0, 0, 1, ((), ()))
    assert nothing.entries == 0
    assert nothing.table_bits == 0
    assert "rank 1, 0 entries" in tables_to_text(nothing)


@pytest.mark.parametrize(
    ("spec", "ports"),
    [
        ("ring:8", 2),
        ("mesh:3x3", 4),
        ("torus:4x4x4", 6),
        ("fullmesh:5", 4),
        ("switch:8", 1),
        ("bigraph:2,4", 1),
        ("fattree:4", 1),
        ("hosts:4,2", 1),
    ],
)
def test_ports_unless_told(spec: str, ports: int) -> None:
    assert default_ports(load_topology(spec)) == ports


def test_ports_are_bounded() -> None:
    schedule = ring.all_reduce(load_topology("ring:4"))
    with pytest.raises(LimitError, match="ports"):
        make_tables(schedule, 4, ports=257)
    with pytest.raises(ScheduleError, match="ports"):
        make_tables(schedule, 4, ports=0)
    assert default_ports(load_topology("fullmesh:300")) == 256


def build(rows: list[tuple[int, int, int, int, Op]], **more: int) -> Schedule:
    builder = ScheduleBuilder(load_topology("ring:4"), "all_reduce", "mine", chunks=2)
    for step, chunk, src, dst, op in rows:
        builder.add(step=step, chunk=chunk, src=src, dst=dst, op=op, **more)
    return builder.build()


def test_scratch_slots_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="scratch slots"):
        make_tables(build([(0, 0, 0, 1, Op.COPY)], dst_slot=1), 4)


def test_the_same_message_twice_is_refused() -> None:
    twice = build([(0, 0, 0, 1, Op.COPY), (1, 0, 0, 1, Op.COPY)])
    with pytest.raises(UnsupportedError, match="flow 0 comes to rank 1 from rank 0 more than once"):
        make_tables(twice, 4)


def test_a_schedule_that_reduces_and_gathers_at_once_has_no_closing_entry() -> None:
    mixed = build([(0, 0, 0, 1, Op.REDUCE), (0, 1, 2, 3, Op.COPY), (1, 0, 1, 2, Op.COPY)])
    tables = make_tables(mixed, 4)
    assert all(entry.sends for entry in tables.all_entries())
    assert lines(tables.ranks[1]) == [(1, "gather", 0, (2,), {("reduce", 0, 0)})]
