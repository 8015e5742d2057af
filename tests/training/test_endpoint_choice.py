"""Left to choose, a job takes the schedules that are fastest through its endpoint."""

from __future__ import annotations

import pytest

from weft import train
from weft.algorithms import bucket, four_phase, ring
from weft.planning.quick import NEAR
from weft.schedule import halves
from weft.topology import load_topology
from weft.training.endpoint_choice import by_endpoint, time_through
from weft.training.endpoints import find_endpoint

TORUS = load_topology("torus:2x2")
OTHERS = ("ring", "bidirectional_ring", "recursive_doubling", "ring2d", "bucket", "swing", "direct")


@pytest.mark.parametrize("endpoint", ["no-overlap", "ideal"])
def test_auto_is_as_fast_as_the_best_algorithm_by_name(endpoint: str) -> None:
    def seconds(algorithm: str) -> float:
        job = {"device": "v100", "endpoint": endpoint, "policy": "serial", "iterations": 2}
        return train("multitree-ncf", TORUS, batch=1, algorithm=algorithm, **job).seconds

    best = min(map(seconds, OTHERS))
    assert max(map(seconds, OTHERS)) > 1.02 * best  # there is something to choose
    assert seconds("auto") <= NEAR * best


def test_many_chunks_want_another_schedule_than_a_single_one() -> None:
    endpoint = find_endpoint("no-overlap")
    one, many = endpoint.chunk_bytes, 64 * (endpoint.chunk_bytes or 0)
    assert one is not None
    schedule, segment_bytes = by_endpoint(TORUS, endpoint)("all_reduce", one)
    assert segment_bytes is None
    chosen = time_through(endpoint, schedule, many)
    assert chosen <= time_through(endpoint, bucket.all_reduce(TORUS), many) * (1 + 1e-6)
    assert chosen < time_through(endpoint, ring.all_reduce(TORUS), many)


def test_what_an_endpoint_reads_is_counted() -> None:
    fast = load_topology("ring:4@bw=1000GB/s,lat=0s")
    schedule = ring.all_reduce(fast)
    free, few = (time_through(find_endpoint(name), schedule, 1 << 20) for name in ("ideal", "comp-opt"))
    # Six messages of a quarter, three of them added: 0.75 and 1.5 times the buffer are read at 128 GB/s.
    assert few >= 2.25 * (1 << 20) / 128e9
    assert free < few


def test_half_of_an_all_reduce_in_phases_goes_through_an_engine_in_one() -> None:
    whole = four_phase.all_reduce(load_topology("torus:2x2"))
    for half in halves(whole):
        assert time_through(find_endpoint("ace"), half, 1 << 20) > 0
