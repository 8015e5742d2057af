"""Who a process is, as each launcher says it, and what is said when nobody does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from weft.errors import InputError, LimitError
from weft.runtime import Place, find_place
from weft.runtime.bootstrap.environment import on_one_machine
from weft.runtime.bootstrap.secret_note import FileExchange, SecretExchange, StoreExchange

SECRET = "ab" * 32
WEFT = {
    "WEFT_RANK": "1",
    "WEFT_SIZE": "4",
    "WEFT_ADDRESS": "10.0.0.7",
    "WEFT_PORT": "4000",
    "WEFT_JOB": "job-1",
    "WEFT_SECRET": SECRET,
}


def test_a_place_set_by_hand_is_read_whole() -> None:
    assert find_place(WEFT) == Place(
        rank=1,
        size=4,
        launcher="none",
        address="10.0.0.7",
        port=4000,
        job="job-1",
        secret=bytes.fromhex(SECRET),
    )


def test_weft_run_is_told_from_a_place_set_by_hand() -> None:
    local = {"WEFT_LAUNCHER": "weft", "WEFT_LOCAL_RANK": "1", "WEFT_LOCAL_SIZE": "4"}
    place = find_place(WEFT | local)
    assert (place.launcher, place.local_rank, place.local_size) == ("weft", 1, 4)


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        (
            {
                "RANK": "3",
                "WORLD_SIZE": "8",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "n1",
                "MASTER_PORT": "29500",
                "TORCHELASTIC_RUN_ID": "x",
                "TORCHELASTIC_RESTART_COUNT": "2",
            },
            Place(3, 8, 1, 2, "torchrun", "n1", 29501, "torchrun/x/2"),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
                "PMIX_NAMESPACE": "ns7",
                "SLURM_PROCID": "0",
                "SLURM_NTASKS": "1",
            },
            Place(0, 2, 0, 1, "mpirun", None, None, "mpirun/ns7"),
        ),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
            Place(1, 2, 1, 2, "mpirun", "127.0.0.1", None, "mpirun"),
        ),
        (
            {
                "SLURM_PROCID": "5",
                "SLURM_NTASKS": "6",
                "SLURM_LOCALID": "1",
                "SLURM_STEP_NODELIST": "gpu[003-007,12],n1",
                "SLURM_JOB_ID": "77",
                "SLURM_STEP_ID": "0",
            },
            Place(5, 6, 1, None, "srun", "gpu003", None, "srun/77/0"),
        ),
    ],
    ids=["torchrun", "open mpi under srun", "mpich", "srun"],
)
def test_other_launchers_are_understood(variables: dict[str, str], place: Place) -> None:
    assert replace(find_place(variables), secret_exchange=None) == place


TORCH = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "ns"}
URI = "ns@0.0;tcp4://127.0.0.1:4000"


@pytest.mark.parametrize(
    ("variables", "board"),
    [
        (TORCH | {"LOCAL_WORLD_SIZE": "2"}, FileExchange("torchrun n1:29500")),
        (TORCH | {"LOCAL_WORLD_SIZE": "1"} | AGENT, StoreExchange("n1", 29500, "weft/torchrun")),
        (TORCH | {"LOCAL_WORLD_SIZE": "1"}, None),
        (TORCH | {"LOCAL_WORLD_SIZE": "2", "WEFT_SECRET": SECRET}, None),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, None),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_SERVER_URI2": URI},
            FileExchange(f"mpirun/ns {URI}"),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, None),
        ({"WEFT_RANK": "0", "WEFT_SIZE": "2"}, None),
    ],
)
def test_a_secret_is_handed_over_where_that_is_safe(
    variables: dict[str, str], board: SecretExchange | None
) -> None:
    assert find_place(variables).secret_exchange == board


def test_ranks_of_mpich_have_their_launcher_in_common() -> None:
    said = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    board = find_place(said).secret_exchange
    assert isinstance(board, FileExchange)
    assert board.job.startswith(f"mpirun {os.getppid()}@")


def test_what_weft_is_told_goes_before_what_a_launcher_says() -> None:
    torch = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    place = find_place(torch | {"WEFT_ADDRESS": "n9", "WEFT_PORT": "5", "WEFT_JOB": "mine"})
    assert (place.launcher, place.address, place.port, place.job) == ("torchrun", "n9", 5, "mine")


@pytest.mark.parametrize(("machines", "address"), [("1", "127.0.0.1"), ("2", "n1")])
def test_a_step_of_slurm_on_one_machine_meets_on_loopback(machines: str, address: str) -> None:
    step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "n1"}
    said = step | {"SLURM_STEP_NUM_NODES": machines}
    assert find_place(said).address == address
    assert on_one_machine(said) == (machines == "1")


def test_ranks_of_one_machine_meet_on_loopback() -> None:
    torch = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "65535",
    }
    assert find_place(torch).address == "127.0.0.1"
    place = find_place(torch | {"WEFT_SECRET": SECRET})
    assert (place.address, place.port) == ("127.0.0.1", 65534)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n1", "n1"), ("n1,n2", "n1"), ("a-b[01,03]-x,c", "a-b01-x"), ("[1-2]", "1"), (",", None)],
)
def test_the_first_node_of_a_slurm_list_is_found(nodes: str, first: str | None) -> None:
    place = find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": nodes})
    assert place.address == first


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, "neither WEFT_RANK nor RANK is set; start the script with 'weft run -n 4 script.py'"),
        ({"WEFT_RANK": "1"}, "WEFT_RANK is set but WEFT_SIZE is not"),
        ({"WORLD_SIZE": "1"}, "WORLD_SIZE is set but RANK is not"),
        ({"WEFT_RANK": "one", "WEFT_SIZE": "2"}, "WEFT_RANK='one': expected a whole number from 0"),
        ({"WEFT_RANK": "-1", "WEFT_SIZE": "2"}, "WEFT_RANK='-1'"),
        ({"WEFT_RANK": "٣", "WEFT_SIZE": "4"}, "WEFT_RANK='٣'"),
        ({"WEFT_RANK": "9" * 5000, "WEFT_SIZE": "2"}, "WEFT_RANK='9999"),
        ({"WEFT_RANK": "2", "WEFT_SIZE": "2"}, "rank 2 is not among the 2 of the job"),
        ({"WEFT_RANK": "0", "WEFT_SIZE": "0"}, "WEFT_SIZE='0': expected a whole number from 1"),
        (WEFT | {"WEFT_PORT": "70000"}, "WEFT_PORT='70000': expected a whole number from 1 to 65535"),
        (WEFT | {"WEFT_ADDRESS": ""}, "WEFT_ADDRESS must not be empty"),
        (WEFT | {"WEFT_SECRET_FILE": "f"}, "WEFT_SECRET and WEFT_SECRET_FILE are both set"),
        (WEFT | {"WEFT_SECRET": "hunter2"}, "WEFT_SECRET: expected 64 hexadecimal digits"),
    ],
)
def test_what_is_missing_or_wrong_is_named(variables: dict[str, str], text: str) -> None:
    with pytest.raises(InputError) as caught:
        find_place(variables)
    assert text in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_job_larger_than_rank_0_can_hold_is_refused() -> None:
    with pytest.raises(LimitError, match="ranks of a job: 5,000 is more than the 1,024"):
        find_place({"WEFT_RANK": "0", "WEFT_SIZE": "5000"})


def test_a_place_never_prints_its_secret() -> None:
    place = find_place(WEFT)
    assert SECRET not in repr(place)
    assert repr(bytes.fromhex(SECRET)) not in repr(place)


def from_file(path: Path) -> Place:
    variables = {name: value for name, value in WEFT.items() if name != "WEFT_SECRET"}
    return find_place(variables | {"WEFT_SECRET_FILE": str(path)})


def test_a_secret_is_read_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    assert from_file(path).secret == bytes.fromhex(SECRET)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_secret_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(mode)
    with pytest.raises(InputError, match="chmod 600"):
        from_file(path)


def test_a_secret_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        from_file(tmp_path / "absent")
    with pytest.raises(InputError, match="not a regular file"):
        from_file(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InputError, match="not a regular file"):
        from_file(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff" * 4096)
    (tmp_path / "binary").chmod(0o600)
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        from_file(tmp_path / "binary")
