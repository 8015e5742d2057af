"""A job with too many segments is made coarser, says so, and still gives nearly the same time."""

from __future__ import annotations

import pytest

from weft import limits, train
from weft.errors import LimitError
from weft.training.segment_budget import count_segments

NETWORK = "ring:4@bw=10GB/s,lat=1us"


def test_no_fewer_segments_are_counted_than_the_engine_has() -> None:
    for policy, endpoint in (("ddp", "free"), ("dear", "free"), ("ddp", "ideal")):
        found = train("multitree-ncf", NETWORK, device="multitree-array", policy=policy, endpoint=endpoint)
        counted = count_segments(found.graph, found.cluster)
        assert found.run.flow.segments <= counted <= 1.001 * found.run.flow.segments


def test_a_job_that_fits_is_left_as_it_is() -> None:
    found = train("vgg16", NETWORK, policy="ddp")
    assert found.simplified == ""
    assert found.to_dict()["simplified"] == ""


def test_larger_segments_and_fewer_iterations_keep_a_job_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fine = train("vgg16", NETWORK, policy="ddp")
    needed = fine.run.flow.segments
    monkeypatch.setattr(limits, "MAX_SEGMENTS", needed // 2)
    coarse = train("vgg16", NETWORK, policy="ddp")
    assert coarse.run.flow.segments <= needed // 2
    assert "to stay within" in coarse.simplified
    assert coarse.seconds == pytest.approx(fine.seconds, rel=0.05)


def test_what_cannot_be_made_to_fit_is_refused_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SEGMENTS", 100)
    with pytest.raises(LimitError, match="use a larger --fusion"):
        train("vgg16", NETWORK, policy="ddp", algorithm="ring")
    with pytest.raises(LimitError, match="use a larger --fusion"):
        train("vgg16", NETWORK, policy="ddp", algorithm="ring", iterations=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "policy"), [("rails:8x8", "auto"), ("dgx-h100:8", "auto"), ("dgx-h100:8", "ddp")]
)
def test_llama_trains_on_64_gpus_by_default(network: str, policy: str) -> None:
    found = train("llama2-7b", network, device="h100", policy=policy).to_dict()
    assert found["ranks"] == 64
    assert found["policy"] == policy or policy == "auto"
    assert found["segments"] <= limits.MAX_SEGMENTS
    assert found["simplified"]
    assert found["memory"]["fits"] is False
    assert round(found["memory"]["total_bytes"] / 1e9) == 129
    assert found["memory"]["advice"].endswith("--policy zero")
