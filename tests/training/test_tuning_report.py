"""Searches against the best of all fusions, on the five models of the DeAR paper."""

from __future__ import annotations

import dataclasses
import random

import pytest
from training.models import uniform

from weft.errors import InputError
from weft.training import AlphaBeta, BoundedSearch, Layer, Linear, Simulated
from weft.training.devices import find_device
from weft.training.exhaustive import NEAR, Fusions, believed, outcome, report
from weft.training.fusion import distinct_thresholds
from weft.training.policies import find
from weft.training.single_channel import run
from weft.training.workloads import load_workload

LARGE = ["densenet201", "inception-v4", "bert-large"]
MODELS = ["resnet50", "bert-base", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
HOSTS = "hosts:" + ",".join(["4"] * 16)


def layers_of(name: str) -> tuple[Layer, ...]:
    return load_workload(name).layers(find_device("rtx2080ti"))


def misjudged(layers: tuple[Layer, ...], seed: int) -> tuple[Layer, ...]:
    """The same layers with times that are off, each by up to a third."""
    chance = random.Random(seed)
    return tuple(
        dataclasses.replace(
            layer,
            forward_s=layer.forward_s * chance.uniform(0.67, 1.33),
            backward_s=layer.backward_s * chance.uniform(0.67, 1.33),
        )
        for layer in layers
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("uplink", "prefetch"), [("1.25GB/s", 1), pytest.param("12.5GB/s", None, marks=pytest.mark.slow)]
)
def test_the_bounded_search_comes_within_two_percent_of_all_fusions(
    name: str, uplink: str, prefetch: int | None
) -> None:
    # 64 ranks on 10 and on 100 Gbit/s, whose simulated times are not quite lines.
    network = Simulated.on(f"{HOSTS}@intra=12GB/s,uplink={uplink}", "ring")
    layers = layers_of(name)
    truth = Fusions(layers, network, prefetch=prefetch)
    belief = Fusions(misjudged(layers, 7), believed(network), prefetch=prefetch)
    found = report(truth, belief, most=60)
    bounded = next(line for line in found.outcomes if line.search == "bounded")
    assert bounded.distance <= NEAR
    assert bounded.needed is not None
    assert bounded.needed <= bounded.evaluations <= 10


def test_a_report_names_the_best_of_all_and_what_each_search_found() -> None:
    layers = uniform(30, 0.3, 0.6, size_bytes=1 << 20)
    fusions = Fusions(layers, Linear.ring(8, 1e-4, 1e-9))
    found = report(fusions)
    assert found.fusions == len(distinct_thresholds(layers, 1000))
    every = {threshold: fusions.seconds(threshold) for threshold in distinct_thresholds(layers, 1000)}
    assert found.seconds == min(every.values()) == every[found.threshold_bytes]
    assert [line.search for line in found.outcomes] == ["model", "bounded", "bayesian"]
    assert found.outcomes[0].evaluations == 1
    assert found.outcomes[0].distance == pytest.approx(0.0, abs=1e-6), "lines are all there is to these costs"
    assert all(line.distance >= -1e-12 for line in found.outcomes)


def test_a_fusion_takes_what_the_policy_takes() -> None:
    layers = layers_of("resnet50")
    costs = Linear.ring(16, 1e-5, 1e-9)
    for threshold in (1 << 20, 5 << 20, 30 << 20):
        exact = run(find("dear").build(layers, threshold_bytes=threshold, prefetch=2), costs).seconds
        assert Fusions(layers, costs, prefetch=2).seconds(threshold) == pytest.approx(exact, rel=1e-9)


def test_a_search_that_never_comes_near_says_so() -> None:
    lost = outcome("lost", BoundedSearch((1, 100), 10, 1), lambda _threshold: 2.0, fastest_s=1.0)
    assert (lost.needed, lost.distance, lost.evaluations) == (None, 1.0, 1)
    near = outcome("near", BoundedSearch((1, 1000), 100), lambda size: 1.0 + (size < 200), fastest_s=1.0)
    assert near.needed == 2
    assert near.distance == 0


def test_what_is_believed_is_a_line_through_the_costs() -> None:
    line = AlphaBeta(1e-4, 1e-9)
    lines = believed(Linear.in_halves(line, line))
    assert lines.all_gather.alpha_s == pytest.approx(1e-4, rel=1e-6)
    assert lines.all_reduce.beta_s_per_byte == pytest.approx(2e-9, rel=1e-6)


@pytest.mark.parametrize("name", ["ddp", "horovod", "bytescheduler", "mg-wfbp"])
def test_policies_without_a_threshold_have_nothing_to_search(name: str) -> None:
    with pytest.raises(InputError, match="does not fuse by a threshold alone; expected one of serial, wfbp"):
        Fusions(uniform(3, 1.0, 2.0), Linear.ring(2, 0.0, 1e-9), name)
