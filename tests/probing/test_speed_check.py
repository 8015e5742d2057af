"""Which links of a claim are slower than it says, on imagined clusters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.imagined import Noise, cables_of, probe_imagined

from weft.errors import InputError
from weft.probing import compare_with_claim
from weft.topology import Topology, load_topology


def changed(topology: Topology, link: int, factor: float) -> Topology:
    from dataclasses import replace

    speeds = topology.bandwidth.copy()
    speeds[link] = int(speeds[link] * factor)
    return replace(topology, bandwidth=speeds)


@pytest.mark.parametrize(
    "spec", ["switch:5", "fattree:2,1,3@bw=5MB/s,uplink=5MB/s", "hosts:2,2,1", "torus:2x4"]
)
def test_a_true_claim_holds(spec: str) -> None:
    truth = load_topology(spec)
    found = probe_imagined(truth, Noise(jitter=0.03), cables_of(truth) if truth.direct else ())
    verdict = compare_with_claim(found, truth)
    assert verdict.slow == []
    assert verdict.judged > 0


@given(link=st.integers(0, 11), factor=st.floats(0.1, 0.75))
@examples(30)
def test_a_slow_cable_of_a_star_is_named_and_no_other(link: int, factor: float) -> None:
    claim = load_topology("switch:6@bw=5MB/s")
    found = probe_imagined(changed(claim, link, factor), Noise(jitter=0.02))
    (slow,) = compare_with_claim(found, claim).slow
    assert slow.link == claim.link_name(link)
    assert slow.missing == pytest.approx(1 - factor, abs=0.1)


@given(link=st.integers(0, 23), factor=st.floats(0.1, 0.75))
@examples(30)
def test_a_slow_cable_of_a_torus_is_named_and_no_other(link: int, factor: float) -> None:
    claim = load_topology("torus:2x4@bw=5MB/s")
    truth = changed(claim, link, factor)
    found = probe_imagined(truth, Noise(jitter=0.02), cables_of(truth))
    assert [slow.link for slow in compare_with_claim(found, claim).slow] == [claim.link_name(link)]


def test_a_narrow_uplink_is_named_with_its_far_end_and_no_host() -> None:
    found = probe_imagined(load_topology("fattree:2,1,3@bw=5MB/s,uplink=5MB/s"), Noise(jitter=0.02))
    claim = load_topology("fattree:2,1,3@bw=5MB/s,uplink=10MB/s")
    slow = {one.link for one in compare_with_claim(found, claim).slow}
    assert slow == {"s0->s2", "s2->s0", "s1->s2", "s2->s1"}


def test_of_three_leaves_the_narrow_one_is_named_alone() -> None:
    claim = load_topology("fattree:3,1,2@bw=5MB/s,uplink=10MB/s")
    link = claim.links_between(claim.parse_node("s0"), claim.parse_node("s3"))[0]
    found = probe_imagined(changed(claim, link, 0.5), Noise(jitter=0.02))
    assert [one.link for one in compare_with_claim(found, claim).slow] == ["s0->s3"]


def test_slow_memory_is_named() -> None:
    found = probe_imagined(load_topology("hosts:2,2@intra=1GB/s,uplink=1MB/s"))
    slow = compare_with_claim(found, load_topology("hosts:2,2@intra=2GB/s,uplink=1MB/s")).slow
    assert {one.link for one in slow} == {
        f"{a}->{b}" for r, s in ((0, 0), (1, 0), (2, 1), (3, 1)) for a, b in ((r, f"s{s}"), (f"s{s}", r))
    }


def test_a_claim_about_another_number_of_ranks_is_refused() -> None:
    found = probe_imagined(load_topology("switch:4"))
    with pytest.raises(InputError, match="switch:5 has 5 ranks, this job 4"):
        compare_with_claim(found, load_topology("switch:5"))
