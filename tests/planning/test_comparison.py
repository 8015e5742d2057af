"""What `weft.compare` tells whoever watches it."""

from __future__ import annotations

import weft


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
