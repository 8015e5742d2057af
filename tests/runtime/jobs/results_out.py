"""Results go where the caller wants them.

Run by tests/runtime/test_results.py.
"""

import numpy as np
from support.engine_rank import WORDS, begin

import weft

comm = begin(**({"algorithm": WORDS[0]} if WORDS else {}))
R, N = comm.rank, comm.size


def part(rank, elements, dtype):
    return ((np.arange(elements) * 3 + rank) % 7).astype(dtype)


for dtype in ("float32", "int64", "uint8", "int8"):
    for n in (0, 1, 5, 50_000):
        parts = [part(rank, n * N, dtype) for rank in range(N)]
        mine, total = slice(R * n, (R + 1) * n), sum(parts[1:], parts[0].copy())
        given, out = parts[R].copy(), np.zeros((N, n), dtype)
        given.flags.writeable = False
        assert comm.all_reduce(given, out=out) is out
        assert (out.reshape(-1) == total).all() and (given == parts[R]).all(), (dtype, n)
        there = np.zeros(2 * n * N, dtype)[::2]
        comm.all_reduce(np.repeat(parts[R], 2)[::2], out=there, async_op=True).wait()
        assert (there == total).all()
        array = np.append(parts[R], np.zeros(1, dtype))
        comm.all_reduce(array[:-1], out=array[1:])  # an output that has all but one element of the input
        assert (array[1:] == total).all()
        assert (array[:1] == parts[R][:1]).all()
        array = parts[R].copy()
        assert comm.all_reduce(array, out=array) is array and (array == total).all()
        array, out = parts[R].copy(), np.zeros((n, 1), dtype)
        assert comm.reduce_scatter(array, out=out) is out
        assert (out[:, 0] == total[mine]).all() and (array == parts[R]).all(), (dtype, n)
        array.flags.writeable = False
        assert (comm.reduce_scatter(array) == total[mine]).all()
        array = parts[R].copy()
        comm.reduce_scatter(array, out=array[mine])
        assert (array[mine] == total[mine]).all()
        assert (np.delete(array, mine) == np.delete(parts[R], mine)).all()
        array = np.append(parts[R], np.zeros(1, dtype))
        others = slice(mine.start + 1, mine.stop + 1)  # what peers read lies there, but for the own share
        comm.reduce_scatter(array[:-1], out=array[others])
        assert (array[others] == total[mine]).all()
        array = parts[R].copy()
        elsewhere = array[-n:] if R == 0 else array[:n]
        comm.reduce_scatter(array, out=elsewhere)
        assert (elsewhere == total[mine]).all(), (dtype, n)
        apart, there = np.repeat(parts[R], 2)[::2], np.zeros(2 * n, dtype)[::2]
        comm.reduce_scatter(apart, out=there)
        assert (there == total[mine]).all() and (apart == parts[R]).all()
        whole = np.zeros(n * N, dtype)
        whole[mine] = parts[R][:n]
        assert comm.all_gather(whole[mine], out=whole) is whole
        assert (whole == np.concatenate([other[:n] for other in parts])).all()
        whole[:] = 0
        comm.all_gather(parts[R][:n], out=whole)
        assert (whole == np.concatenate([other[:n] for other in parts])).all()
        if comm._chooser.inputs.algorithm != "ring":
            everything = np.concatenate([other[mine] for other in parts])
            assert (comm.all_to_all(parts[R], out=np.zeros(n * N, dtype)) == everything).all()
            array = parts[R].copy()
            assert (comm.all_to_all(array, out=array) == everything).all()
average = comm.all_reduce(np.full(2, R + 1.0), "avg", out=np.zeros(2))
assert (average == (N + 1) / 2).all()
average = comm.reduce_scatter(np.full(2 * N, R + 1.0), "avg", out=np.zeros(2))
assert (average == (N + 1) / 2).all()
for wrong, kind in ((np.zeros(7), weft.InputError), (np.zeros(1, np.float32), TypeError)):
    for call in (comm.all_gather, comm.reduce_scatter, comm.all_reduce):
        try:
            call(np.zeros(N if call == comm.reduce_scatter else 1), out=wrong)
        except kind as error:
            assert "out" in str(error)
        else:
            raise AssertionError(call)
