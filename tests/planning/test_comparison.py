"""What `weft.compare` tells whoever watches it, and which segments its rows have."""

from __future__ import annotations

import weft
from weft.algorithms.registry import find
from weft.planning.segment_shares import SEGMENT_TOLERANCE
from weft.simulation import simulate
from weft.simulation.segment_sizes import segment_candidates
from weft.topology import load_topology


def test_a_comparison_is_seen_as_it_grows() -> None:
    """After each candidate there is one row or refusal more, sorted as at the end; the last is the end."""
    seen: list[weft.Comparison] = []
    names = ["ring", "multitree", "swing"]
    found = weft.compare("torus:3x4", "1MiB", algorithms=names, watch=seen.append)
    assert [len(one.results) + len(one.skipped) for one in seen] == [1, 2, 3]
    for one in seen:
        times = [row.seconds for row in one.results]
        assert times == sorted(times)
        assert one.bound == found.bound
    assert [row.seconds for row in seen[-1].results] == [row.seconds for row in found.results]
    assert [one.algorithm for one in found.skipped] == ["swing"]


def test_rows_have_the_largest_segments_that_cost_at_most_a_percent() -> None:
    spec, size = "hosts:8,4,2@intra=100GB/s,uplink=25GB/s/12GB/s/6GB/s", 64 << 20
    found = weft.compare(spec, size, algorithms=["forest", "hierarchical", "ring"])
    finer = 0
    for row in found.results:
        schedule = find(row.algorithm).try_build(load_topology(spec), "all_reduce", expected_bytes=size)
        assert isinstance(schedule, weft.Schedule)
        tries, _ = segment_candidates(schedule, size)
        times = [simulate(schedule, size, segment_bytes=one).seconds for one in tries]
        assert row.seconds is not None
        assert row.seconds <= SEGMENT_TOLERANCE * min(times)
        place = tries.index(row.segment_bytes)
        assert row.seconds == times[place]
        assert all(time > SEGMENT_TOLERANCE * min(times) for time in times[:place])
        finer += min(times) < row.seconds
    assert finer, "this is about a cluster where finer cuts promise a little more"
