"""The operations of a soak test come from its seed alone, and cover what they should."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from weft.soak import Settings
from weft.soak.random_operations import (
    DTYPES,
    MEMORY,
    Close,
    Operation,
    Settle,
    Split,
    choose_algorithm,
    make_episode,
)

SETTINGS = Settings(ranks=3, seed=7, seconds=60.0)
MANY = [make_episode(SETTINGS, number, choose_algorithm(SETTINGS, number)) for number in range(60)]
OPERATIONS = [step for episode in MANY for step in episode.steps if isinstance(step, Operation)]


def test_an_episode_is_the_same_in_every_process() -> None:
    program = (
        "from weft.soak import Settings\n"
        "from weft.soak.random_operations import make_episode\n"
        "print(repr(make_episode(Settings(ranks=3, seed=7, seconds=1.0), 41, 'ring')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONHASHSEED": "3"},
    )
    assert done.stdout.strip() == repr(make_episode(SETTINGS, 41, "ring"))


@pytest.mark.parametrize("other", [{"seed": 8}, {"ranks": 4}])
def test_another_seed_or_number_of_ranks_has_other_operations(other: dict[str, int]) -> None:
    different = Settings(**{"ranks": 3, "seed": 7, "seconds": 60.0, **other})
    assert make_episode(different, 0, None).steps != make_episode(SETTINGS, 0, None).steps


def test_episodes_differ_from_each_other() -> None:
    assert all(one.steps != other.steps for one, other in pairwise(MANY))


def test_every_kind_type_op_memory_and_ending_occurs() -> None:
    kinds = {"all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "all_to_all"}
    assert {step.kind for step in OPERATIONS} == kinds | {"halves", "send", "send_recv", "barrier"}
    assert {step.dtype for step in OPERATIONS} == set(DTYPES)
    assert {step.op for step in OPERATIONS} == {"sum", "avg", "min", "max", "prod"}
    assert {memory for step in OPERATIONS for memory in step.memory} == set(MEMORY)
    assert {step.asynchronous for step in OPERATIONS} == {False, True}
    assert {step.into for step in OPERATIONS} == {"new", "out", "place"}
    assert {episode.ending for episode in MANY} == {"stay", "close", "kill"}
    assert {episode.kill.rank for episode in MANY if episode.kill is not None} == {0, 1, 2}
    assert {type(step) for episode in MANY for step in episode.steps} == {Operation, Split, Close, Settle}


@pytest.mark.parametrize("threshold", [0, 16 << 10, 64 << 10, 256 << 10])
def test_sizes_at_and_beside_every_threshold_occur(threshold: int) -> None:
    near = set()
    for step in OPERATIONS:
        if step.kind == "all_reduce":
            itemsize = np.dtype(step.dtype).itemsize
            near.add(step.elements - threshold // itemsize)
    assert {0, 1} <= near
    assert threshold == 0 or -1 in near


def test_ranks_have_arrays_of_different_memory_in_one_operation() -> None:
    mixed = [step for step in OPERATIONS if len(set(step.memory)) > 1]
    assert len(mixed) > len(OPERATIONS) / 2


@pytest.mark.parametrize("ranks", [2, 3, 5, 16])
def test_parts_have_two_ranks_or_more_and_are_closed_at_the_end(ranks: int) -> None:
    settings = Settings(ranks=ranks, seed=1, seconds=1.0)
    for number in range(20):
        opened = set()
        for step in make_episode(settings, number, None).steps:
            if isinstance(step, Split):
                members = [rank for group in step.groups for rank in group.ranks]
                assert len(set(members)) == len(members)
                assert all(len(group.ranks) > 1 for group in step.groups)
                opened |= set(step.groups)
            elif isinstance(step, Close):
                opened.remove(step.group)
            elif isinstance(step, Operation):
                assert step.group.number == 0 or step.group in opened
        assert opened == set()


def test_without_kills_communicators_are_closed_instead() -> None:
    peaceful = Settings(ranks=3, seed=7, seconds=60.0, kills=False)
    for episode in MANY:
        other = make_episode(peaceful, episode.number, episode.everybody.algorithm)
        assert other.steps == episode.steps
        assert (other.kill, other.ending) == (
            None,
            "close" if episode.ending == "kill" else episode.ending,
        )


def test_the_command_that_repeats_a_test_has_all_its_settings() -> None:
    settings = Settings(ranks=4, seed=9, seconds=1.5, transport="tcp", timeout=3.0, kills=False, start=2)
    assert settings.command(17) == (
        "weft soak --seconds 1.5 --ranks 4 --seed 9 --start 17 --transport tcp --timeout 3 --no-kills"
    )
