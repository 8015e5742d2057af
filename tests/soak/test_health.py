"""What grows is found, and what only differs from process to process is not."""

from __future__ import annotations

import pytest

from weft.soak.health import Sample, judge_growth, take_sample

LEVEL = {"memory": 40_000, "shared_memory": 200, "descriptors": 9, "threads": 3, "mappings": 350}


def samples(pids: int, each: int, **leaks: float) -> list[Sample]:
    """Processes one after the other, at levels of their own, each with something that grows per sample."""
    found = []
    for pid in range(pids):
        for number in range(each):
            values = {
                name: round(level * (1 + pid % 3 / 10) + number * leaks.get(name, 0))
                for name, level in LEVEL.items()
            }
            found.append(Sample(pid, 100.0 * pid + number, **values))
    return found


def leaking(found: list[Sample]) -> set[str]:
    return {growth.what for growth in judge_growth(found) if growth.leaks}


def test_levels_that_differ_between_processes_are_no_growth() -> None:
    found = samples(9, 5)
    assert leaking(found) == set()
    assert all(growth.judged and growth.growth == 0 for growth in judge_growth(found))


@pytest.mark.parametrize(
    ("what", "each"),
    [("memory", 20_000), ("shared_memory", 20_000), ("descriptors", 1), ("threads", 1), ("mappings", 60)],
)
@pytest.mark.parametrize(("pids", "count"), [(1, 12), (10, 7)])
def test_what_grows_is_a_leak(what: str, each: float, pids: int, count: int) -> None:
    assert leaking(samples(pids, count, **{what: each})) == {what}


def test_what_grows_little_is_allowed() -> None:
    assert leaking(samples(3, 10, memory=1000, descriptors=0.2, threads=0.1, mappings=2)) == set()


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_too_few_samples_are_not_judged(count: int) -> None:
    assert not any(growth.judged for growth in judge_growth(samples(1, count, descriptors=100)))


def test_a_sample_of_this_process_has_what_it_uses() -> None:
    with open(__file__, "rb"):  # noqa: PTH123 - one descriptor more
        more = take_sample(1, 0.0)
    less = take_sample(1, 0.0)
    assert more.descriptors == less.descriptors + 1
    assert less.threads >= 1
    assert less.memory > 10_000
    assert less.mappings > 10
