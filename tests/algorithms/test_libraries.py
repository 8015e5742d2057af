"""What Gloo, Open MPI and MPICH would run: choices by size, steps and messages, and where rows appear."""

from __future__ import annotations

import numpy as np
import pytest

from weft.algorithms import gloo_halving_doubling, gloo_ring, mpich_choice, open_mpi_choice, ring
from weft.algorithms.registry import ALGORITHMS, Refusal, find
from weft.errors import InputError, UnsupportedError
from weft.planning import compare, plan
from weft.planning.quick import QuickChooser
from weft.simulation import simulate
from weft.topology import load_topology
from weft.verification import inspect

YARDSTICKS = [name for name, line in ALGORITHMS.items() if line.yardstick]


@pytest.mark.parametrize("ranks", [*range(2, 18), 24, 31, 33])
@pytest.mark.parametrize("size", [1, 1000, 5000, 20_000, 100_000, 300_000, 4 << 20])
def test_every_schedule_of_a_library_is_right_for_any_number_of_ranks(ranks: int, size: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    for name in YARDSTICKS:
        for collective in find(name).collectives:
            made = find(name).try_build(topology, collective, root=ranks // 2, expected_bytes=size)
            if isinstance(made, Refusal):
                assert (name, collective) == ("mpich_choice", "reduce_scatter")
                assert "a power of two ranks" in made.reason
            else:
                assert inspect(made).problem is None, (name, collective)


@pytest.mark.parametrize(
    ("ranks", "size", "chosen"),
    [
        (3, 4, "recursive doubling"),  # a ring needs an element for each rank
        (3, 4095, "recursive doubling"),
        (3, 4096, "ring"),
        (3, 8192, "recursive doubling"),
        (3, 16384, "ring"),
        (3, 65536, "ring"),
        (3, 262144, "rabenseifner"),
        (6, 8191, "recursive doubling"),
        (6, 8192, "rabenseifner"),
        (16, 4095, "recursive doubling"),
        (16, 4096, "rabenseifner"),
        (32, 124, "recursive doubling"),
        (32, 128, "rabenseifner"),
        (64, 262143, "recursive doubling"),
        (64, 262144, "rabenseifner"),
        (200, 131072, "recursive doubling"),
    ],
)
def test_open_mpi_chooses_by_ranks_and_size(ranks: int, size: int, chosen: str) -> None:
    made = open_mpi_choice.all_reduce(load_topology(f"switch:{ranks}"), size_bytes=size)
    assert made.notes == (chosen,)


def test_open_mpi_refuses_where_it_would_reduce_and_broadcast() -> None:
    with pytest.raises(UnsupportedError, match=r"for 1000 bytes Open MPI reduces .*nonoverlapping"):
        open_mpi_choice.all_reduce(load_topology("switch:128"), size_bytes=1000)


@pytest.mark.parametrize(
    ("ranks", "size", "chosen"),
    [
        (8, 1, "recursive doubling"),
        (6, 1 << 20, "bruck"),
        (32, 32 * 1023, "recursive doubling"),
        (32, 32 * 1024, "neighbour exchange"),
        (33, 33 * 1024, "ring"),
        (32, 32 * 65536, "ring"),
    ],
)
def test_open_mpi_gathers_by_the_size_of_a_shard(ranks: int, size: int, chosen: str) -> None:
    made = open_mpi_choice.all_gather(load_topology(f"switch:{ranks}"), size_bytes=size)
    assert made.notes == (chosen,)


@pytest.mark.parametrize(
    ("collective", "ranks", "size", "chosen"),
    [
        ("all_reduce", 6, 8, "recursive doubling"),
        ("all_reduce", 6, 16, "rabenseifner"),
        ("all_reduce", 16, 60, "recursive doubling"),  # fewer elements than ranks of the core
        ("all_reduce", 16, 64, "rabenseifner"),
        ("all_gather", 8, 524287, "recursive doubling"),
        ("all_gather", 8, 524288, "ring"),
        ("all_gather", 6, 81919, "bruck"),
        ("all_gather", 6, 81920, "ring"),
        ("reduce_scatter", 8, 524287, "recursive halving"),
        ("reduce_scatter", 6, 524288, "pairwise"),
        ("broadcast", 7, 1 << 20, "binomial tree"),
        ("broadcast", 8, 12288, "binomial tree"),
        ("broadcast", 8, 524288, "scatter, recursive doubling"),
        ("broadcast", 8, 524289, "scatter, ring"),
        ("broadcast", 9, 12289, "scatter, ring"),
    ],
)
def test_mpich_chooses_by_ranks_and_size(collective: str, ranks: int, size: int, chosen: str) -> None:
    made = find("mpich_choice").build(load_topology(f"switch:{ranks}"), collective, expected_bytes=size)
    assert made.notes == (chosen,)


def test_ranks_beyond_a_power_of_two_are_folded_as_each_library_does_it() -> None:
    topology = load_topology("switch:6")
    sent = {}
    for module in (open_mpi_choice, mpich_choice):
        made = module.all_reduce(topology, size_bytes=4 << 20)
        first = made.step == 0
        sent[module] = sorted(zip(made.src[first].tolist(), made.dst[first].tolist(), strict=True))
    # Open MPI: either half of the buffer, two of four chunks each; MPICH: all of it, from the even rank.
    assert sent[open_mpi_choice] == [(0, 1)] * 2 + [(1, 0)] * 2 + [(2, 3)] * 2 + [(3, 2)] * 2
    assert sent[mpich_choice] == [(0, 1)] * 4 + [(2, 3)] * 4


@pytest.mark.parametrize(("size", "segments"), [(1, 2), (8 << 20, 2), ((8 << 20) + 1, 3), (64 << 20, 16)])
def test_gloo_cuts_chunks_into_two_segments_or_more_of_at_most_a_mebibyte(size: int, segments: int) -> None:
    made = gloo_ring.all_reduce(load_topology("switch:4"), size_bytes=size)
    assert made.chunks == 4 * segments
    assert made.steps == 6 * segments
    assert made.messages == made.transfers  # no two segments travel together
    assert np.array_equal(made.dst, (made.src - 1) % 4)


@pytest.mark.parametrize("spec", ["switch:2", "hosts:4,4", "switch:64", "switch:300"])
def test_gloos_segments_grow_where_there_would_be_millions_of_transfers(spec: str) -> None:
    topology = load_topology(spec)
    most, least = gloo_ring.all_reduce(topology, size_bytes=1 << 40), gloo_ring.all_reduce(topology)
    assert most.transfers <= max(1 << 20, least.transfers)


def test_gloos_halving_doubling_is_rabenseifners_for_a_power_of_two() -> None:
    topology = load_topology("switch:8")
    ours = find("halving_doubling").build(topology, "all_reduce")
    made = gloo_halving_doubling.all_reduce(topology)
    for column in ("step", "chunk", "src", "dst", "op"):
        assert np.array_equal(getattr(made, column), getattr(ours, column))


def test_gloos_blocks_hand_their_sums_to_the_next_larger_one() -> None:
    made = gloo_halving_doubling.all_reduce(load_topology("switch:7"))
    block = np.array([0, 0, 0, 0, 1, 1, 2])
    crossing = block[made.src] != block[made.dst]
    pairs = set(zip(block[made.src[crossing]].tolist(), block[made.dst[crossing]].tolist(), strict=True))
    assert pairs == {(2, 1), (1, 0), (0, 1), (1, 2)}


@pytest.mark.parametrize("module", [gloo_ring, open_mpi_choice, mpich_choice])
def test_a_size_below_one_byte_is_refused(module: object) -> None:
    name = getattr(module, "__name__", "").rpartition(".")[2]
    with pytest.raises(InputError, match=f"{name}: size_bytes=0 must be at least 1"):
        find(name).build(load_topology("switch:4"), "all_reduce", size_bytes=0)


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("switch:4", YARDSTICKS),
        ("fattree:16", YARDSTICKS),
        ("hosts:1,1,1", YARDSTICKS),
        ("hosts:2,2", [name for name in YARDSTICKS if name != "mpich_choice"]),
        ("torus:4x4", []),
        ("fullmesh:4", []),
        ("dgx-h100:1", []),
        ("rails:2x2", []),
        ("xgmi:4", []),
    ],
)
def test_rows_of_gloo_and_mpi_appear_for_hosts_on_switches(spec: str, shown: list[str]) -> None:
    found = compare(spec, "64KiB")
    assert sorted(row.algorithm for row in found.results if row.algorithm in YARDSTICKS) == sorted(shown)
    skipped = {refusal.algorithm: refusal.reason for refusal in found.skipped}
    for name in set(YARDSTICKS) - set(shown):
        assert "--algorithm" in skipped[name]


def test_a_row_that_is_asked_for_appears_anywhere_and_is_not_cut() -> None:
    found = compare("torus:4x4", "64MiB", algorithms=[*YARDSTICKS, "ring"])
    rows = {row.algorithm: row for row in found.results}
    assert {name: rows[name].label for name in YARDSTICKS} == {
        "gloo_ring": "gloo ring",
        "gloo_halving_doubling": "gloo halving-doubling",
        "open_mpi_choice": "open mpi (rabenseifner)",
        "mpich_choice": "mpich (rabenseifner)",
    }
    assert {rows[name].library for name in YARDSTICKS} == {"gloo", "open mpi", "mpich"}
    assert all(rows[name].segment_bytes is None for name in YARDSTICKS)
    cut = compare("torus:4x4", "64MiB", algorithms=["gloo_ring"], segment_bytes="64KiB")
    assert cut.results[0].segment_bytes == 64 << 10


def test_the_gain_counts_gloo_and_mpi_and_a_tie_goes_to_weft() -> None:
    found = compare("switch:8", "4MiB", algorithms=["ring", "gloo_ring", "open_mpi_choice"])
    assert found.best_of_libraries is not None
    assert found.best_of_libraries.label == "gloo ring"
    assert found.best is not None
    assert (found.best.algorithm, found.gain_over_libraries) == ("ring", 1.0)


def test_plans_and_quick_choices_leave_yardsticks_out_unless_they_are_named() -> None:
    topology = load_topology("switch:3")
    made = plan(topology, size="1MiB")
    names = {refusal.algorithm for refusal in made.skipped} | {one.algorithm for one in made.schedules}
    assert names.isdisjoint(YARDSTICKS)
    assert {one.algorithm for one in plan(topology, size="1MiB", algorithms=["gloo_ring"]).schedules} == {
        "gloo_ring"
    }
    assert QuickChooser(topology)("all_reduce", 1 << 20)[0].algorithm not in YARDSTICKS


def test_gloos_segments_time_like_a_ring_cut_into_segments_of_that_size() -> None:
    topology = load_topology("switch:4@bw=1GB/s,lat=1us")
    size = 64 << 20
    made = simulate(gloo_ring.all_reduce(topology, size_bytes=size), size, segment_bytes=None)
    cut = simulate(ring.all_reduce(topology), size, segment_bytes=1 << 20)
    assert made.time_ps == cut.time_ps
