"""Which GPUs a shared cloud hands out: how many of each host, by chance and a rule.

A cloud has equal hosts, and others were there first. Their jobs are small and lie where there was room, so
what is free is uneven, and so is what a new job gets. Nothing here knows about networks: the result is a
count for each host, and `weft.topology.kinds` wires it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import InputError, check_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RULES: Final = ("packed", "random")
"""``packed``: hosts with the most free GPUs first. ``random``: each free GPU is as likely as any other."""


def _chance(what: str, seed: int) -> Callable[[int], int]:
    """A function that draws one of 0 to count - 1, the same for a seed everywhere.

    Only `random()` is promised to stay so.
    """
    # What others take and what is left to us should not hang together.
    source = random.Random(f"{what} {seed}")  # noqa: S311  no secret hangs on it
    return lambda count: int(source.random() * count)


def draw_free(hosts: int, gpus: int, taken: int, seed: int) -> tuple[int, ...]:
    """GPUs that others left free on each host.

    Others have jobs of 1, 2, 4 .. GPUs, at most a host's, each size as likely; a job lies on one host, any of
    those that have room for it. Jobs come until exactly `taken` GPUs are.

    Parameters
    ----------
    hosts, gpus
        How many hosts, and GPUs of each.
    taken
        GPUs of others, all hosts together.
    seed
        The same seed takes the same.

    Raises
    ------
    InputError
        If there is nothing, or more is taken than there is.

    Examples
    --------
    >>> draw_free(6, 8, 24, seed=1)
    (4, 5, 8, 0, 2, 5)
    """
    if hosts < 1 or gpus < 1:
        msg = f"a cloud of {hosts} hosts with {gpus} GPUs each has nothing to give; both must be at least 1"
        raise InputError(msg)
    limits.check("GPUs of the cloud", hosts * gpus, limits.MAX_CLOUD_GPUS)
    limits.check("seed of a placement", seed, limits.MAX_SEED)
    if seed < 0:
        raise InputError(f"seed {seed} of a placement must be at least 0")
    if not 0 <= taken <= hosts * gpus:
        raise InputError(f"{taken} GPUs are taken, but there are {hosts * gpus}; give 0 to {hosts * gpus}")
    below, free = _chance("others", seed), [gpus] * hosts
    while taken:
        most = min(taken, max(free))
        size = 1 << below(most.bit_length())
        roomy = [host for host, room in enumerate(free) if room >= size]
        free[roomy[below(len(roomy))]] -= size
        taken -= size
    return tuple(free)


def place(free: Sequence[int], wanted: int, rule: str = "packed", seed: int = 0) -> tuple[int, ...]:
    """GPUs that each host gives to a job that asks for `wanted` of them.

    Parameters
    ----------
    free
        GPUs that are free on each host.
    wanted
        How many are asked for.
    rule
        One of `RULES`.
    seed
        For ``random``.

    Raises
    ------
    InputError
        If there are not so many, or the rule is unknown.

    Examples
    --------
    >>> place((4, 5, 8, 0, 2, 5), 16)
    (0, 5, 8, 0, 0, 3)
    >>> place((4, 5, 8, 0, 2, 5), 16, "random", seed=1)
    (4, 3, 3, 0, 2, 4)
    """
    check_choice("rule", rule, RULES)
    if min(free, default=0) < 0:
        raise InputError(f"{min(free)} GPUs are free on a host; there are 0 at least")
    if wanted < 1 or wanted > sum(free):
        raise InputError(f"{wanted} GPUs are asked for, and {sum(free)} are free; ask for 1 to {sum(free)}")
    given = [0] * len(free)
    if rule == "packed":
        for host in sorted(range(len(free)), key=lambda host: -free[host]):
            given[host] = min(free[host], wanted)
            wanted -= given[host]
        return tuple(given)
    below = _chance("ours", seed)
    left = [host for host, room in enumerate(free) for _ in range(room)]
    for _ in range(wanted):
        given[left.pop(below(len(left)))] += 1
    return tuple(given)


def draw_placement(
    hosts: int, gpus: int, wanted: int, *, taken: int, rule: str = "packed", seed: int = 0
) -> tuple[int, ...]:
    """GPUs that each host of a partly taken cloud gives to a new job; parameters as above.

    Examples
    --------
    >>> draw_placement(6, 8, 16, taken=24, seed=1)
    (0, 5, 8, 0, 0, 3)
    """
    return place(draw_free(hosts, gpus, taken, seed), wanted, rule, seed)
