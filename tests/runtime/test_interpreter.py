"""The interpreter over memory, against numpy and against the native runtime, for every algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.fitting_specs import fitting_specs
from support.handmade import HANDMADE
from support.jobs import run_ranks
from support.memory_channel import Hub, MemoryChannel, interpret

from weft.algorithms.registry import ALGORITHMS
from weft.errors import UnsupportedError
from weft.runtime.engines.interpreter import Move
from weft.runtime.engines.messaging import FailureKind, OperationFailure
from weft.schedule import COLLECTIVES, Schedule, ScheduleBuilder
from weft.topology import Topology, load_topology

JOBS = Path(__file__).with_name("jobs")

FOLD = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
ROOT = 1


def schedules(name: str, ranks: int) -> Iterator[Schedule]:
    line = ALGORITHMS[name]
    for spec in fitting_specs(name, ranks):
        for collective in line.collectives:
            try:
                yield line.build(load_topology(spec), collective, ROOT)
            except UnsupportedError:
                continue


def part(rank: int, elements: int, dtype: str) -> NDArray[Any]:
    return ((np.arange(elements) * 7 + 3 * rank) % 5 - 1).astype(dtype)


def check(schedule: Schedule, elements: int, dtype: str, op: str) -> None:
    """Run it on inputs whose results are exact in any order, and compare with numpy."""
    ranks = schedule.ranks
    assert schedule.collective in COLLECTIVES
    if schedule.collective == "all_to_all":
        elements *= ranks
    parts = [part(rank, elements, dtype) for rank in range(ranks)]
    arrays = [values.copy() for values in parts]
    outputs = [np.zeros_like(values) for values in parts] if schedule.collective == "all_to_all" else arrays
    interpret(schedule, arrays, outputs, op)
    start = [0, *np.cumsum(schedule.chunk_bytes(elements)).tolist()]
    if schedule.collective == "all_to_all":
        blocks = np.stack(parts).reshape(ranks, ranks, -1)
        for rank, output in enumerate(outputs):
            found = output.reshape(ranks, -1)
            others = np.arange(ranks) != rank
            assert np.array_equal(found[others], blocks[others, rank])
        return
    total = reduce(FOLD[op], parts)
    for chunk, (source, target) in enumerate(
        zip(schedule.source.tolist(), schedule.target.tolist(), strict=True)
    ):
        here = slice(start[chunk], start[chunk + 1])
        expected = total[here] if source < 0 else parts[source][here]
        for rank in range(ranks) if target < 0 else [target]:
            assert np.array_equal(arrays[rank][here], expected), (schedule, chunk, rank)


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_computes_what_numpy_does(name: str, ranks: int) -> None:
    built = list(schedules(name, ranks))
    assert built or ranks < 8, "an algorithm that was not tried"
    for schedule in built:
        for elements, dtype, op in ((0, "float32", "sum"), (7, "float64", "prod"), (257, "float16", "sum")):
            check(schedule, elements, dtype, op)


@pytest.mark.parametrize("spec", ["ring:2", "fullmesh:4", "ring:5"])
@pytest.mark.parametrize("make", HANDMADE, ids=lambda make: make.__name__)
def test_slots_and_relays_mean_what_they_should(make: Callable[[Topology], Schedule], spec: str) -> None:
    for elements, dtype, op in ((1, "int32", "max"), (7, "float64", "prod"), (257, "float16", "sum")):
        check(make(load_topology(spec)), elements, dtype, op)


NATIVE = JOBS / "interpreter_native.py"


def test_the_native_runtime_adds_in_the_same_order_to_the_bit(tmp_path: Path) -> None:
    said = run_ranks(tmp_path, 4, NATIVE)
    assert ["same" in output for output in said] == [True] * 4


@pytest.mark.parametrize("count", [25, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_any_schedule_gives_the_oracles_bits_on_real_ranks(
    tmp_path: Path, transport: str, count: int
) -> None:
    said = run_ranks(tmp_path, 3, JOBS / "interpreter_random.py", transport, str(count))
    assert ["same" in output for output in said] == [True] * 3


def test_reads_of_a_step_precede_its_writes() -> None:
    """Two ranks swap what they hold, in one step."""
    builder = ScheduleBuilder("fullmesh:2", "all_reduce", "swap", chunks=1)
    builder.add(step=0, chunk=0, src=[0, 1], dst=[1, 0], op="reduce")
    check(builder.build(), 1000, "int64", "sum")


def test_a_message_that_does_not_come_ends_with_the_rank_it_was_to_come_from() -> None:
    channel = MemoryChannel(Hub(), 0)
    (handle,) = channel.start([Move(3, np.zeros(4, np.uint8), sends=False)])
    with pytest.raises(OperationFailure) as found:
        channel.wait(handle, 0)
    assert (found.value.kind, found.value.rank) == (FailureKind.LATE, 3)
