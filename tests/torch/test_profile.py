"""A profile of a real job of two ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.jobs import finish, start_ranks

from weft.errors import InputError
from weft.torch.profiling import profile

JOB = Path(__file__).with_name("profiled_job.py")
KINDS = {"dear": {"reduce_scatter", "all_gather"}, "wfbp": {"all_reduce"}}


@pytest.mark.parametrize("policy", ["dear", "wfbp"])
def test_two_ranks_are_profiled(policy: str, tmp_path: Path) -> None:
    job = start_ranks(tmp_path, 2, JOB, str(tmp_path), policy, variables={"OMP_NUM_THREADS": "1"})
    ended = finish(job)
    assert [code for code, _ in ended] == [0, 0], "\n".join(output[-3000:] for _, output in ended)
    for rank in range(2):
        check_figures(json.loads((tmp_path / f"figures{rank}.json").read_text("utf-8")), rank, policy)
    summary = (tmp_path / "summary0.txt").read_text("utf-8")
    assert summary.startswith(f"rank 0 of 2: 7 iterations by {policy}, 3.85 MB in ")
    assert len(summary.splitlines()) <= 40
    assert "\npredicted: " in summary
    for name, ranks in (("trace.json", ["rank 0", "rank 1"]), ("rank1.json", ["rank 1"])):
        found = json.loads((tmp_path / name).read_text("utf-8"))["traceEvents"]
        names = [one["args"]["name"].split(" (")[0] for one in found if one["name"] == "process_name"]
        assert names == [*ranks, "predicted"]
        kinds = {one["cat"] for one in found if one["ph"] == "X"}
        assert kinds >= KINDS[policy] | {"forward", "backward", "update", "step", "wait", "vote"}


def check_figures(found: dict, rank: int, policy: str) -> None:
    assert (found["rank"], found["policy"], found["iterations"]) == (rank, policy, 7)
    whole = found["iteration"]
    assert 0 < whole["low_s"] <= whole["median_s"] <= whole["high_s"]
    parts = found["parts"]
    for part in ("forward", "backward", "update"):
        assert 0 < parts[part]["median_s"] < whole["high_s"], part
    assert all(parts[part]["median_s"] >= 0 for part in parts)
    assert sum(group["size_bytes"] for group in found["groups"]) == 6 * (400 * 400 + 400) * 4
    for group in found["groups"]:
        assert set(group["seconds"]) == KINDS[policy]
    assert 0 <= found["hidden"] <= 1
    assert [one["rank"] for one in found["ranks"]] == [0, 1]
    assert found["no_prediction"] is None
    prediction = found["prediction"]
    assert prediction["seconds"] > 0
    assert prediction["measured_s"] == whole["median_s"]


def test_a_profile_of_no_steps_is_refused() -> None:
    with pytest.raises(InputError, match="steps=0: expected at least 1"):
        profile(None, steps=0)  # type: ignore[arg-type]
