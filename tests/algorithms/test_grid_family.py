"""Grid algorithms: bucket, 2D ring and Swing are right, and load links as the formulas say."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.loads import busiest_seconds, link_loads
from support.oracle import accepts

from weft.algorithms import bucket, ring2d, swing
from weft.algorithms.common.shares import balance_shares, round_shares
from weft.errors import InputError, LimitError, UnsupportedError
from weft.schedule import Op, Schedule
from weft.topology import Topology, load_topology

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
GRIDS = [
    *(
        "ring:2",
        "ring:3",
        "ring:8",
        "torus:4x4",
        "torus:3x5",
        "torus:2x4",
        "torus:2x2",
        "torus:1x4",
        "torus:3x1x3",
    ),
    *(
        "torus:2x3x4",
        "torus:3x3x3",
        "torus:2x2x2x2",
        "mesh:1x4",
        "mesh:2x2",
        "mesh:3x5",
        "mesh:4x4",
        "mesh:2x3x2",
    ),
    *("hypercube:1", "hypercube:4", "torus:2x4@wrap2=double", "torus:2x2@wrap2=double", "torus:3x3@links=2"),
    *(
        "ring:4@bw=3GB/s,back=1GB/s",
        "torus:3x4@bw=10GB/s/40GB/s,back=20GB/s/7GB/s",
        "mesh:3x3@bw=1GB/s/4GB/s",
    ),
]


def sizes(topology: Topology) -> list[int]:
    assert topology.grid is not None
    return [size for size in topology.grid.shape if size > 1]


@st.composite
def grids(draw: st.DrawFn) -> Topology:
    """Grids of up to 24 ranks, some with a failed link."""
    shape = draw(
        st.lists(st.integers(1, 6), min_size=1, max_size=4).filter(lambda s: 2 <= math.prod(s) <= 24)
    )
    kind = draw(st.sampled_from(["mesh", "torus", "torus"]))
    options = draw(st.sampled_from(["", "@wrap2=double", "@links=2", "@back=5GB/s"]))
    topology = load_topology(f"{kind}:{'x'.join(map(str, shape))}{options}")
    link = draw(st.integers(0, topology.links - 1))
    failed = f"+fail={topology.link_src[link]}>{topology.link_dst[link]}" if draw(st.booleans()) else ""
    try:
        return load_topology(f"{topology.name}{failed}")
    except InputError:
        return topology


@pytest.mark.parametrize("spec", GRIDS)
@pytest.mark.parametrize("halfway", [False, True])
def test_bucket_is_right(spec: str, halfway: bool) -> None:
    topology = load_topology(spec)
    for collective in COLLECTIVES:
        schedule = getattr(bucket, collective)(topology, halfway=halfway)
        assert accepts(schedule)
        assert schedule.ownership == ("none" if collective == "all_reduce" else "prescribed")


@pytest.mark.parametrize("spec", GRIDS)
def test_bucket_steps(spec: str) -> None:
    topology = load_topology(spec)
    steps = sum(size - 1 for size in sizes(topology))
    assert [getattr(bucket, c)(topology).steps for c in COLLECTIVES] == [2 * steps, steps, steps]


@pytest.mark.parametrize(
    ("spec", "steps"), [("torus:4x4", 4), ("torus:5x5", 4), ("torus:4x5x6", 7), ("mesh:4x4", 6)]
)
def test_halfway_takes_half_the_steps_on_a_torus(spec: str, steps: int) -> None:
    topology = load_topology(spec)
    assert bucket.all_gather(topology, halfway=True).steps == steps
    assert bucket.all_reduce(topology, halfway=True).steps == 2 * steps
    assert link_loads(bucket.all_gather(topology, halfway=True)) == link_loads(bucket.all_gather(topology))


@pytest.mark.parametrize(
    "spec", ["ring:3", "ring:8", "torus:3x3", "torus:4x4", "torus:5x5", "torus:3x3x3", "torus:4x4x4"]
)
def test_bucket_loads_every_link_of_an_equal_torus_with_the_least(spec: str) -> None:
    topology = load_topology(spec)
    ranks, dimensions = topology.ranks, len(sizes(topology))
    least = Fraction(ranks - 1, ranks * 2 * dimensions)
    assert set(link_loads(bucket.all_reduce(topology))) == {2 * least}
    assert set(link_loads(bucket.all_gather(topology))) == {least}
    assert set(link_loads(bucket.reduce_scatter(topology))) == {least}
    assert bucket.all_gather(topology).chunks == 2 * dimensions * ranks


@pytest.mark.parametrize(
    "spec",
    [
        *(
            "torus:3x5",
            "torus:4x8",
            "torus:2x8",
            "torus:2x4",
            "torus:3x4x5",
            "torus:2x3x4",
            "torus:2x2x3",
            "mesh:3x5",
        ),
        *(
            "mesh:2x4",
            "mesh:2x3x4",
            "torus:2x4@wrap2=double",
            "torus:3x3@links=2",
            "torus:4x4@bw=10GB/s/40GB/s",
        ),
        *("mesh:4x4@bw=1GB/s/4GB/s", "ring:4@bw=3GB/s,back=1GB/s", "torus:2x3x2x2x2"),
    ],
)
def test_bucket_weighs_its_parts_so_that_the_tightest_rank_is_never_the_slower(spec: str) -> None:
    topology = load_topology(spec)
    ranks = topology.ranks
    tightest = min(min(topology.ingress(rank), topology.egress(rank)) for rank in range(ranks))
    bound = (ranks - 1) / ranks / tightest
    for collective in ("reduce_scatter", "all_gather"):
        assert busiest_seconds(getattr(bucket, collective)(topology)) == pytest.approx(bound, rel=1e-4)


@pytest.mark.parametrize("spec", ["mesh:4", "mesh:3x3", "mesh:4x4", "mesh:3x3x3", "hypercube:4"])
def test_bucket_loads_every_link_of_an_equal_mesh_alike(spec: str) -> None:
    topology = load_topology(spec)
    ranks, side, dimensions = topology.ranks, sizes(topology)[0], len(sizes(topology))
    corner = Fraction(ranks - 1, ranks * dimensions)
    assert set(link_loads(bucket.all_reduce(topology))) == {corner * side / (side - 1)}
    assert max(link_loads(bucket.all_gather(topology))) == corner


def test_bucket_all_reduce_sends_one_message_per_part_and_step() -> None:
    schedule = bucket.all_reduce(load_topology("torus:4x4"))
    assert schedule.messages == schedule.steps * 16 * 4


def test_bucket_uses_all_parallel_links() -> None:
    for spec in ("torus:3x3@links=2", "torus:2x2@wrap2=double"):
        assert len(set(link_loads(bucket.all_reduce(load_topology(spec))))) == 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("torus:4x4+fail=0-1", "bucket: the grid has lost its link 0->1; use ring"),
        ("torus:4x4+fail=1>0", "bucket: the grid has lost its link 1->0; use ring"),
        ("torus:4x4+fail=rank:3", "bucket: needs a mesh or torus, and a rank of this one failed; use ring"),
        ("switch:8", "bucket: needs a mesh or torus, and switch:8 is none; use ring"),
        ("torus:2x2@wrap2=double+fail=0-1*1", r"bucket: the grid has lost its link \d->\d; use ring"),
    ],
)
def test_bucket_says_why_it_does_not_apply(spec: str, reason: str) -> None:
    for collective in COLLECTIVES:
        with pytest.raises(UnsupportedError, match=reason):
            getattr(bucket, collective)(load_topology(spec))


@pytest.mark.parametrize(
    "spec",
    [
        *(
            "torus:4x4",
            "torus:3x5",
            "torus:2x4",
            "torus:2x2",
            "mesh:3x5",
            "mesh:2x2",
            "mesh:4x4",
            "torus:1x3x4",
        ),
        *("torus:4x4+fail=0-1", "mesh:3x3@links=2", "torus:2x3@wrap2=double", "hypercube:2"),
    ],
)
def test_ring2d_is_right_and_takes_a_whole_all_reduce_per_dimension(spec: str) -> None:
    topology = load_topology(spec)
    schedule = ring2d.all_reduce(topology)
    assert accepts(schedule)
    assert schedule.steps == sum(2 * (size - 1) for size in sizes(topology))
    assert schedule.chunks == 4 * math.lcm(*sizes(topology))


@pytest.mark.parametrize("side", [3, 4, 6])
def test_ring2d_carries_about_twice_the_least(side: int) -> None:
    once = Fraction(side - 1, side)
    assert set(link_loads(ring2d.all_reduce(load_topology(f"torus:{side}x{side}")))) == {once}
    assert set(link_loads(ring2d.all_reduce(load_topology(f"mesh:{side}x{side}")))) == {2 * once}


def test_ring2d_halves_its_flows_between_rows_first_and_columns_first() -> None:
    schedule = ring2d.all_reduce(load_topology("torus:4x4"))
    first = schedule.step == 0
    along_rows = abs(schedule.src[first] // 4 - schedule.dst[first] // 4) == 0
    assert along_rows.sum() * 2 == len(along_rows) == 64
    assert set(schedule.op[schedule.step < 3].tolist()) == {Op.REDUCE}
    assert set(schedule.op[(schedule.step >= 3) & (schedule.step < 6)].tolist()) == {Op.COPY}


@pytest.mark.parametrize("spec", ["ring:8", "torus:2x2x2", "mesh:1x4", "switch:4", "torus:4x4+fail=rank:0"])
def test_ring2d_needs_two_dimensions(spec: str) -> None:
    with pytest.raises(UnsupportedError, match="ring2d: needs a"):
        ring2d.all_reduce(load_topology(spec))


SWING = [
    *(
        "ring:2",
        "ring:4",
        "ring:8",
        "ring:16",
        "torus:4x4",
        "torus:2x4",
        "torus:4x8",
        "torus:2x2x4",
        "mesh:4x4",
    ),
    *("mesh:1x8", "hypercube:3", "fullmesh:8", "switch:8", "fattree:16", "hosts:3,4,1", "dgx-h100:1"),
    *("torus:4x4+fail=0-1", "torus:3x3+fail=rank:4", "torus:2x4@wrap2=double"),
]


@pytest.mark.parametrize("spec", SWING)
def test_swing_is_right_and_takes_the_fewest_steps(spec: str) -> None:
    topology = load_topology(spec)
    steps = topology.ranks.bit_length() - 1
    for collective, rounds in (("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)):
        schedule = getattr(swing, collective)(topology)
        assert accepts(schedule)
        assert schedule.steps == rounds * steps


@pytest.mark.parametrize("spec", SWING)
def test_swing_sends_one_run_of_chunks_to_each_partner_and_no_more_than_needed(spec: str) -> None:
    topology = load_topology(spec)
    schedule = swing.all_reduce(topology)
    parts = schedule.chunks // topology.ranks
    assert schedule.messages <= schedule.steps * topology.ranks * parts
    sent = Fraction(int(schedule.weights[schedule.chunk].sum()), schedule.denominator)
    assert sent == 2 * (topology.ranks - 1)


@pytest.mark.parametrize("spec", ["ring:4", "ring:16", "ring:32", "torus:4x4", "torus:8x8", "torus:4x4x4"])
def test_swing_loads_every_link_of_an_equal_torus_alike(spec: str) -> None:
    topology = load_topology(spec)
    dimensions = len(sizes(topology))
    distances = [1, 1, 3, 5, 11]
    steps = topology.ranks.bit_length() - 1
    each = sum(Fraction(distances[step // dimensions], 2 ** (step + 1)) for step in range(steps)) / dimensions
    assert set(link_loads(swing.all_reduce(topology))) == {each}


def test_swing_meets_the_partners_of_the_paper() -> None:
    schedule = swing.reduce_scatter(load_topology("switch:16"))
    for step, distance in enumerate((1, -1, 3, -5)):
        rows = schedule.step == step
        pairs = set(zip(schedule.src[rows].tolist(), schedule.dst[rows].tolist(), strict=True))
        assert pairs == {(rank, (rank + (-1) ** rank * distance) % 16) for rank in range(16)}


@pytest.mark.parametrize("spec", ["ring:6", "torus:3x5", "switch:12", "torus:4x4+fail=rank:0"])
def test_swing_needs_a_power_of_two(spec: str) -> None:
    for collective in COLLECTIVES:
        with pytest.raises(UnsupportedError, match=r"swing: needs a power of two ranks, there are \d+; use"):
            getattr(swing, collective)(load_topology(spec))


@pytest.mark.parametrize("module", [bucket, swing])
def test_too_many_ranks_are_refused_before_anything_is_built(module) -> None:
    with pytest.raises(LimitError, match="transfers"):
        module.all_reduce(load_topology("torus:128x128"))


def every_schedule(topology: Topology) -> list[Schedule]:
    made = []
    for module, collectives in ((bucket, COLLECTIVES), (swing, COLLECTIVES), (ring2d, ("all_reduce",))):
        for collective in collectives:
            try:
                made.append(getattr(module, collective)(topology))
            except UnsupportedError as error:
                assert error.algorithm == module.__name__.split(".")[-1]  # noqa: PT017
    return made


@given(grids())
@examples(40)
def test_any_grid_is_served_or_refused_with_a_reason(topology: Topology) -> None:
    made = every_schedule(topology)
    assert all(accepts(schedule) for schedule in made)
    assert [schedule.digest for schedule in made] == [
        schedule.digest for schedule in every_schedule(topology)
    ]
    whole = "fail" not in topology.name
    assert any(schedule.algorithm == "bucket" for schedule in made) or not whole


@given(clusters())
@examples(25)
def test_any_cluster_is_served_or_refused(topology: Topology) -> None:
    made = every_schedule(topology)
    assert all(accepts(schedule) for schedule in made)
    assert {schedule.algorithm for schedule in made} <= {"swing"}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).filter(lambda shares: sum(shares) > 0.01))
def test_rounded_shares_sum_to_one(shares: list[float]) -> None:
    total = sum(shares)
    rounded = round_shares([share / total for share in shares])
    assert sum(rounded) == 1
    assert min(rounded) >= 0
    assert math.lcm(*(share.denominator for share in rounded)) <= 10**6
    assert all(abs(float(r) - share / total) < 0.01 for r, share in zip(rounded, shares, strict=True))


def test_shares_balance_what_can_be_balanced() -> None:
    import numpy as np

    assert balance_shares(np.array([[1.0, 0.0], [0.0, 3.0]])) == [Fraction(3, 4), Fraction(1, 4)]
    assert balance_shares(np.array([[2.0, 1.0]])) == [0, 1]
