"""What ranks do wrong, and how they are told: who is named, and that nothing comes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.jobs import end, finish, start_ranks

LATE = """
import sys, time
import numpy as np
import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
comm.barrier()
if comm.rank == 2:
    time.sleep(4)
try:
    comm.all_reduce(np.ones(int(sys.argv[2])), timeout=1.5)
except weft.TimedOut as error:
    print("missing", *error.missing)
except weft.RuntimeFailure as error:
    print(type(error).__name__, error)
try:
    comm.barrier()
except weft.RuntimeFailure as error:
    assert "of no further use" in str(error), error
else:
    sys.exit("it went on")
time.sleep(4)  # all live on, so that only what they say can be heard
"""


@pytest.mark.parametrize("elements", [10, 30_000])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_who_did_not_come_is_named_by_all_and_told_so(tmp_path: Path, transport: str, elements: int) -> None:
    found = finish(start_ranks(tmp_path, 4, LATE, transport, str(elements)))
    for rank, (code, output) in enumerate(found):
        assert code == 0, output
        if rank == 2:
            assert "gave up waiting for this rank, 2" in output
        else:
            assert output.strip() == "missing 2", (rank, output)


ODD = """
import sys, time
import numpy as np
import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
comm.barrier()
try:
    if comm.rank == 0:
        comm.all_reduce(np.ones(3))
    else:
        comm.broadcast(np.ones(3), 0)
except weft.DesyncError as error:
    print("named", error.rank)
time.sleep(2)
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_who_calls_something_else_is_named_by_those_who_agree(tmp_path: Path, transport: str) -> None:
    found = [output.split() for _, output in finish(start_ranks(tmp_path, 4, ODD, transport))]
    assert found[1:] == [["named", "0"]] * 3
    assert found[0][0] == "named"


FORKED = """
import os, sys
import numpy as np
import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
R, N = comm.rank, comm.size
assert (comm.all_reduce(np.ones(100_000)) == N).all()
if R == 1:
    child = os.fork()
    if child == 0:
        try:
            comm.all_reduce(np.full(1000, 1000.0))
        except weft.RuntimeFailure as error:
            assert "was forked from rank 1" in str(error), error
            sys.exit(5)  # with all that runs at an exit
        sys.exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
for _ in range(3):
    assert (comm.all_reduce(np.ones(1000)) == N).all()
comm.close()
"""


@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_a_forked_child_does_not_speak_for_its_parent(tmp_path: Path, transport: str) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, FORKED, transport)):
        assert code == 0, output


WRONG = """
import numpy as np
import pytest
import torch
import weft

comm = weft.init(timeout=20)
R = comm.rank
one = np.ones(10)
for timeout in (-1, 0, float("nan"), float("inf"), 1e10, "5"):
    with pytest.raises(weft.InputError, match="timeout"):
        comm.all_reduce(one, timeout=timeout)
with pytest.raises(weft.InputError, match="overlap"):
    comm.send_recv(one[:8], 1 - R, one[4:], 1 - R)
with pytest.raises(TypeError, match="negative bit"):
    comm.all_reduce(torch.tensor([1 + 2j]).conj().imag)
with pytest.raises(TypeError, match="cannot be taken as an array"):
    comm.all_reduce([1.0, 2.0])
with pytest.raises(TypeError, match="cannot be taken as an array"):
    comm.all_reduce(torch.ones(3, requires_grad=True))
with pytest.raises(TypeError):
    comm.split(0.5)
for color, key in ((2**70, 0), (0, -2**70)):
    with pytest.raises(weft.InputError, match="64 bits"):
        comm.split(color, key)
for root in (1.5, "0", None, 2, -1):
    with pytest.raises(weft.InputError, match="is not a rank"):
        comm.broadcast(one, root)
    with pytest.raises(weft.InputError, match="has no peer"):
        comm.send(one, root)
for place in (-3, 1, 5, 10**9, 0.0, "0", None):
    with pytest.raises(weft.InputError, match="recv_parts: place .* is none of 0..0"):
        comm.recv_parts([1 - R], one, place=place)
with pytest.raises(weft.InputError, match="timeout nan"):
    comm.all_reduce(one, async_op=True).wait(float("nan"))
with pytest.raises(weft.InputError, match="that is this rank itself"):
    comm.send(one, R)
with pytest.raises(TypeError, match="not supported"):
    comm.all_reduce(one, "x" * 100_000)
weft.limits.MAX_SEGMENTS, most = 1, weft.limits.MAX_SEGMENTS
with pytest.raises(weft.errors.LimitError, match="all_reduce .*: more than 1 .*larger segments"):
    comm.all_reduce(np.ones(5_000_000))
weft.limits.MAX_SEGMENTS = most
last = comm.all_reduce(np.ones(3), async_op=True)
last.wait(20)
comm.close()
"""

# What a user does to the future of an operation, or in its thread, neither hangs nor spoils what follows.
MEDDLING = """
import numpy as np
import weft

comm = weft.init(timeout=20)
work = comm.all_reduce(np.ones(1_000_000), async_op=True)
assert not work.future.cancel()
assert (work.wait(20) == comm.size).all()
work = comm.all_reduce(np.ones(1_000_000), async_op=True)
work.future.set_result("mine")
assert work.wait(20) == "mine"
assert (comm.all_reduce(np.ones(3), async_op=True).wait(20) == comm.size).all()
assert (comm.all_reduce(np.ones(3)) == comm.size).all()

inner = comm.in_turn(lambda: comm.all_reduce(np.ones(3), async_op=True).wait(), async_op=True)
assert (inner.wait(20) == comm.size).all()
try:
    comm.in_turn(comm.close, async_op=True).wait(20)
except weft.RuntimeFailure as error:
    assert "close was called within an operation" in str(error), error
else:
    raise AssertionError("closed by its own operation")
assert (comm.all_reduce(np.ones(3)) == comm.size).all()
comm.close()
"""


# A callback may wait for operations, also for one that another callback completes, and may close.
CALLBACKS = """
import threading

import numpy as np
import weft

comm = weft.init(timeout=20)
order, ended = [], threading.Event()

def deepest(_):
    order.append(float(comm.all_reduce(np.full(3, 4.0))[0]))  # blocks, in the callback of a callback
    ended.set()

def deeper(_):
    inner = comm.all_reduce(np.full(3, 2.0), async_op=True)
    inner.future.add_done_callback(deepest)
    order.append(float(inner.wait(20)[0]))
    assert ended.wait(20)

work = comm.all_reduce(np.full(1_000_000, 1.0), async_op=True)
for call in (lambda _: order.append("first"), deeper, lambda _: order.append("last")):
    work.future.add_done_callback(call)  # called one after the other, as of any future
order.append(float(work.wait(20)[0]))
assert ended.wait(20)
comm.barrier()
closed = threading.Event()

def close(_):
    comm.close()
    closed.set()

comm.all_reduce(np.ones(3), async_op=True).future.add_done_callback(close)
assert closed.wait(20)
assert order[-1] == "last" and order.index("first") < order.index(2.0 * comm.size), order
assert {comm.size, 2.0 * comm.size, 4.0 * comm.size} < {*order}, order
"""


def test_callbacks_may_wait_for_operations_and_close(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, CALLBACKS)):
        assert code == 0, output


def test_a_user_who_meddles_with_futures_harms_nothing(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, MEDDLING)):
        assert code == 0, output


# The call is named as the user made it, and a rank that left in order as one that did.
NAMED = """
import logging
import sys
import weft

logging.getLogger("weft").setLevel(logging.ERROR)
comm = weft.init(timeout=20)
comm.barrier()
if comm.rank == 1:
    comm.close()
    sys.stdin.readline()
    sys.exit()
try:
    comm.barrier() if sys.argv[1] == "barrier" else comm.split(0)
except weft.PeerLost as error:
    print(error, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("call", ["barrier", "split"])
def test_errors_name_the_call_and_say_that_a_rank_has_left(tmp_path: Path, call: str) -> None:
    ranks = start_ranks(tmp_path, 3, NAMED, call, stdin=subprocess.PIPE)
    try:
        for number in (0, 2):
            out = ranks[number].stdout
            assert out is not None
            said = out.readline()
            assert said.startswith("rank 1 (host "), said
            assert f"was lost during {call} #" in said, said
            assert said.endswith("it has closed its communicator\n"), said
    finally:
        for rank in ranks:
            end(rank)


def test_wrong_calls_are_refused_and_do_no_harm(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, WRONG)):
        assert code == 0, output


IMPATIENT = """
import time
import numpy as np
import weft

comm = weft.init(timeout=30)
comm.barrier()
if comm.rank == 1:
    time.sleep(2)
try:
    comm.all_reduce(np.ones(100_000), timeout=1 if comm.rank == 0 else 30)
except weft.TimedOut as error:
    assert error.missing == (1,), error.missing
    assert comm.rank == 0 or 1 < error.seconds < 20, error.seconds
    print(error)
except weft.RuntimeFailure as error:
    print(error)
time.sleep(2)
"""


def test_a_rank_that_is_patient_is_told_who_gave_up_waiting_for_whom(tmp_path: Path) -> None:
    (code_0, impatient), (_, late), (code_2, patient) = finish(start_ranks(tmp_path, 3, IMPATIENT))
    assert (code_0, code_2) == (0, 0), (impatient, patient)
    assert "rank 1 did not come within 1 s" in impatient
    assert "rank 0 gave up waiting for this rank, 1" in late
    assert "gave up waiting for rank 1, while this rank waits for up to 30 s" in patient
    assert "30000ms" not in patient
    assert "rank 0 did not come" not in patient
