"""Operations that move the same bytes are still told apart, by every rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import PRELUDE, run_engine
from support.jobs import finish, run_ranks, start_ranks

JOB = Path(__file__).with_name("jobs") / "different_operations.py"


@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_two_different_operations_never_pass_for_one(tmp_path: Path, transport: str) -> None:
    said = run_ranks(tmp_path, 2, JOB, transport, timeout=110)
    assert [output.split()[-1] for output in said] == ["98", "98"]


ON_ENGINE = f"""
sys.path.insert(0, {str(JOB.parent)!r})
from different_operations import FROM_0, FROM_1, try_pairs

R = int(os.environ.get("WEFT_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
say(try_pairs((FROM_0, FROM_1), lambda: begin(timeout=20)))
"""


@pytest.mark.parametrize("engine", ["mpi", "torch"])
def test_messages_gathers_scatters_and_parts_are_told_apart_on_other_engines(
    tmp_path: Path, engine: str
) -> None:
    assert run_engine(engine, tmp_path, 2, ON_ENGINE) == ["20"] * 2


# Rank 1 is the odd one. Rank 2 has no part in that, and learns of it from rank 0. On engines where the ranks
# tell everybody why they fail, it may hear rank 1 first, which names rank 0. Where it only sends, it may be
# done before it hears anything.
AMONG_THREE = """
WAY, ELEMENTS = WORDS[0], int(WORDS[1])
options = {"transport": WAY} if ENGINE == "native" else {}

def room():
    return np.full(ELEMENTS, -1.0)

def scatter(comm):
    comm.scatter(np.zeros(3 * ELEMENTS) if comm.rank == 0 else None, 0, out=room())

def parts(comm, place):
    if comm.rank == 0:
        comm.send_parts([1, 2], np.zeros(2 * ELEMENTS))
    else:
        comm.recv_parts([0], room(), place=place)

CALLS = {
    "recv instead of scatter": lambda comm: comm.recv(room(), 0) if comm.rank == 1 else scatter(comm),
    "send instead of gather": lambda comm: comm.send(room(), 0) if comm.rank == 1 else comm.gather(room(), 0),
    "scatter instead of parts": lambda comm: scatter(comm) if comm.rank == 1 else parts(comm, comm.rank - 1),
    "another place": lambda comm: parts(comm, 1),
}
for name, call in CALLS.items():
    comm = begin(timeout=20, **options)
    R = comm.rank
    parts(comm, R - 1)
    scatter(comm)
    named = None
    try:
        call(comm)
    except weft.DesyncError as error:
        named = error.rank
    expected = {1: [0], 0: [1], 2: [1] if ENGINE == "native" else [0, 1]}[R]
    expected += [None] if R == 2 and name == "send instead of gather" else []
    assert named in expected, (name, named)
    comm.close()
say("told")
"""


@pytest.mark.parametrize("elements", [3, 50_000])
@pytest.mark.parametrize("way", ["auto", "copy", "tcp", "mpi", "torch"])
def test_one_of_three_in_another_exchange_is_named(tmp_path: Path, way: str, elements: int) -> None:
    if way in ("mpi", "torch"):
        assert run_engine(way, tmp_path, 3, AMONG_THREE, way, str(elements)) == ["told"] * 3
        return
    words = ("native", str(tmp_path), way, str(elements))
    ended = finish(start_ranks(tmp_path, 3, PRELUDE + AMONG_THREE, *words))
    assert [code for code, _ in ended] == [0] * 3, ended
