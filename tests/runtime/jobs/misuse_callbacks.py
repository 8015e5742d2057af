"""Callbacks may wait for operations and close.

A callback may wait for operations, also for one that another callback completes, and may close.

Run by tests/runtime/test_misuse.py.
"""

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
