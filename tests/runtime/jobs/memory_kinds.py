"""Every collective on every mix of memory kinds: some ranks' arrays are shared, others' private or strided.

Usage: memory_kinds.py TRANSPORT ALGORITHM ROUNDS. Which way bytes take between two ranks of a machine depends
on where both arrays lie and on their size, so every mix is tried around each size at which the way changes.
Prints the number of cases; a wrong element or a wait that does not end fails the job.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

import weft
from weft.algorithms import registry

KINDS = "sp/"  # shared memory (Communicator.empty), private, private and strided
THRESHOLDS = (16 << 10, 64 << 10, 256 << 10)  # bytes
ELEMENTS = (0, 1, 1_000_003, *(size // 4 + step for size in THRESHOLDS for step in (-1, 0, 1)))
WAIT_S = 20.0


def make(comm: weft.Communicator, kind: str, elements: int) -> Any:
    """Array of one kind."""
    if kind == "s":
        return comm.empty(elements, np.float32)
    if kind == "p":
        return np.empty(elements, np.float32)
    return np.empty((elements, 2), np.float32)[:, 0]


def mixes(ranks: int) -> list[str]:
    """Kinds by rank: all of them for two ranks, for more each kind alone among the two others."""
    if ranks == 2:
        return ["".join(mix) for mix in itertools.product(KINDS, repeat=2)]
    found = {"".join(mix) for mix in itertools.product("sp", repeat=ranks)}
    for odd, usual in itertools.permutations(KINDS, 2):
        found |= {usual * place + odd + usual * (ranks - place - 1) for place in range(ranks)}
    return sorted(found)


def values(rank: int, elements: int) -> Any:
    """What a rank gives: whole numbers, so that sums are exact in any order."""
    return ((np.arange(elements) * 7 + rank * 1013) % 251).astype(np.float32)


def check(comm: weft.Communicator, kind: str, elements: int, collectives: tuple[str, ...]) -> int:
    """One round of every collective that the algorithm has; how many there were."""
    rank, size = comm.rank, comm.size
    every = [values(other, elements) for other in range(size)]
    total = sum(every)
    array, other = make(comm, kind, elements), make(comm, kind, elements)

    array[...] = every[rank]
    comm.all_reduce(array, timeout=WAIT_S)
    assert np.array_equal(array, total), "all_reduce"

    for out in (make(comm, KINDS[(KINDS.index(kind) + 1) % len(KINDS)], elements), other):
        array[...] = every[rank]
        assert comm.all_reduce(array, out=out, timeout=WAIT_S) is out
        assert np.array_equal(out, total), "all_reduce elsewhere"
        assert np.array_equal(array, every[rank]), "the input of an all_reduce elsewhere"

    array[...] = every[rank]
    comm.reduce(array, size - 1, timeout=WAIT_S)
    assert np.array_equal(array, total if rank == size - 1 else every[rank]), "reduce"

    array[...] = every[rank]
    comm.broadcast(array, size - 1, timeout=WAIT_S)
    assert np.array_equal(array, every[-1]), "broadcast"

    array[...] = every[rank]
    share = np.array_split(total, size)[rank]
    assert np.array_equal(comm.reduce_scatter(array, timeout=WAIT_S), share), "reduce_scatter"

    whole = make(comm, kind, elements * size)
    comm.all_gather(array, out=whole, timeout=WAIT_S)
    assert np.array_equal(whole, np.concatenate(every)), "all_gather"

    if "all_to_all" in collectives:
        part = elements // size
        result = make(comm, kind, part * size)
        comm.all_to_all(array[: part * size], out=result, timeout=WAIT_S)
        sent = [one[rank * part : (rank + 1) * part] for one in every]
        assert np.array_equal(result, np.concatenate(sent)), "all_to_all"

    comm.send_recv(array, (rank + 1) % size, other, (rank - 1) % size, timeout=WAIT_S)
    assert np.array_equal(other, every[rank - 1]), "send_recv"

    halves = comm.halves(elements)
    halves.reduce(array, timeout=WAIT_S)
    assert np.array_equal(array[halves.mine], total[halves.mine]), "first half"
    halves.gather(array, timeout=WAIT_S)
    assert np.array_equal(array, total), "second half"
    return 10 + ("all_to_all" in collectives)


def main() -> None:
    """Try every mix at every size."""
    transport, algorithm, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    collectives = registry.find(algorithm or "direct").collectives
    cases = 0
    with weft.init(transport=transport, algorithm=algorithm or None, timeout=WAIT_S) as comm:
        for _ in range(rounds):
            for mix in mixes(comm.size):
                for elements in ELEMENTS:
                    try:
                        cases += check(comm, mix[comm.rank], elements, collectives)
                    except Exception as error:
                        error.add_note(f"mix {mix}, {elements} elements, {transport} {algorithm}")
                        raise
        if comm.rank == 0:
            print(cases)


if __name__ == "__main__":
    main()
