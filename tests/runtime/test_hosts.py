"""Jobs that span hosts: memory within each, sockets between them, and losses that all ranks name alike."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime.test_communicator import DIFFERENT, EVERYTHING
from support.hosts import Network, ip, make_network
from support.jobs import end, finish

JOBS = Path(__file__).with_name("jobs")

pytestmark = pytest.mark.namespaces

PER_HOST = 2


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with make_network(3) as made:
        yield made


@pytest.fixture
def fresh_network() -> Iterator[Network]:
    """One that the test may damage."""
    with make_network(3) as made:
        yield made


@pytest.mark.parametrize("amount", ["few", pytest.param("every", marks=pytest.mark.slow)])
def test_every_algorithm_is_exact_over_memory_and_network_together(
    network: Network, tmp_path: Path, amount: str
) -> None:
    for code, output in finish(network.start(tmp_path, PER_HOST, EVERYTHING, "auto", amount), 300):
        assert code == 0, output


MEMBERS = JOBS / "hosts_members.py"

WRONG_INTERFACE = JOBS / "hosts_wrong_interface.py"


def test_an_interface_of_another_host_is_refused(network: Network, tmp_path: Path) -> None:
    elsewhere = {"WEFT_INTERFACE": "10.213.0.77"}
    for _, output in finish(network.start(tmp_path, 1, WRONG_INTERFACE, variables=elsewhere)):
        assert "WEFT_INTERFACE: 10.213.0.77: Cannot assign requested address" in output


@pytest.mark.parametrize("said", [{}, {"WEFT_INTERFACE": ""}], ids=["interface", "none"])
def test_only_ranks_of_other_hosts_are_reached_over_the_network(
    network: Network, tmp_path: Path, said: dict[str, str]
) -> None:
    ranks = network.start(tmp_path, PER_HOST, MEMBERS, variables=said)
    found = [output.strip() for _, output in finish(ranks)]
    assert found == [
        "[2, 3, 4, 5] [1, 2, 3, 4, 5]",
        "[2, 3, 4, 5] [0]",
        "[0, 1, 4, 5] [0]",
        "[0, 1, 4, 5] [0]",
        "[0, 1, 2, 3] [0]",
        "[0, 1, 2, 3] [0]",
    ]


LOST = JOBS / "hosts_lost.py"


def await_ready(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"


def others(processes: list[subprocess.Popen[str]], gone: set[int]) -> list[tuple[int, list[str]]]:
    """Exit code and words of all but some ranks, with less time than an operation's own deadline."""
    found = finish([process for rank, process in enumerate(processes) if rank not in gone], 80)
    return [(code, output.split()) for code, output in found]


def test_when_a_cable_is_cut_each_side_names_the_other(fresh_network: Network, tmp_path: Path) -> None:
    ranks = fresh_network.start(tmp_path, PER_HOST, LOST, "ring")
    try:
        await_ready(ranks)
        fresh_network.unplug(1)
        found = others(ranks, set())
        assert [code for code, _ in found] == [7] * len(ranks)
        named = [words[1] for _, words in found]
        assert named[2:4] == ["0", "0"], found
        assert named[0] in ("2", "3"), found
        assert set(named[:2] + named[4:]) == {named[0]}, found
    finally:
        for process in ranks:
            end(process)


def test_a_rank_that_calls_something_else_is_named_on_every_host(network: Network, tmp_path: Path) -> None:
    # Directly, so that everybody meets it: across hosts, who does not only sees others hang up.
    for code, output in finish(network.start(tmp_path, PER_HOST, DIFFERENT, "auto", "size", "direct")):
        assert code == 9, output


@pytest.mark.parametrize("what", ["desync", "late"])
def test_an_odd_rank_is_named_also_by_those_that_do_not_talk_to_it(
    network: Network, tmp_path: Path, what: str
) -> None:
    ranks = network.start(tmp_path, PER_HOST, JOBS / "odd_rank.py", what, stdin=subprocess.PIPE)
    try:
        said = []
        for rank in ranks:
            assert rank.stdout is not None
            said.append(json.loads(rank.stdout.readline()))
    finally:
        for rank in ranks:
            end(rank)
    (kind, _, text), expected = said.pop(2), "DesyncError" if what == "desync" else "TimedOut"
    assert said == [[expected, [2], one[2]] for one in said]
    assert kind == ("DesyncError" if what == "desync" else "RuntimeFailure")
    assert what == "desync" or "gave up waiting for this rank, 2" in text


def test_a_network_leaves_nothing_behind() -> None:
    with make_network(1) as network:
        assert network.host(0) in ip("netns", "list")
    assert network.name not in ip("netns", "list")
