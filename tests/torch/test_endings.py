"""A group ends: what was started is finished, or it says why not; nothing else hangs or is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.groups import PRELUDE, run_group, start_group
from support.jobs import end, finish

# Each case starts operations and returns their works, the results and what these must be. Ranks come one
# after the other, so that the operations of the first are under way when it destroys the group.
CASES = """
from datetime import timedelta

def part(rank, *shape):
    return torch.full(shape, float(rank + 1))

ALL = range(N)
TOTAL = sum(r + 1.0 for r in ALL)
BIG = 50_000

def all_reduce(group):
    x = part(R, BIG)
    return dist.all_reduce(x, group=group, async_op=True), x, torch.full((BIG,), TOTAL)

def reduce(group):
    x = part(R, BIG)
    work = dist.reduce(x, 1, group=group, async_op=True)
    return work, x, torch.full((BIG,), TOTAL) if R == 1 else part(R, BIG)

def broadcast(group):
    x = part(R, BIG)
    return dist.broadcast(x, 1, group=group, async_op=True), x, part(1, BIG)

def all_gather(group):
    outs = [torch.zeros(BIG) for _ in ALL]
    work = dist.all_gather(outs, part(R, BIG), group=group, async_op=True)
    return work, outs, [part(r, BIG) for r in ALL]

def all_gather_of_unequal_sizes(group):
    outs = [torch.zeros(BIG + r) for r in ALL]
    work = dist.all_gather(outs, part(R, BIG + R), group=group, async_op=True)
    return work, outs, [part(r, BIG + r) for r in ALL]

def all_gather_into_tensor(group):
    out = torch.zeros(N * BIG)
    work = dist.all_gather_into_tensor(out, part(R, BIG), group=group, async_op=True)
    return work, out, torch.cat([part(r, BIG) for r in ALL])

def reduce_scatter(group):
    out = torch.zeros(BIG)
    work = dist.reduce_scatter(out, [part(R, BIG) for _ in ALL], group=group, async_op=True)
    return work, out, torch.full((BIG,), TOTAL)

def reduce_scatter_tensor(group):
    out = torch.zeros(BIG)
    work = dist.reduce_scatter_tensor(out, part(R, N * BIG), group=group, async_op=True)
    return work, out, torch.full((BIG,), TOTAL)

def gather(group):
    outs = [torch.zeros(BIG) for _ in ALL] if R == 1 else []
    work = dist.gather(part(R, BIG), outs or None, 1, group=group, async_op=True)
    return work, outs, [part(r, BIG) for r in ALL] if R == 1 else []

def scatter(group):
    x = torch.zeros(BIG)
    ins = [part(r, BIG) for r in ALL] if R == 1 else None
    return dist.scatter(x, ins, 1, group=group, async_op=True), x, part(R, BIG)

def all_to_all(group):
    outs = [torch.zeros(BIG) for _ in ALL]
    work = dist.all_to_all(outs, [part(R, BIG) for _ in ALL], group=group, async_op=True)
    return work, outs, [part(r, BIG) for r in ALL]

def all_to_all_single(group):
    out = torch.zeros(N * BIG)
    work = dist.all_to_all_single(out, part(R, N * BIG), group=group, async_op=True)
    return work, out, torch.cat([part(r, BIG) for r in ALL])

def barrier(group):
    return dist.barrier(group=group, async_op=True), [], []

def messages(group):
    x = torch.zeros(BIG)
    works = [dist.isend(part(R, BIG), (R + 1) % N, group=group), dist.irecv(x, (R - 1) % N, group=group)]
    return works, x, part((R - 1) % N, BIG)

def coalesced(group):
    xs = [part(R, BIG), part(R, 3)]
    with dist._coalescing_manager(group, torch.device("cpu"), async_ops=True) as manager:
        for x in xs:
            dist.broadcast(x, 1, group=group, async_op=True)
    return manager.works, xs, [part(1, BIG), part(1, 3)]

def all_reduce_coalesced(group):
    xs = [part(R, BIG), part(R, 3)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for x in xs:
            dist.all_reduce(x, group=group)
    return manager.works, xs, [torch.full((BIG,), TOTAL), torch.full((3,), TOTAL)]

STARTS = [all_reduce, reduce, broadcast, all_gather, all_gather_of_unequal_sizes, all_gather_into_tensor,
          reduce_scatter, reduce_scatter_tensor, gather, scatter, all_to_all, all_to_all_single, barrier,
          messages, coalesced, all_reduce_coalesced]

def listed(given):
    return given if isinstance(given, list) else [given]
"""

DESTROYED = """
wrong = []
for first in range(4):
    group = dist.new_group(timeout=timedelta(seconds=30))
    time.sleep(0.1 * R)
    started = [(start, *start(group)) for start in STARTS[first::4] for _ in range(2)]
    dist.destroy_process_group(group)
    for start, works, found, expected in started:
        try:
            assert all(work.is_completed() for work in listed(works)), "is under way"
            for work in listed(works):
                work.wait()
            assert all(map(torch.equal, listed(found), listed(expected))), "differs"
        except Exception as error:
            wrong.append(f"{start.__name__}: {type(error).__name__}: {error}")
assert not wrong, wrong
"""


def test_what_is_under_way_when_a_group_is_destroyed_is_finished(tmp_path: Path) -> None:
    run_group(tmp_path, 3, CASES + DESTROYED, own=True)


# A rank that another waits for is killed while that one destroys the group.
LOST = """
import json, signal, warnings
dist.barrier()
if R == 1:
    print("ready", flush=True)
    time.sleep(60)
x, y = torch.ones(1000), torch.ones(1000)
works = {"all_reduce": dist.all_reduce(x, async_op=True), "recv": dist.irecv(y, 1)}
print("ready", flush=True)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    dist.destroy_process_group()
told = {}
for name, work in works.items():
    try:
        work.wait()
    except weft.PeerLost as error:
        told[name] = error.rank
print(json.dumps([told, str(said[0].message), bool(x.isnan().all()), bool(y.isnan().all())]), flush=True)
"""


def read(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    while (line := process.stdout.readline()).startswith("[W"):  # torch warns on the same stream
        pass
    assert line == f"{word}\n", line + process.stdout.read()


def test_what_cannot_be_finished_raises_where_it_is_waited_for(tmp_path: Path) -> None:
    waiter, victim = start_group(tmp_path, 2, PRELUDE + LOST, "weft", own=True)
    try:
        for process in (waiter, victim):
            read(process, "ready")
        victim.kill()
        ((code, output),) = finish([waiter], 60)
    finally:
        end(waiter)
        end(victim)
    assert code == 0, output
    told, warning, *spoiled = json.loads(output.splitlines()[-1])
    assert told == {"all_reduce": 1, "recv": 1}
    assert "that nobody has waited for has failed: rank 1" in warning
    assert spoiled == [True, True]


# Nobody sends what these receive, and nobody receives what these send: whoever leaves says so.
HOPELESS = """
import warnings

P = 1 - R
def ended(works):
    for work in works:
        try:
            work.wait()
        except weft.PeerLost as error:
            assert error.rank == P, error
        else:
            raise AssertionError("is over")

for connected in (False, True):
    for kind in ("receives", "sends", "receives with a tag"):
        group, x = dist.new_group(), torch.ones(1000)
        if connected:
            works = [dist.isend(x, P, group=group), dist.irecv(torch.ones(1000), P, group=group)]
            for work in works:
                work.wait()
        if kind == "sends":
            works = [dist.isend(x, P, group=group)]
        else:
            works = [dist.irecv(x, P, group=group, tag=9 if "tag" in kind else 0)]
        if "tag" in kind:  # this one is received, but not asked for
            dist.isend(torch.ones(5), P, group=group)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            dist.destroy_process_group(group)
        lost = f"messages of rank {P} with tags that were never received are lost: [0]"
        assert [lost in str(one.message) for one in said].count(True) == ("tag" in kind), said
        ended(works)
"""


def test_messages_without_another_half_end_when_both_ranks_leave(tmp_path: Path) -> None:
    run_group(tmp_path, 2, HOPELESS, own=True)


ABORTED = """
began = time.monotonic()
groups = [dist.new_group() for _ in range(2)]
dist.barrier()
x, y, z = (torch.ones(100_000) for _ in range(3))
if R == 0:
    works = [dist.all_reduce(x, group=groups[0], async_op=True) for _ in range(2)]
    works += [dist.irecv(y, 1, group=groups[0]), dist.isend(z, 2, group=groups[0])]
    time.sleep(0.2)
    groups[0].abort()
    for work in works:
        assert work.is_completed()
        try:
            work.wait()
        except weft.RuntimeFailure as error:
            assert "aborted" in str(error), error
        else:
            raise AssertionError
    assert x.isnan().all() and y.isnan().all() and (z == 1).all()
    try:
        dist.all_reduce(x, group=groups[0])
    except weft.RuntimeFailure:
        pass
    else:
        raise AssertionError
else:
    time.sleep(0.1 if R == 1 else 0.6)
    try:
        dist.all_reduce(x, group=groups[0])
    except weft.PeerLost as error:
        assert error.rank == 0
    else:
        raise AssertionError
assert time.monotonic() - began < 60
dist.all_reduce(x.fill_(1), group=groups[1])  # another group of the same ranks is as it was
assert (x == N).all()
dist.distributed_c10d._abort_process_group()
assert not dist.is_initialized()
dist.init_process_group(BACKEND, store=dist.FileStore(WORDS[0], N), rank=R, world_size=N)
"""


def test_a_group_that_is_aborted_cancels_what_is_under_way(tmp_path: Path) -> None:
    run_group(tmp_path, 3, ABORTED, str(tmp_path / "store"), own=True)


AFTERWARDS = """
import gc, weakref
from datetime import timedelta

def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

x = torch.ones(10)
group = dist.new_group()
work = dist.all_reduce(x, group=group, async_op=True)
dist.destroy_process_group(group)
assert work.wait() and work.is_success() and (x == N).all() and work.get_future().wait()[0] is x
raises(ValueError, "Invalid process group", lambda: dist.destroy_process_group(group))
group.shutdown()
group.abort()
gone = "has destroyed this process group"
raises(weft.RuntimeFailure, gone, lambda: group.allreduce([x]))
raises(weft.RuntimeFailure, gone, lambda: group.barrier())
raises(weft.RuntimeFailure, gone, lambda: group.send([x], 1 - R, 0))
raises(weft.RuntimeFailure, gone, lambda: group.recv([x], 1 - R, 0))
raises(weft.RuntimeFailure, gone, lambda: dist.isend(x, group=group, group_dst=1 - R))

parts = [dist.new_group([rank]) for rank in range(N)]
outside = parts[1 - R]
assert dist.all_reduce(x, group=outside) is None  # torch warns
raises(weft.InputError, "this process is not in the group", lambda: weft.torch.communicator(outside))
dist.destroy_process_group(outside)

# A block that is left by an exception: what was started in it is over, and the group goes on.
group = dist.new_group()
class Oops(Exception): pass
try:
    with dist._coalescing_manager(group, torch.device("cpu")):
        dist.broadcast(x.fill_(R), 1, group=group)
        raise Oops
except Oops:
    pass
assert (x == 1).all()
for _ in range(3):
    dist.broadcast(x.fill_(R), 1, group=group)
    assert (x == 1).all()
# The group keeps neither the works of that block nor those of later calls.
work = group.broadcast([x])
work.wait()
kept = weakref.ref(work)
del work
gc.collect()
assert kept() is None
dist.destroy_process_group(group)

# The same store serves a second group of all ranks.
store = dist.FileStore(WORDS[0], N)
for _ in range(2):
    dist.destroy_process_group()
    dist.init_process_group(BACKEND, store=store, rank=R, world_size=N)
    works = [dist.isend(x.fill_(R), 1 - R), dist.irecv(torch.ones(10), 1 - R)]
    for work in works:
        work.wait()
"""


def test_a_group_that_was_destroyed_says_so(tmp_path: Path) -> None:
    run_group(tmp_path, 2, AFTERWARDS, str(tmp_path / "store"), own=True)


# Groups over communicators that are there already, of which a part has no list of its processes.
OVER = """
x, whole = torch.ones(10), weft.torch.connect()
part = whole.split(0)
for communicator in (part, whole):
    weft.torch.init_process_group(communicator)
    received = torch.zeros(10)
    works = [dist.isend(x.fill_(R), 1 - R), dist.irecv(received, 1 - R)]
    work = dist.all_reduce(x.clone(), async_op=True)
    waiting = dist.irecv(received, 1 - R)
    dist.destroy_process_group()
    for one in (*works, work):
        one.wait()
    try:
        waiting.wait()
    except weft.PeerLost as error:
        assert error.rank == 1 - R
    else:
        raise AssertionError
dist.init_process_group(BACKEND, store=dist.FileStore(WORDS[0], N), rank=R, world_size=N)
"""


def test_a_group_over_a_communicator_that_is_there_ends_like_any_other(tmp_path: Path) -> None:
    run_group(tmp_path, 2, OVER, str(tmp_path / "store"), own=True)


# Rank 0 ends without waiting: its part of the operation reaches the others, who come later.
EXIT = """
import sys
x, y = torch.ones(100_000), torch.full((100_000,), 5.0)
if R == 0:
    dist.send(y, 1)
if R == 1:
    dist.recv(torch.ones(100_000), 0)
dist.barrier()
if R == 0:
    dist.all_reduce(x, async_op=True)
    for other in (1, 2):
        dist.isend(y, other)
    sys.exit(0)
time.sleep(0.5)
dist.all_reduce(x)
assert (x == N).all()
time.sleep(0.5)
y = torch.zeros(100_000)
dist.recv(y, 0)
assert (y == 5).all()
os._exit(0)
"""

# Rank 0 ends by an error while nobody else comes to the operation that it has started.
FAILED = """
dist.barrier()
if R == 0:
    dist.all_reduce(torch.ones(1000), async_op=True)
    dist.irecv(torch.ones(1000), 1)
    print("ends", flush=True)
    raise SystemExit(7)
time.sleep(60)
"""


def test_a_process_that_exits_finishes_what_it_has_started(tmp_path: Path) -> None:
    ended = finish(start_group(tmp_path, 3, PRELUDE + EXIT, "weft", own=True), 60)
    assert [code for code, _ in ended] == [0] * 3, "\n".join(output for _, output in ended)


def test_a_process_that_exits_does_not_wait_for_ever(tmp_path: Path) -> None:
    first, other = start_group(tmp_path, 2, PRELUDE + FAILED, "weft", own=True)
    try:
        ((code, output),) = finish([first], 50)
    finally:
        end(first)
        end(other)
    assert code == 7, output
    assert "they were cancelled" in output


FORKED = """
import multiprocessing, signal

def raises(call):
    try:
        call()
    except weft.RuntimeFailure as error:
        assert "was forked from a rank" in str(error), error
    else:
        raise AssertionError

x, y = torch.ones(1000), torch.ones(1000)
parts = lambda: [torch.ones(1000) for _ in range(N)]
world, P = dist.group.WORLD, 1 - R
CALLS = {
    "all_reduce": lambda **later: dist.all_reduce(x, **later),
    "reduce": lambda **later: dist.reduce(x, 0, **later),
    "broadcast": lambda **later: dist.broadcast(x, 0, **later),
    "all_gather": lambda **later: dist.all_gather(parts(), x, **later),
    "all_gather_into_tensor": lambda **later: dist.all_gather_into_tensor(torch.ones(1000 * N), x, **later),
    "reduce_scatter": lambda **later: dist.reduce_scatter(x, parts(), **later),
    "reduce_scatter_tensor": lambda **later: dist.reduce_scatter_tensor(x, torch.ones(1000 * N), **later),
    "gather": lambda **later: dist.gather(x, parts() if R == 0 else None, 0, **later),
    "scatter": lambda **later: dist.scatter(x, parts() if R == 0 else None, 0, **later),
    "all_to_all": lambda **later: dist.all_to_all(parts(), parts(), **later),
    "all_to_all_single": lambda **later: dist.all_to_all_single(x, y, **later),
    "barrier": lambda **later: dist.barrier(**later),
}

def child(pending, over):
    signal.alarm(30)
    for call in CALLS.values():
        raises(call)
        raises(lambda: call(async_op=True))
    for message in (dist.send, dist.isend, dist.recv, dist.irecv):
        raises(lambda: message(x, P))
    raises(pending.wait)
    raises(pending.get_future)
    assert over.wait()
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    torch.optim.SGD([weight], lr=1.0).step()
    assert weight.tolist() == [0.0, 0.0]
    dist.destroy_process_group()
    dist.init_process_group("weft", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(weight.data)
    dist.destroy_process_group()

works = [dist.isend(x, P), dist.irecv(y, P)]
for work in works:
    work.wait()
dist.barrier()
over = dist.all_reduce(x, async_op=True)
over.wait()
pending = dist.irecv(y, P, tag=3)
process = multiprocessing.get_context("fork").Process(target=child, args=(pending, over))
process.start()
process.join(60)
assert process.exitcode == 0, process.exitcode
if os.fork() == 0:
    sys.exit(0)  # with all that runs at an exit
os.wait()
dist.send(torch.full((1000,), float(R)), P, tag=3)
pending.wait()
assert (y == P).all()
for call in CALLS.values():
    call()
"""


def test_a_forked_child_is_refused_at_once_and_its_parent_goes_on(tmp_path: Path) -> None:
    run_group(tmp_path, 2, FORKED, own=True)


# The store answers shortly after it was given up, while torch and Python are being taken down.
GIVEN_UP = """
from datetime import timedelta
from torch.distributed import TCPStore
from weft.runtime.foreign_calls import call_within

store = TCPStore("127.0.0.1", 0, 1, is_master=True)
try:
    call_within(0.0, "weft store", lambda: store.wait(["never"], timedelta(seconds=2.1)))
except TimeoutError:
    print("given up")
"""


def test_a_process_that_ends_is_not_aborted_by_a_store_that_answers_late() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", GIVEN_UP], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr[-500:]
    assert ended.stdout == "given up\n"
