"""The time of an iteration does not depend on how many iterations were simulated."""

from __future__ import annotations

import numpy as np
import pytest

from weft.topology import load_topology
from weft.training import Layer, policies
from weft.training.cluster import Cluster
from weft.training.job import MOST_ITERATIONS, train
from weft.training.schedules import by_algorithm
from weft.training.steady_state import find_steady_window

UNEVEN = load_topology("hosts:8,4,2@uplink=2.5GB/s/1.2GB/s/0.6GB/s")
MODEL = tuple(Layer(str(number), 10_000_000, 0.006, 0.012) for number in range(10))


@pytest.mark.parametrize("policy", ["serial", "ddp"])
def test_an_even_and_an_odd_number_of_iterations_give_the_same_time(policy: str) -> None:
    cluster = Cluster(UNEVEN, by_algorithm(UNEVEN, "ring"))
    build = policies.find(policy).build
    even, odd = (cluster.run(build(MODEL, iterations=count)) for count in (12, 13))
    assert even.steady.settled
    assert odd.steady.settled
    assert even.seconds == pytest.approx(odd.seconds, rel=1e-3)
    assert len(set(even.steady.intervals_s)) > 1  # a cluster where iterations do take turns
    assert even.seconds == pytest.approx(even.computing_s + even.exposed_s)


def test_a_job_simulates_until_its_times_repeat() -> None:
    found = train("resnet50", UNEVEN, policy="serial", algorithm="ring")
    assert found.run.steady.settled
    assert 4 < found.run.iterations <= MOST_ITERATIONS
    more = train("resnet50", UNEVEN, policy="serial", algorithm="ring", iterations=MOST_ITERATIONS + 1)
    assert found.seconds == pytest.approx(more.seconds, rel=1e-3)


def test_a_job_that_was_asked_for_a_number_of_iterations_simulates_that_many() -> None:
    found = train("resnet50", UNEVEN, policy="serial", algorithm="ring", iterations=3)
    assert found.run.iterations == 3
    assert not found.run.steady.settled


def test_a_steady_iteration_is_the_last_one() -> None:
    starts = np.array([[0, 0], [7, 9], [17, 19], [27, 29]])
    assert find_steady_window(starts) == ((1e-11,), True)


def test_ranks_that_alternate_behind_an_even_maximum_are_not_settled_before_their_period() -> None:
    starts = np.array([[0, 0], [10, 8], [20, 20], [30, 28], [40, 40]])
    assert find_steady_window(starts) == ((1e-11, 1e-11), True)


def test_times_that_never_repeat_are_averaged_over_the_later_half() -> None:
    starts = np.array([[0], [10], [30], [60], [100]])
    assert find_steady_window(starts) == ((3e-11, 4e-11), False)
