"""What a shared cloud hands out: always what was asked for, never what others have, and by the rule."""

from __future__ import annotations

import doctest
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InputError, LimitError
from weft.topology.placements import RULES, draw_free, draw_placement, place

CLOUDS = st.tuples(st.integers(1, 12), st.integers(1, 9), st.integers(0, 2**40))
FREE = st.lists(st.integers(0, 8), min_size=1, max_size=12).filter(any)


@given(CLOUDS, st.data())
def test_others_take_exactly_as_much_as_said_and_no_host_gives_more_than_it_has(
    cloud: tuple[int, int, int], data: st.DataObject
) -> None:
    hosts, gpus, seed = cloud
    taken = data.draw(st.integers(0, hosts * gpus))
    free = draw_free(hosts, gpus, taken, seed)
    assert len(free) == hosts
    assert sum(free) == hosts * gpus - taken
    assert all(0 <= room <= gpus for room in free)


@given(FREE, st.sampled_from(RULES), st.integers(0, 2**40), st.data())
def test_a_job_gets_what_it_asks_for_from_what_is_free(
    free: list[int], rule: str, seed: int, data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, sum(free)))
    given_by = place(free, wanted, rule, seed)
    assert sum(given_by) == wanted
    assert all(0 <= count <= room for count, room in zip(given_by, free, strict=True))


@given(FREE, st.data())
def test_packed_takes_the_emptiest_hosts_whole_but_for_the_last(free: list[int], data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, sum(free)))
    given_by = place(free, wanted)
    used = [host for host, count in enumerate(given_by) if count]
    passed = [room for room, count in zip(free, given_by, strict=True) if not count]
    assert sum(given_by[host] < free[host] for host in used) <= 1
    assert max(passed, default=0) <= min(free[host] for host in used)
    # No fewer hosts could do.
    assert sum(sorted(free, reverse=True)[: len(used) - 1]) < wanted


def test_random_takes_every_free_gpu_equally_often() -> None:
    free, draws = (6, 3, 1, 0, 2), 2000
    totals = [0] * len(free)
    for seed in range(draws):
        for host, count in enumerate(place(free, 4, "random", seed)):
            totals[host] += count
    for host, room in enumerate(free):
        assert totals[host] / draws == pytest.approx(4 * room / sum(free), rel=0.1)


def test_a_seed_is_a_placement_and_others_are_others() -> None:
    drawn = [draw_placement(16, 8, 24, taken=64, rule="random", seed=seed) for seed in range(50)]
    again = [draw_placement(16, 8, 24, taken=64, rule="random", seed=seed) for seed in range(50)]
    assert drawn == again
    assert len(set(drawn)) == 50


def test_others_have_jobs_of_every_power_of_two_that_fits_a_host() -> None:
    # On so many hosts hardly two jobs meet, and one that takes all of a host must have been of eight.
    held = [8 - room for seed in range(200) for room in draw_free(64, 8, 8, seed) if room < 8]
    counts = {size: held.count(size) for size in range(1, 9)}
    assert counts[8] == pytest.approx(200 / 4, rel=0.4)
    assert min(counts[1], counts[2], counts[4]) > 4 * max(counts[3], counts[5], counts[6], counts[7])


def test_a_full_cloud_and_an_empty_one_leave_no_choice() -> None:
    assert draw_free(3, 4, 12, seed=5) == (0, 0, 0)
    assert draw_placement(3, 4, 12, taken=0, rule="random", seed=5) == (4, 4, 4)
    assert draw_placement(3, 4, 6, taken=0, seed=5) == (4, 2, 0)


@pytest.mark.parametrize(
    ("hosts", "gpus", "taken", "seed", "message"),
    [
        (0, 8, 0, 0, "0 hosts with 8 GPUs each has nothing to give"),
        (8, 0, 0, 0, "both must be at least 1"),
        (2, 2, 5, 0, "5 GPUs are taken, but there are 4; give 0 to 4"),
        (2, 2, -1, 0, "-1 GPUs are taken"),
        (2, 2, 1, -1, "seed -1 of a placement must be at least 0"),
    ],
)
def test_a_cloud_that_cannot_be_is_refused(
    hosts: int, gpus: int, taken: int, seed: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        draw_free(hosts, gpus, taken, seed)


def test_a_cloud_has_bounds() -> None:
    with pytest.raises(LimitError, match="GPUs of the cloud: 8,200"):
        draw_free(1025, 8, 1, 0)
    with pytest.raises(LimitError, match="seed of a placement"):
        draw_free(2, 8, 1, 2**63)


@pytest.mark.parametrize("wanted", [0, -1, 6])
def test_more_than_is_free_is_refused(wanted: int) -> None:
    with pytest.raises(InputError, match=f"{wanted} GPUs are asked for, and 5 are free; ask for 1 to 5"):
        place((2, 3), wanted)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InputError, match="rule 'nearest' is unknown, expected packed or random"):
        place((2, 3), 2, "nearest")


def test_packed_prefers_the_first_of_equal_hosts() -> None:
    given_by = place((4, 4, 4, 4), 10)
    assert given_by == (4, 4, 2, 0)
    assert all(earlier >= later for earlier, later in pairwise(given_by))


def test_the_examples_of_the_page_print_what_it_shows() -> None:
    page = Path(__file__).parents[2] / "docs" / "topology.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried
    assert not failed
