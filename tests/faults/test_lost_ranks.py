"""A rank is killed, frozen or slow in some phase of a job: what all others then do.

A selection of what benchmarks/runtime/faults.py goes through: each phase once, and each way once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.faults import Fault, Nursery, Outcome, Setting, run
from support.hosts import Network

KILL_S = 10.0
"""Far more than it takes, because tests run on busy machines; the benchmark has the figures."""


@pytest.mark.parametrize(
    ("way", "ranks", "victim", "phase"),
    [
        ("tcp", 2, 1, "learn"),
        ("memory", 4, 0, "reduce"),
        ("copy", 3, 2, "reduce"),
        ("tcp", 4, 3, "reduce"),
        ("memory", 4, 1, "between"),
        ("tcp", 3, 0, "gather"),
        ("copy", 2, 0, "gather"),
        ("tcp", 4, 1, "idle"),
        ("memory", 3, 1, "close"),
        ("tcp", 4, 2, "admitted"),
    ],
)
def test_a_killed_rank_is_named_by_all_others_and_leaves_nothing(
    nursery: Nursery, way: str, ranks: int, victim: int, phase: str
) -> None:
    check_kill(run(Setting(way, ranks), Fault.kill(victim).during(phase), nursery))


@pytest.mark.namespaces
@pytest.mark.parametrize(("victim", "phase"), [(0, "reduce"), (3, "gather"), (2, "idle")])
def test_a_killed_rank_is_named_on_every_host(
    nursery: Nursery, network: Network, victim: int, phase: str
) -> None:
    check_kill(run(Setting("hosts", 4), Fault.kill(victim).during(phase), nursery, network=network))


@pytest.mark.parametrize(
    ("way", "ranks", "victim", "phase"),
    [
        ("torch", 3, 0, "reduce"),
        pytest.param("torch", 4, 0, "reduce", marks=pytest.mark.slow),
        pytest.param("torch", 3, 2, "idle", marks=pytest.mark.slow),
        pytest.param("torch", 3, 1, "connect", marks=pytest.mark.slow),
        ("group", 3, 1, "gather"),
        ("group", 2, 0, "learn"),
        ("group", 3, 2, "admitted"),
        pytest.param("group", 4, 3, "admitted", marks=pytest.mark.slow),
    ],
)
def test_a_killed_rank_is_named_by_all_others_in_torch(
    torch_nursery: Nursery, way: str, ranks: int, victim: int, phase: str
) -> None:
    check_kill(run(Setting(way, ranks), Fault.kill(victim).during(phase), torch_nursery))


def test_a_killed_rank_ends_the_job_and_is_named_under_mpirun() -> None:
    outcome = run(Setting("mpi", 3), Fault.kill(1).during("reduce"))
    assert outcome.gone_after is not None, outcome.output
    assert f"rank 1 with PID {outcome.fact(1, 'pid')}" in " ".join(outcome.output.split())
    assert outcome.left == []


@pytest.mark.namespaces
def test_a_frozen_rank_is_named_by_all_others_and_harms_nobody_when_it_goes_on(
    nursery: Nursery, network: Network
) -> None:
    cases = [
        (Setting("memory", 3), Fault.freeze(2).during("reduce"), None),
        (Setting("copy", 2), Fault.freeze(1).during("idle").then_thaw(), None),
        (Setting("tcp", 3), Fault.freeze(0).during("between").then_thaw(), None),
        (Setting("hosts", 4), Fault.freeze(0).during("idle").then_thaw(), network),
        (Setting("hosts", 4), Fault.freeze(3).during("gather"), network),
    ]
    with ThreadPoolExecutor(len(cases)) as side_by_side:
        running = [
            side_by_side.submit(run, setting, fault, nursery, network=hosts)
            for setting, fault, hosts in cases
        ]
        for outcome in [one.result() for one in running]:
            assert outcome.problems() == [], describe(outcome)


def test_a_frozen_rank_is_named_by_all_others_in_torch(torch_nursery: Nursery) -> None:
    outcome = run(Setting("torch", 3), Fault.freeze(1).during("reduce").then_thaw(), torch_nursery)
    assert outcome.problems() == [], describe(outcome)
    # Found by the watch: what waits out the operation's own deadline raises TimedOut.
    kinds = {(outcome.error(rank) or {}).get("kind") for rank in outcome.survivors}
    assert kinds == {"PeerLost"}, describe(outcome)


def test_a_slow_rank_is_waited_for_and_the_sums_are_right(nursery: Nursery) -> None:
    cases = [
        (Setting("memory", 3), Fault.sleep(1, 6.5).during("between")),
        (Setting("tcp", 2), Fault.sleep(0, 6.5).during("idle")),
        (Setting("memory", 2), Fault.pause(1, 2.0).during("reduce")),
        (Setting("tcp", 3), Fault.pause(2, 2.0).during("gather")),
    ]
    with ThreadPoolExecutor(len(cases)) as side_by_side:
        running = [side_by_side.submit(run, setting, fault, nursery) for setting, fault in cases]
        for outcome in [one.result() for one in running]:
            assert outcome.problems() == [], describe(outcome)
            assert outcome.struck is not None


def check_kill(outcome: Outcome) -> None:
    assert outcome.problems() == [], describe(outcome)
    assert max(outcome.seconds().values(), default=0.0) < KILL_S, describe(outcome)


def describe(outcome: Outcome) -> str:
    return f"{outcome.case}\n{outcome.reports}\n{outcome.output}"
