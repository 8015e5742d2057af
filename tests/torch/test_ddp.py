"""Less common ways of DistributedDataParallel train on weft as they do on gloo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.groups import start_group
from support.jobs import finish

JOB = Path(__file__).with_name("ddp_job.py")
CASES = ("powersgd", "powersgd-fp16", "join-initial", "join-effective", "sparse-sgd", "sparse-adam")
RANKS = 2
TIMEOUT_S = 100  # a job takes 5 s on a quiet machine; one that hangs is ended
TOLERANCE = 1e-6  # seen: 0, since a sum of two has one order only


def train(folder: Path, backend: str, *cases: str) -> dict[str, Any]:
    """What rank 0 prints of each case."""
    ended = finish(start_group(folder, RANKS, JOB, backend, *cases), TIMEOUT_S)
    assert [code for code, _ in ended] == [0] * RANKS, "\n".join(output for _, output in ended)
    results = [json.loads(line) for line in ended[0][1].splitlines() if line.startswith("{")]
    assert all(result["weft"] == (backend == "weft") for result in results)
    return {result["case"]: result for result in results}


# PowerSGD is tried with one bucket only: with several, the callbacks that wait take all of gloo's threads,
# and gloo hangs.
@pytest.mark.timeout(2 * TIMEOUT_S + 20)
def test_ddp_trains_as_on_gloo(tmp_path: Path) -> None:
    # One job of each backend for all cases: starting it takes longer than they do.
    on_gloo, on_weft = (train(tmp_path, backend, *CASES) for backend in ("gloo", "weft"))
    assert set(on_gloo) == set(on_weft) == set(CASES)
    for case, expected in on_gloo.items():
        found = on_weft[case]
        for key in ("losses", "weights"):
            assert len(found[key]) == len(expected[key]), case
            for one, other in zip(found[key], expected[key], strict=True):
                assert one == pytest.approx(other, abs=TOLERANCE, rel=0), case
