"""How the ranks of a torch group meet, whatever its backend and its store."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.groups import run_group
from support.hosts import make_network
from support.jobs import finish
from torch import distributed as dist

from weft.errors import InputError, TimedOut
from weft.runtime.bootstrap.group_store import (
    AnsweringStore,
    GroupExchangeStore,
    count_visit,
    find_own_address,
)
from weft.runtime.bootstrap.secret_note import SecretNote
from weft.torch import Options, connect
from weft.torch.store_bootstrap import meet

JOBS = Path(__file__).with_name("jobs")

CONNECT = JOBS / "store_bootstrap_connect.py"


@pytest.mark.parametrize("backend", ["gloo", "weft"])
def test_a_communicator_of_the_ranks_of_any_group(tmp_path: Path, backend: str) -> None:
    run_group(tmp_path, 3, CONNECT, backend=backend)


def test_connecting_needs_a_group() -> None:
    with pytest.raises(InputError, match="init_process_group"):
        connect()


def test_a_note_in_a_store_carries_the_address() -> None:
    board = GroupExchangeStore(dist.PrefixStore("group", dist.HashStore()), "key")
    note = SecretNote(4000, bytes(range(32)), "10.1.2.3")
    assert board.read(0.05) is None
    board.leave(note, 1.0)
    assert board.read(1.0) == note
    board.remove()
    assert board.read(0.05) is None


def test_ranks_that_do_not_come_are_named() -> None:
    with pytest.raises(TimedOut) as caught:
        meet(dist.HashStore(), 0, 3, Options(), timeout=0.5)
    assert caught.value.missing == (1, 2)
    with pytest.raises(TimedOut, match="rank 0 has left no note at the process group's store"):
        meet(dist.HashStore(), 1, 3, Options(), timeout=0.5)


SERVES_A_STORE = """
import sys
from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.readline()
"""


def test_a_store_whose_process_is_frozen_is_not_waited_for_without_end() -> None:
    command = [sys.executable, "-c", SERVES_A_STORE]
    serving = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        store = dist.TCPStore("127.0.0.1", int(serving.stdout.readline()), 2, is_master=False)
        assert count_visit(store, 1) == 1
        serving.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, serving.pid, os.WSTOPPED | os.WNOWAIT)  # it may still answer until then
        answering = AnsweringStore(store, answer_s=0.5)
        with pytest.raises(RuntimeError, match="has not answered for"):
            answering.check(["key"])
    finally:
        serving.kill()
        serving.communicate()


def test_rank_0_is_reached_on_the_way_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert find_own_address(dist.HashStore(), 1.0) == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.2")
    assert find_own_address(dist.HashStore(), 1.0).startswith("127.")
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    assert find_own_address(dist.PrefixStore("a", dist.PrefixStore("b", store)), 1.0) == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "no such host")
    with pytest.raises(InputError, match=r"no such host: .*MASTER_ADDR must be reachable"):
        find_own_address(dist.HashStore(), 1.0)


@pytest.mark.namespaces
def test_a_group_of_one_machine_meets_on_loopback(tmp_path: Path) -> None:
    with make_network(1) as network:
        # As torchrun says it, with the host's outer address as master.
        variables = {
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": network.address(0),
            "MASTER_PORT": "4000",
        }
        source = Path(__file__).with_name("listening_job.py").read_text("utf-8")
        script = tmp_path / "job.py"
        script.write_text(source, "utf-8")
        ranks = [
            subprocess.Popen(
                [*network.prefix(0), sys.executable, str(script)],
                env={**os.environ, **variables, "RANK": rank},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in "01"
        ]
        (code, said), _ = finish(ranks)
    assert code == 0, said
    assert "listened at 127.0.0.1\n" in said


def test_the_store_of_another_machine_is_reached_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", socket.gethostname())
    assert find_own_address(dist.HashStore(), 1.0) == "127.0.0.1"
    # Whatever the launcher says: an address that is not of this machine means that there is another one.
    monkeypatch.setenv("MASTER_ADDR", "203.0.113.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("203.0.113.1", 9))
        except OSError:
            with pytest.raises(InputError, match="MASTER_ADDR must be reachable"):
                find_own_address(dist.HashStore(), 1.0)
        else:
            assert find_own_address(dist.HashStore(), 1.0) == way.getsockname()[0]


def test_without_torch_the_extra_is_named() -> None:
    code = "import sys; sys.modules['torch'] = None\nimport weft\ntry:\n    weft.torch\n"
    code += "except ImportError as error:\n    print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install torch" in done.stdout


RESTART = """
import os, signal, sys
import torch
import torch.distributed as dist
import weft.torch

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("weft")
x = torch.ones(1000)
dist.all_reduce(x)
if attempt == 0:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        dist.all_reduce(x)
dist.barrier()
assert (x == dist.get_world_size()).all()
dist.destroy_process_group()
print(f"<done in attempt {attempt}>", flush=True)
"""


@pytest.mark.slow
def test_torchrun_starts_again_after_a_loss(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(RESTART, "utf-8")
    torchrun = Path(sys.executable).with_name("torchrun")
    command = [torchrun, "--standalone", "--nproc-per-node", "3", "--max-restarts", "1", script]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("<done in attempt 1>") == 3, done.stdout
