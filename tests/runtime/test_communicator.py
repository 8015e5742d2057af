"""Collectives among real processes: every algorithm, both transports, all types; exact, or a clear error."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.jobs import end, finish, run_ranks, start_ranks

from weft.algorithms.registry import ALGORITHMS

JOBS = Path(__file__).with_name("jobs")

EVERYTHING = JOBS / "communicator_everything.py"


@pytest.mark.parametrize(
    ("ranks", "transport", "amount"),
    [
        (2, "tcp", "every"),
        (3, "auto", "every"),
        (8, "tcp", "few"),
        pytest.param(8, "auto", "few", marks=pytest.mark.slow),
        pytest.param(2, "auto", "every", marks=pytest.mark.slow),
        pytest.param(3, "tcp", "every", marks=pytest.mark.slow),
        pytest.param(8, "auto", "every", marks=pytest.mark.slow),
        pytest.param(8, "tcp", "every", marks=pytest.mark.slow),
        pytest.param(16, "auto", "few", marks=pytest.mark.slow),
        pytest.param(16, "tcp", "few", marks=pytest.mark.slow),
    ],
)
def test_every_algorithm_computes_exactly_what_it_should(
    tmp_path: Path, ranks: int, transport: str, amount: str
) -> None:
    said = run_ranks(tmp_path, ranks, EVERYTHING, transport, amount)
    ran = set(said[0].partition("ran ")[2].split())
    serves_any = {"ring", "direct", "recursive_doubling", "halving_doubling", "multitree", "forest"}
    assert ran == set(ALGORITHMS) if ranks == 8 else ran >= serves_any, said


SHARED = JOBS / "communicator_shared.py"


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_shared_private_strided_and_asynchronous(tmp_path: Path, ranks: int) -> None:
    run_ranks(tmp_path, ranks, SHARED)


COPIED = JOBS / "communicator_copied.py"


@pytest.mark.parametrize("ranks", [2, 3])
def test_where_no_rank_may_read_another_data_is_copied(tmp_path: Path, ranks: int) -> None:
    run_ranks(tmp_path, ranks, COPIED)


REPEATED = JOBS / "communicator_repeated.py"


def test_the_same_sums_have_the_same_bits_every_time(tmp_path: Path) -> None:
    run_ranks(tmp_path, 4, REPEATED)


LOST = JOBS / "communicator_lost.py"


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_by_every_other(
    tmp_path: Path, transport: str, victim: int, algorithm: str
) -> None:
    ranks = start_ranks(tmp_path, 4, LOST, transport, str(victim), "SIGKILL", algorithm)
    for rank, (code, output) in enumerate(finish(ranks)):
        assert code == (-signal.SIGKILL if rank == victim else 7), (rank, code, output)
        if rank != victim:
            assert output.split()[:3] == ["lost", str(victim), str(ranks[victim].pid)], output


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_frozen_rank_is_named_by_every_other(tmp_path: Path, transport: str) -> None:
    ranks = start_ranks(tmp_path, 3, LOST, transport, "1", "SIGSTOP", "ring")
    try:
        suspected = 0
        for code, output in finish([ranks[0], ranks[2]]):
            assert code == 7, output
            before, _, after = f"\n{output}".partition("\nlost ")
            assert after.split()[0] == "1", output
            suspected += "rank 1 (host" in before
        # It is named before it is lost, after a second of silence, by a rank that waits for it. The other one
        # may wait for that rank, or may have been too busy to wait for long.
        assert suspected
    finally:
        end(ranks[1])


DIFFERENT = JOBS / "communicator_different.py"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("what", ["size", "dtype", "op"])
def test_a_rank_that_calls_something_else_is_named(tmp_path: Path, transport: str, what: str) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, DIFFERENT, transport, what)):
        assert code == 9, output


WRONG = JOBS / "communicator_wrong.py"


def test_wrong_arguments_are_refused_and_do_no_harm(tmp_path: Path) -> None:
    run_ranks(tmp_path, 2, WRONG)


AT_START = JOBS / "communicator_at_start.py"


def test_a_plan_is_made_at_the_start_from_the_topology(tmp_path: Path) -> None:
    said = run_ranks(tmp_path, 6, AT_START, "torus:2x3")
    told = {
        output.partition("ran ")[2] for output in said
    }  # on a busy machine ranks also say whom they await
    assert len(told) == 1, said
    assert len(told.pop().split()) >= 2, said
    for code, output in finish(start_ranks(tmp_path, 3, AT_START, "torus:2x3")):
        assert code == 1, output
        assert "the topology is for torus:2x3, 6 ranks; this job has 3" in output


OTHER = JOBS / "communicator_other.py"


PLANNED = JOBS / "communicator_planned.py"


def test_a_plan_is_what_runs(tmp_path: Path) -> None:
    import weft

    plan = weft.plan("ring:4", "1MB", algorithms=["bidirectional_ring"])
    plan.save(tmp_path / "plan.weft")
    for output in run_ranks(tmp_path, 4, PLANNED, str(tmp_path / "plan.weft"), "auto"):
        assert "used bidirectional_ring" in output
    for code, output in finish(start_ranks(tmp_path, 3, PLANNED, str(tmp_path / "plan.weft"), "auto")):
        assert code == 1, output
        assert "the plan is for ring:4, 4 ranks; this job has 3" in output
    for code, output in finish(start_ranks(tmp_path, 4, OTHER, str(tmp_path / "plan.weft"))):
        assert code == 1, output
        assert "the plan is for ring:4 (" in output
        assert "ring:4@bw=1GB/s" in output


@pytest.mark.parametrize(("transport", "segment_bytes"), [("tcp", 1_200_000), ("auto", 256 << 10)])
def test_messages_that_a_plan_sends_whole_stay_whole_over_sockets(
    tmp_path: Path, transport: str, segment_bytes: int
) -> None:
    import weft

    plan = weft.plan("switch:4@bw=1GB/s,lat=1us", "1200KB", algorithms=["direct"])
    assert plan.choose("1200KB").segment_bytes is None
    plan.save(tmp_path / "plan.weft")
    for output in run_ranks(tmp_path, 4, PLANNED, str(tmp_path / "plan.weft"), transport):
        assert f"used direct {segment_bytes} 1200000" in output


TENSORS = JOBS / "communicator_tensors.py"


def test_torch_tensors_of_every_type_are_summed_in_place(tmp_path: Path) -> None:
    run_ranks(tmp_path, 3, TENSORS)


MIXED_SIZES = JOBS / "communicator_mixed_sizes.py"


@pytest.mark.parametrize(("transport", "ranks"), [("auto", 2), ("copy", 3), ("tcp", 3)])
def test_sums_of_all_sizes_in_any_order_are_exact(tmp_path: Path, transport: str, ranks: int) -> None:
    said = run_ranks(tmp_path, ranks, MIXED_SIZES, transport, "1500")
    assert ["exact" in output for output in said] == [True] * ranks


HURRIED = JOBS / "communicator_hurried.py"


def test_ranks_that_hurry_ahead_wait_for_those_that_have_not_begun(tmp_path: Path) -> None:
    run_ranks(tmp_path, 6, HURRIED)
