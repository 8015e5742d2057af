"""The same collectives over mpirun and over gloo, with real processes: same results, same errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.engines import AS_ROOT, MPIRUN, TORCHRUN, run_engine, said, start_engine
from support.jobs import finish

JOBS = Path(__file__).with_name("jobs")

ENGINES = ["mpi", "torch"]

EXACT = JOBS / "engines_exact.py"


@pytest.mark.parametrize(("engine", "ranks"), [("mpi", 4), ("torch", 3)])
def test_every_collective_type_and_op_is_exact(tmp_path: Path, engine: str, ranks: int) -> None:
    assert run_engine(engine, tmp_path, ranks, EXACT) == ["exact"] * ranks


SAME_BITS = JOBS / "engines_same_bits.py"


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_have_the_bits_of_the_native_runtime_for_every_algorithm(tmp_path: Path, engine: str) -> None:
    ran = run_engine(engine, tmp_path, 4, SAME_BITS)
    assert len(ran) == 4
    serves_any = {"ring", "direct", "recursive_doubling", "halving_doubling", "multitree", "forest"}
    assert serves_any <= set(ran[0].split()), ran


ERRORS = JOBS / "engines_errors.py"


@pytest.mark.parametrize("engine", ENGINES)
def test_errors_are_those_of_the_native_runtime(tmp_path: Path, engine: str) -> None:
    assert run_engine(engine, tmp_path, 3, ERRORS) == ["told"] * 3


ABANDONED = JOBS / "engines_abandoned.py"


def test_what_comes_for_an_abandoned_operation_changes_no_other_memory(tmp_path: Path) -> None:
    assert run_engine("mpi", tmp_path, 2, ABANDONED) == ["untouched"] * 2


PART = JOBS / "engines_part.py"


def test_a_rank_that_dies_concerns_only_the_part_it_is_in(tmp_path: Path) -> None:
    lines = said("".join(output for _, output in finish(start_engine("torch", tmp_path, 4, PART))))
    assert lines == ["goes on", "goes on", "lost 1 all_reduce"]


TENSORS = JOBS / "engines_tensors.py"


def test_tensors_are_combined_where_they_are_beside_the_users_group(tmp_path: Path) -> None:
    assert run_engine("torch", tmp_path, 3, TENSORS) == ["in place"] * 3


PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("average.py", [MPIRUN, "--oversubscribe", "-n", "2", sys.executable, "-m", "mpi4py"]),
        ("tensors.py", [TORCHRUN, "--nproc-per-node", "2"]),
    ],
)
def test_the_programs_of_the_page_run(tmp_path: Path, name: str, command: list[str | Path]) -> None:
    program = PAGE.read_text("utf-8").partition(f"```python\n# {name}\n")[2].partition("```")[0]
    (tmp_path / name).write_text(program, "utf-8")
    done = subprocess.run(
        [*map(str, command), name],
        cwd=tmp_path,
        env={**os.environ, **AS_ROOT},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [done.stdout.count(word) for word in ("0.5", "ring")] == [2, 2], done.stdout
