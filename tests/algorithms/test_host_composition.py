"""Schedules between hosts, spread over the ranks of the hosts."""

from __future__ import annotations

import pytest

from weft.algorithms import registry
from weft.algorithms.common.host_composition import spread
from weft.errors import InputError
from weft.topology import load_topology
from weft.verification import verify

HOSTS = [
    [[0, 1], [2, 3, 4]],
    [[0], [1, 2]],
    [[0, 3], [1, 4], [2, 5]],
    [[4, 5, 6, 7], [0, 1, 2, 3]],
    [[0, 1, 2], [3, 4], [5], [6, 7]],
]


@pytest.mark.parametrize("hosts", HOSTS, ids=str)
@pytest.mark.parametrize("name", ["ring", "direct", "halving_doubling", "forest", "multitree"])
def test_what_hosts_compute_all_ranks_compute(name: str, hosts: list[list[int]]) -> None:
    across = registry.find(name).build(load_topology(f"ring:{len(hosts)}"), "all_reduce")
    made = spread(across, hosts)
    verify(made)
    assert made.ranks == sum(map(len, hosts))


def test_only_owners_of_slices_send_to_other_hosts() -> None:
    hosts = [[0, 1, 2], [3, 4]]
    made = spread(registry.find("ring").build(load_topology("ring:2"), "all_reduce"), hosts)
    pairs = {(int(src), int(dst)) for src, dst in zip(made.src, made.dst, strict=True)}
    assert {pair for pair in pairs if (pair[0] < 3) != (pair[1] < 3)} == {(0, 3), (3, 0), (1, 4), (4, 1)}


@pytest.mark.parametrize(
    ("collective", "hosts"),
    [("all_gather", [[0], [1]]), ("all_reduce", [[0], [1], [2]]), ("all_reduce", [[0], [2]])],
)
def test_what_does_not_fit_is_refused(collective: str, hosts: list[list[int]]) -> None:
    across = registry.find("ring").build(load_topology("ring:2"), collective)
    with pytest.raises(InputError, match="not an all_reduce of"):
        spread(across, hosts)
