"""Where a formula for the time is known to be exact, both engines give it to the picosecond.

Notation: N ranks, a buffer of M bytes, links of B bytes per second and latency a. Sizes are chosen so that
every chunk is a whole number of bytes and every duration a whole number of picoseconds.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.reference.schedule_engine import simulate_reference

import weft
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.topology import Topology

PS_PER_BYTE = 1000
LATENCY_PS = 70_000
LINKS = "bw=1GB/s,lat=70ns"


def time_ps(schedule: Schedule, size_bytes: int, **options: Any) -> int:
    """What both engines say."""
    fast = weft.simulation.simulate(schedule, size_bytes, **{"segment_bytes": None} | options).time_ps
    assert simulate_reference(schedule, size_bytes, **options).time_ps == fast
    return fast


def exact(*, latencies: int, size_bytes: int, share: tuple[int, int]) -> int:
    """So many latencies, and a share of the buffer (numerator, denominator) at the speed of one link."""
    carried, rest = divmod(size_bytes * share[0], share[1])
    assert rest == 0, "choose a size that divides"
    return latencies * LATENCY_PS + carried * PS_PER_BYTE


def load(spec: str) -> Topology:
    return weft.load_topology(f"{spec}@{LINKS}")


# Rings


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16])
def test_ring_all_reduce_takes_two_rounds(ranks: int) -> None:
    """2(N-1) a + 2(N-1)/N M/B."""
    schedule = weft.algorithms.ring.all_reduce(load(f"ring:{ranks}"))
    size = 96 * ranks
    expected = exact(latencies=2 * (ranks - 1), size_bytes=size, share=(2 * (ranks - 1), ranks))
    assert time_ps(schedule, size) == expected


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
@pytest.mark.parametrize("ranks", [3, 8])
def test_ring_halves_take_one_round(collective: str, ranks: int) -> None:
    """(N-1) a + (N-1)/N M/B."""
    schedule = getattr(weft.algorithms.ring, collective)(load(f"ring:{ranks}"))
    size = 1000 * ranks
    assert time_ps(schedule, size) == exact(latencies=ranks - 1, size_bytes=size, share=(ranks - 1, ranks))


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("ranks", [3, 6])
def test_a_ring_as_a_chain_is_a_pipeline_of_its_chunks(collective: str, ranks: int) -> None:
    """(N-1) a + (N-1 + C-1)/C M/B for a chain of C = N chunks."""
    schedule = getattr(weft.algorithms.ring, collective)(load(f"ring:{ranks}"), root=1)
    size = 120 * ranks
    expected = exact(latencies=ranks - 1, size_bytes=size, share=(2 * (ranks - 1), ranks))
    assert time_ps(schedule, size) == expected


@pytest.mark.parametrize("ranks", [3, 4, 9])
def test_two_opposite_rings_take_half_the_bandwidth_term(ranks: int) -> None:
    """2(N-1) a + (N-1)/N M/B."""
    schedule = weft.algorithms.bidirectional_ring.all_reduce(load(f"ring:{ranks}"))
    size = 64 * ranks
    expected = exact(latencies=2 * (ranks - 1), size_bytes=size, share=(ranks - 1, ranks))
    assert time_ps(schedule, size) == expected


# Grids


@pytest.mark.parametrize(("side", "dimensions"), [(3, 2), (3, 1), (4, 2), (3, 3)])
def test_bucket_uses_every_link_of_a_torus(side: int, dimensions: int) -> None:
    """2 D(n-1) a + 2(N-1)/N M/(2 D B) on a torus of D sides of n."""
    ranks = side**dimensions
    schedule = weft.algorithms.bucket.all_reduce(load("torus:" + "x".join([str(side)] * dimensions)))
    size = 8 * 2 * dimensions * ranks
    expected = exact(
        latencies=2 * dimensions * (side - 1),
        size_bytes=size,
        share=(2 * (ranks - 1), ranks * 2 * dimensions),
    )
    assert time_ps(schedule, size) == expected


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4, 5)])
def test_blueconnect_on_a_torus_takes_one_ring_per_dimension(shape: tuple[int, ...]) -> None:
    """2 sum(n_i - 1) a + 2(N-1)/N M/B."""
    ranks = math.prod(shape)
    schedule = weft.algorithms.blueconnect.all_reduce(load("torus:" + "x".join(map(str, shape))))
    size = 16 * ranks
    steps = 2 * sum(side - 1 for side in shape)
    assert time_ps(schedule, size) == exact(latencies=steps, size_bytes=size, share=(2 * (ranks - 1), ranks))


@pytest.mark.parametrize("side", [3, 4])
def test_ring2d_on_a_torus_takes_a_ring_all_reduce_per_dimension(side: int) -> None:
    """4(d-1) a + 4(d-1)/(4d) M/B: four flows of a quarter, two ring all-reduces each."""
    schedule = weft.algorithms.ring2d.all_reduce(load(f"torus:{side}x{side}"))
    size = 4 * side * side * 10
    assert time_ps(schedule, size) == exact(latencies=4 * (side - 1), size_bytes=size, share=(side - 1, side))


# Switches and hypercubes: a path over a switch has two latencies, and cut-through pays for the bytes once


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize(("kind", "hops"), [("switch", 2), ("hypercube", 1)])
def test_halving_doubling_without_congestion(kind: str, hops: int, bits: int) -> None:
    """2 log2(N) h a + 2(N-1)/N M/B over paths of h links."""
    ranks = 2**bits
    schedule = weft.algorithms.halving_doubling.all_reduce(
        load(f"{kind}:{ranks if kind == 'switch' else bits}")
    )
    size = 128 * ranks
    expected = exact(latencies=2 * bits * hops, size_bytes=size, share=(2 * (ranks - 1), ranks))
    assert time_ps(schedule, size) == expected


@pytest.mark.parametrize("bits", [1, 3])
@pytest.mark.parametrize(("kind", "hops"), [("switch", 2), ("hypercube", 1)])
def test_recursive_doubling_without_congestion(kind: str, hops: int, bits: int) -> None:
    """log2(N) (h a + M/B): every step carries the whole buffer."""
    ranks = 2**bits
    schedule = weft.algorithms.recursive_doubling.all_reduce(
        load(f"{kind}:{ranks if kind == 'switch' else bits}")
    )
    assert time_ps(schedule, 5000) == exact(latencies=bits * hops, size_bytes=5000, share=(bits, 1))


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "all_to_all"])
@pytest.mark.parametrize(("kind", "hops", "parts"), [("fullmesh", 1, 1), ("switch", 2, 4)])
def test_direct_exchange_in_turn_never_meets_on_a_switch(
    collective: str, kind: str, hops: int, parts: int
) -> None:
    """h a + M/(N B) with a link to everybody, h a + (N-1)/N M/B with one link for all."""
    schedule = getattr(weft.algorithms.direct, collective)(load(f"{kind}:5"))
    assert time_ps(schedule, 5000) == exact(latencies=hops, size_bytes=5000, share=(parts, 5))


# By hand


def chain(topology: Topology, hops: int) -> Schedule:
    builder = ScheduleBuilder(topology, "broadcast", "chain", chunks=1)
    for rank in range(hops):
        builder.add(step=rank, chunk=0, src=rank, dst=rank + 1, op=Op.COPY)
    return builder.build()


@pytest.mark.parametrize("segments", [1, 4, 10])
def test_a_chain_of_segments_is_a_pipeline(segments: int) -> None:
    """(N-1) a + (N-1 + k-1)/k M/B for k segments."""
    size, hops = 1000, 5
    took = time_ps(chain(load("ring:6"), hops), size, segment_bytes=size // segments)
    assert took == exact(latencies=hops, size_bytes=size, share=(hops + segments - 1, segments))


@pytest.mark.parametrize("hops", [1, 2, 4])
def test_cut_through_pays_for_the_bytes_once(hops: int) -> None:
    """h a + M/B over h links."""
    builder = ScheduleBuilder(load("ring:9"), "broadcast", "far", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=hops, op=Op.COPY)
    assert time_ps(builder.build(), 1000) == exact(latencies=hops, size_bytes=1000, share=(1, 1))


@pytest.mark.parametrize("sharing", ["queue", "fluid"])
@pytest.mark.parametrize("senders", [2, 4, 8])
def test_many_to_one_takes_the_sum_however_the_link_is_shared(sharing: str, senders: int) -> None:
    """2 a + n M/B for n senders behind a switch."""
    builder = ScheduleBuilder(load(f"switch:{senders + 1}"), "reduce", "incast", chunks=1)
    builder.add(step=0, chunk=0, src=range(1, senders + 1), dst=0, op=Op.REDUCE)
    took = time_ps(builder.build(), 1000, sharing=sharing)
    assert took == exact(latencies=2, size_bytes=1000, share=(senders, 1))
