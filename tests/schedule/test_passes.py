"""Schedules from schedules, checked by running them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.oracle import accepts
from support.schedules import all_gathers, columns, relayed_all_to_all, ring_all_reduce, routed_all_reduce

from weft import limits
from weft.algorithms import forest
from weft.errors import LimitError, ScheduleError
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.schedule.passes import compose, halves, parallel, reverse, split
from weft.topology import load_topology
from weft.verification import verify

RING = load_topology("ring:4")


def one_chunk(
    collective: str,
    *rows: tuple[int, int, int],
    op: Op = Op.COPY,
    root: int = 0,
    spec: str = "ring:3",
    **options: Any,
) -> Schedule:
    """One chunk; rows are (step, src, dst)."""
    builder = ScheduleBuilder(load_topology(spec), collective, "test", chunks=1, root=root, **options)
    for step, src, dst in rows:
        builder.add(step=step, chunk=0, src=src, dst=dst, op=op)
    return builder.build()


CHAIN = one_chunk("broadcast", (0, 0, 1), (1, 1, 2))


def with_free_ownership(schedule: Schedule) -> Schedule:
    return replace(schedule, ownership="free")


@st.composite
def all_reduces(draw: st.DrawFn) -> Schedule:
    """A reverse gather followed by a gather that has the same chunks and owners."""
    gather = draw(all_gathers())
    return compose(mirrored(gather), gather, "all_reduce")


def mirrored(gather: Schedule) -> Schedule:
    """The reduce_scatter along the same trees, on the same topology; by default routes."""
    backwards = gather.topology.transpose()
    plain = replace(gather, route=np.full(gather.transfers, -1), route_offsets=[0], route_links=[])
    return reverse(replace(plain, topology=backwards))


# reverse


@given(all_gathers())
def test_the_reverse_of_a_gather_is_a_scatter_on_the_transposed_topology(gather: Schedule) -> None:
    scatter = reverse(gather)
    assert (scatter.collective, scatter.ownership) == ("reduce_scatter", gather.ownership)
    assert scatter.topology == gather.topology.transpose()
    assert accepts(scatter)


@given(all_gathers())
def test_reversing_twice_is_the_identity(gather: Schedule) -> None:
    assert reverse(reverse(gather)).digest == gather.digest


@given(all_gathers())
def test_reversed_routes_run_from_the_new_source_to_the_new_destination(gather: Schedule) -> None:
    scatter = reverse(gather)
    for row in range(scatter.transfers):
        node = int(scatter.src[row])
        for link in scatter.route_of(row):
            assert int(scatter.topology.link_src[link]) == node
            node = int(scatter.topology.link_dst[link])
        assert node == int(scatter.dst[row])


def test_a_broadcast_reverses_to_a_reduce_and_back() -> None:
    reduce = reverse(CHAIN)
    assert (reduce.collective, int(reduce.target[0])) == ("reduce", 0)
    assert accepts(reduce)
    assert reverse(reduce) == CHAIN


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (ring_all_reduce(RING), "all_reduce has no reverse"),
        (relayed_all_to_all(), "all_to_all has no reverse"),
        (
            one_chunk("broadcast", (0, 0, 1), (0, 0, 2), (1, 1, 2)),
            "reverse: rank 2 receives chunk 0 2 times, it must do so once",
        ),
        (
            one_chunk("broadcast", (0, 0, 1), (1, 1, 0), (2, 0, 2)),
            "reverse: rank 0 receives chunk 0, which is its own",
        ),
        (
            one_chunk("reduce", (0, 1, 0), (1, 1, 0), (1, 2, 0), op=Op.REDUCE),
            "reverse: rank 1 sends chunk 0 2 times, it must do so once",
        ),
        (one_chunk("reduce", (0, 0, 1), op=Op.REDUCE), "reverse: rank 0 sends chunk 0, which is its own"),
        (one_chunk("reduce", (0, 1, 0)), "reverse: transfer 0 copies, a reversible reduce only reduces"),
        (
            one_chunk("broadcast", (0, 0, 1), op=Op.REDUCE),
            "reverse: transfer 0 reduces, a reversible broadcast only copies",
        ),
        (
            Schedule(**columns(src_slot=[0] * 6, dst_slot=[0, 0, 0, 0, 1, 1])),
            "reverse: the schedule uses scratch slots",
        ),
    ],
)
def test_what_has_no_reverse_is_refused(schedule: Schedule, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        reverse(schedule)


# compose and halves


@given(all_reduces())
def test_a_scatter_and_a_gather_make_an_all_reduce(schedule: Schedule) -> None:
    assert (schedule.collective, schedule.ownership) == ("all_reduce", "none")
    assert accepts(schedule)


@given(all_reduces())
def test_composing_the_halves_gives_the_whole_back(schedule: Schedule) -> None:
    scatter, gather = halves(schedule)
    assert accepts(scatter)
    assert accepts(gather)
    assert compose(scatter, gather, "all_reduce").digest == schedule.digest


@given(all_gathers(routed=False))
def test_halving_a_composition_gives_the_parts_back(gather: Schedule) -> None:
    scatter = mirrored(gather)
    found = halves(compose(scatter, gather, "all_reduce"))
    assert found == (with_free_ownership(scatter), with_free_ownership(gather))


def test_a_ring_has_halves() -> None:
    ring = ring_all_reduce(RING)
    scatter, gather = halves(ring)
    assert (scatter.collective, gather.collective) == ("reduce_scatter", "all_gather")
    assert scatter.ownership == gather.ownership == "free"
    assert scatter.steps == gather.steps == 3
    assert accepts(scatter)
    assert accepts(gather)


def test_explicit_routes_survive_halving_and_composing_once() -> None:
    schedule = routed_all_reduce()
    again = compose(*halves(schedule), "all_reduce")
    assert again == schedule
    assert again.routes == schedule.routes == 4


def test_a_reduce_and_a_broadcast_make_an_all_reduce() -> None:
    reduce = one_chunk("reduce", (0, 0, 2), (0, 1, 2), op=Op.REDUCE, root=2)
    broadcast = one_chunk("broadcast", (0, 2, 0), (0, 2, 1), root=2)
    assert accepts(compose(reduce, broadcast, "all_reduce"))


def test_notes_of_both_are_kept_once() -> None:
    noted = [
        replace(part, notes=notes)
        for part, notes in zip(halves(ring_all_reduce(RING)), ["ab", "bc"], strict=True)
    ]
    assert compose(noted[0], noted[1], "all_reduce", "mine").notes == ("a", "b", "c")
    assert compose(noted[0], noted[1], "all_reduce", "mine").algorithm == "mine"


SCATTER, GATHER = halves(ring_all_reduce(RING))


@pytest.mark.parametrize(
    ("second", "collective", "message"),
    [
        (
            replace(GATHER, topology=load_topology("ring:4@bw=1GB/s")),
            "all_reduce",
            "compose: made for different topologies, ring:4 and ring:4@bw=1GB/s",
        ),
        (split(GATHER, 2), "all_reduce", r"compose: cut into different chunks \(4 and 8\)"),
        (replace(GATHER, weights=[2] * 4, denominator=8), "all_reduce", "compose: cut into different chunks"),
        (
            replace(GATHER, source=[0, 1, 2, 3]),
            "all_reduce",
            "compose: chunk 0 ends at another rank than it begins at",
        ),
        (GATHER, "allreduce", "collective 'allreduce' is unknown"),
        (GATHER, "broadcast", "root -1 is not a rank"),
    ],
)
def test_what_does_not_fit_together_is_not_composed(second: Schedule, collective: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        compose(SCATTER, second, collective)


def test_a_reduce_is_not_composed_with_a_broadcast_from_elsewhere() -> None:
    reduce = one_chunk("reduce", (0, 1, 0), (0, 2, 0), op=Op.REDUCE)
    with pytest.raises(ScheduleError, match="chunk 0 ends at another rank"):
        compose(reduce, one_chunk("broadcast", (0, 1, 0), (0, 1, 2), root=1), "all_reduce")


def all_reduce_of(*rows: tuple[int, int, int, int, Op], chunks: int = 1) -> Schedule:
    """Rows are (step, chunk, src, dst, op)."""
    builder = ScheduleBuilder(load_topology("ring:3"), "all_reduce", "test", chunks=chunks)
    for step, chunk, src, dst, op in rows:
        builder.add(step=step, chunk=chunk, src=src, dst=dst, op=op)
    return builder.build()


COPY, REDUCE = Op.COPY, Op.REDUCE


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (CHAIN, "halves: only an all_reduce has halves, this is broadcast"),
        (
            all_reduce_of((0, 0, 1, 0, REDUCE), (1, 0, 2, 0, REDUCE), (1, 0, 0, 1, COPY), (2, 0, 0, 2, COPY)),
            "halves: test copies chunk 0 before its last reduce",
        ),
        (
            all_reduce_of((0, 0, 1, 0, REDUCE)),
            "halves: test has no split step, it does not both reduce and copy",
        ),
        (
            all_reduce_of((0, 0, 1, 0, COPY)),
            "halves: test has no split step, it does not both reduce and copy",
        ),
        (
            all_reduce_of((0, 0, 1, 0, REDUCE), (0, 0, 2, 0, REDUCE), (1, 0, 0, 1, COPY)),
            "halves: chunk 0 is not gathered from a single owner",
        ),
        (
            all_reduce_of((0, 0, 1, 0, REDUCE), (1, 0, 0, 1, COPY), (1, 0, 0, 2, COPY), (1, 0, 1, 0, COPY)),
            "halves: chunk 0 is not gathered from a single owner",
        ),
        (
            replace(ring_all_reduce(RING), src_slot=[0] * 24, dst_slot=[0] * 23 + [1]),
            "halves: the schedule uses scratch slots",
        ),
    ],
)
def test_what_has_no_halves_is_refused(schedule: Schedule, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        halves(schedule)


def test_the_chunks_of_an_owner_are_brought_together() -> None:
    owners = (0, 1, 0)
    whole = all_reduce_of(
        *(
            row
            for chunk, owner in enumerate(owners)
            for other in {0, 1, 2} - {owner}
            for row in ((chunk, chunk, other, owner, REDUCE), (chunk + 1, chunk, owner, other, COPY))
        ),
        chunks=3,
    )
    scatter, gather = halves(whole)
    assert scatter.target.tolist() == gather.source.tolist() == [0, 0, 1]
    verify(scatter)
    verify(gather)


@pytest.mark.parametrize("spec", ["torus:2x4", "mesh:3x3", "hosts:3,2,1"])
def test_an_all_reduce_that_overlaps_its_halves_is_cut_chunk_by_chunk(spec: str) -> None:
    whole = forest.all_reduce(load_topology(spec), trees=12)
    for half in halves(whole):
        verify(half)


# split


@given(st.one_of(all_gathers(), all_reduces()), st.integers(1, 3))
def test_splitting_keeps_meaning_and_shares(schedule: Schedule, parts: int) -> None:
    finer = split(schedule, parts)
    assert finer.chunks == parts * schedule.chunks
    assert finer.transfers == parts * schedule.transfers
    assert finer.messages <= finer.transfers
    assert accepts(finer)
    size = parts * schedule.denominator
    assert finer.chunk_bytes(size * 6).reshape(-1, parts).sum(axis=1).sum() == size * 6
    shares = finer.weights.reshape(-1, parts).sum(axis=1) * schedule.denominator
    assert shares.tolist() == (schedule.weights * finer.denominator).tolist()


def test_splitting_into_one_changes_nothing() -> None:
    assert split(ring_all_reduce(RING), 1) == ring_all_reduce(RING)
    assert split(relayed_all_to_all(), 1) == relayed_all_to_all()


def test_split_chunks_travel_as_one_message() -> None:
    assert split(ring_all_reduce(RING), 5).messages == ring_all_reduce(RING).messages


@pytest.mark.parametrize("parts", [0, -1])
def test_no_parts_are_refused(parts: int) -> None:
    with pytest.raises(ScheduleError, match=f"split: cannot cut a chunk into {parts} parts"):
        split(CHAIN, parts)


def test_all_to_all_is_not_split() -> None:
    with pytest.raises(ScheduleError, match="split: all_to_all has exactly one chunk per pair"):
        split(relayed_all_to_all(), 2)


@pytest.mark.parametrize("parts", [limits.MAX_CHUNKS + 1, 10**30])
def test_too_many_parts_are_refused_before_anything_is_allocated(parts: int) -> None:
    with pytest.raises(LimitError, match="split: chunks"):
        split(CHAIN, parts)


# parallel


@st.composite
def side_by_side(draw: st.DrawFn) -> list[Schedule]:
    topology = load_topology(draw(st.sampled_from(["ring:4", "switch:3"])))
    parts = draw(st.lists(all_gathers(topology=topology), min_size=1, max_size=3))
    same = [part for part in parts if part.ownership == parts[0].ownership]
    return [reverse(part) for part in same] if draw(st.booleans()) else same


@examples(60)
@given(side_by_side(), st.data())
def test_owned_collectives_side_by_side_keep_each_owners_chunks_together(
    parts: list[Schedule], data: st.DataObject
) -> None:
    shares = [data.draw(st.integers(1, 4)) for _ in parts]
    joined = parallel(parts, shares, "both")
    assert accepts(joined)
    assert (joined.algorithm, joined.ownership) == ("both", parts[0].ownership)
    assert joined.transfers == sum(part.transfers for part in parts)
    assert joined.steps == max(part.steps for part in parts)
    owner = joined.source if joined.collective == "all_gather" else joined.target
    assert owner.tolist() == sorted(owner.tolist())
    per_owner = np.bincount(owner, weights=joined.weights, minlength=joined.ranks)
    for rank in range(joined.ranks):
        exact = 0.0
        for part, share in zip(parts, shares, strict=True):
            owned = part.source if part.collective == "all_gather" else part.target
            exact += share / sum(shares) * part.weights[owned == rank].sum() / part.denominator
        assert per_owner[rank] / joined.denominator == pytest.approx(exact)


def test_all_reduces_side_by_side_take_their_shares() -> None:
    ring = ring_all_reduce(RING)
    joined = parallel([ring, split(ring, 2)], [3, 1], "both")
    assert accepts(joined)
    assert joined.chunk_bytes(32).tolist() == [6] * 4 + [1] * 8


def test_slots_and_routes_of_one_do_not_disturb_the_other() -> None:
    topology = load_topology("ring:3")
    builder = ScheduleBuilder(topology, "broadcast", "scratch", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=1, op=COPY, dst_slot=1, route=builder.route(topology.route(0, 1)))
    builder.add(step=1, chunk=0, src=1, dst=1, op=COPY, src_slot=1)
    builder.add(step=1, chunk=0, src=1, dst=2, op=COPY, src_slot=1, route=builder.route(topology.route(1, 2)))
    scratch = builder.build()
    joined = parallel([CHAIN, scratch, scratch], [1, 1, 1], "three")
    assert accepts(joined)
    assert joined.routes == 2
    explicit = [joined.route_of(row) for row in range(joined.transfers) if joined.route[row] >= 0]
    assert sorted(explicit) == sorted([topology.route(0, 1), topology.route(1, 2)] * 2)


@pytest.mark.parametrize(
    ("parts", "shares", "message"),
    [
        ([], [], "parallel: 0 schedules need as many shares"),
        ([CHAIN, CHAIN], [1], r"parallel: 2 schedules need as many shares of at least 1, not \[1\]"),
        ([CHAIN, CHAIN], [1, 0], r"of at least 1, not \[1, 0\]"),
        (
            [CHAIN, reverse(CHAIN)],
            [1, 1],
            "parallel: schedules must share topology, collective and ownership",
        ),
        ([SCATTER, GATHER], [1, 1], "parallel: schedules must share"),
        ([CHAIN, Schedule(**columns())], [1, 1], "parallel: schedules must share"),
        ([relayed_all_to_all()], [1], "parallel: all_to_all has exactly one chunk per pair"),
        ([CHAIN, CHAIN], [2**62, 2**62], "parallel: the common denominator .* does not fit"),
        (
            [CHAIN, one_chunk("broadcast", (0, 1, 0), (0, 1, 2), root=1)],
            [1, 1],
            "source and target of the chunks do not describe broadcast",
        ),
    ],
)
def test_what_cannot_run_side_by_side_is_refused(
    parts: list[Schedule], shares: list[int], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        parallel(parts, shares, "both")
