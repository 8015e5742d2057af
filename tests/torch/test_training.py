"""Training on a group of backend weft, and with the hook, gives what one process alone gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.groups import run_group

JOBS = Path(__file__).with_name("jobs")

DDP = JOBS / "training_ddp.py"


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ddp(tmp_path: Path, ranks: int) -> None:
    run_group(tmp_path, ranks, DDP, "2e-6")


@pytest.mark.parametrize(
    ("backend", "options", "tolerance"),
    [
        ("gloo", "{}", 2e-6),
        ("weft", '{"algorithm": "ring", "transport": "tcp"}', 2e-6),
        ("gloo", '{"wire": "bf16"}', 1e-2),
        pytest.param("weft", "{}", 2e-6, marks=pytest.mark.slow),
        pytest.param("gloo", '{"wire": "fp16"}', 1e-3, marks=pytest.mark.slow),
    ],
)
def test_ddp_with_the_hook(tmp_path: Path, backend: str, options: str, tolerance: float) -> None:
    run_group(tmp_path, 2, DDP, str(tolerance), options, backend=backend)


ELSEWHERE = JOBS / "training_elsewhere.py"


@pytest.mark.parametrize(
    ("options", "tolerance"), [pytest.param("{}", 2e-6, marks=pytest.mark.slow), ('{"wire": "bf16"}', 1e-2)]
)
def test_the_hook_takes_buckets_of_an_accelerator_to_the_host_and_back(
    tmp_path: Path, options: str, tolerance: float
) -> None:
    run_group(tmp_path, 2, ELSEWHERE, str(tolerance), options, backend="gloo")


SHARDED = JOBS / "training_sharded.py"


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_zero_and_fsdp2(tmp_path: Path, ranks: int) -> None:
    run_group(tmp_path, ranks, SHARDED)


AHEAD = JOBS / "training_sharded_ahead.py"


@pytest.mark.parametrize("backend", ["weft", pytest.param("gloo", marks=pytest.mark.slow)])
def test_fsdp2_with_collectives_behind_computing_gives_the_same_bits(tmp_path: Path, backend: str) -> None:
    run_group(tmp_path, 2, AHEAD, backend=backend)


def test_fsdp2_with_collectives_behind_computing_names_a_rank_that_died(tmp_path: Path) -> None:
    run_group(tmp_path, 2, JOBS / "training_sharded_lost.py")


HOOK = JOBS / "training_hook.py"


@pytest.mark.parametrize("backend", ["gloo", "weft"])
def test_the_hook_on_some_of_the_ranks(tmp_path: Path, backend: str) -> None:
    run_group(tmp_path, 4, HOOK, backend=backend)
