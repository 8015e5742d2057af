"""Operations under way, as torch and its users hold them: futures and their callbacks."""

from __future__ import annotations

from pathlib import Path

from support.groups import run_group

# A callback waits for a collective, whose future is completed by a callback that waits for a third.
CALLBACKS = """
def reduced(value, then=lambda _: None):
    work = dist.all_reduce(torch.full((3,), value), async_op=True)
    return work.get_future().then(lambda future: (future.value()[0].clone(), then(future)))

inner = lambda _: reduced(2.0, lambda _: reduced(3.0).wait()).wait()
first, second = reduced(1.0, inner).wait()
assert first.tolist() == [N] * 3, first
assert second[0].tolist() == [2.0 * N] * 3 and second[1][0].tolist() == [3.0 * N] * 3, second

# The same for messages, whose futures are completed by the threads of their connections.
other = 1 - R
box = torch.zeros(1)
got = dist.irecv(box, other).get_future()
more = torch.zeros(1)
after = got.then(lambda _: (dist.irecv(more, other).wait(), more.clone()))
dist.send(torch.ones(1) * R, other)
dist.send(torch.ones(1) * (R + 10), other)
assert after.wait()[1].item() == other + 10 and box.item() == other

# A future is complete when a wait for the work has returned.
for _ in range(200):
    work = dist.all_reduce(torch.ones(2), async_op=True)
    future = work.get_future()
    work.wait()
    assert future.done() and future.value()[0].tolist() == [N] * 2
"""


# A group that is destroyed gives up a callback that does not return, and says whose it is. Rank 1 comes when
# rank 0 has its callback: torch calls one at once, in the thread that adds it, where the future is complete
# already.
STUCK = """
import threading, warnings
import weft.runtime.handles
from torch.distributed import distributed_c10d

weft.runtime.handles._CALLBACKS_WITHIN_S = 0.5
begun, release = threading.Event(), threading.Event()
def hold(future):
    begun.set()
    return release.wait(60)

group = dist.new_group()
store = distributed_c10d._get_default_store()
if R == 0:
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    held = work.get_future().then(hold)
    store.set("callback added", "")
    assert begun.wait(30)
else:
    store.wait(["callback added"])
    dist.all_reduce(torch.ones(2), group=group)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.destroy_process_group(group)
found = [str(one.message) for one in caught]
assert R or any("callbacks of all_reduce have not returned after 0.5 s" in text for text in found), found
release.set()
assert R or held.wait() is True
"""


def test_a_group_that_is_destroyed_names_the_operation_of_a_callback_that_hangs(tmp_path: Path) -> None:
    run_group(tmp_path, 2, STUCK, timeout=60)


def test_callbacks_may_wait_for_collectives_and_messages(tmp_path: Path) -> None:
    run_group(tmp_path, 2, CALLBACKS, timeout=60)


# A callback that waits for what the main thread does next holds up nothing but itself.
ELSEWHERE = """
import threading
from torch.distributed import distributed_c10d

begun, go = threading.Event(), threading.Event()
def hold(future):
    begun.set()
    return go.wait(30)

store = distributed_c10d._get_default_store()
if R == 0:
    work = dist.all_reduce(torch.ones(2), async_op=True)
    held = work.get_future().then(hold)
    store.set("callback added", "")
    assert begun.wait(30)
    assert work.get_future().done() and work.wait()
else:
    store.wait(["callback added"])
    dist.all_reduce(torch.ones(2))
dist.all_reduce(torch.ones(2))
go.set()
assert R or held.wait() is True
"""


def test_a_callback_that_takes_long_holds_up_nothing_else(tmp_path: Path) -> None:
    run_group(tmp_path, 2, ELSEWHERE, timeout=60)
