"""The registry says what the modules do, and the package loads them when they are named."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import weft
from weft import algorithms
from weft.algorithms.registry import ALGORITHMS, Algorithm, find, for_collective
from weft.errors import InputError, UnsupportedError
from weft.schedule import COLLECTIVES
from weft.topology import load_topology


def public_functions(name: str) -> set[str]:
    module = import_module(f"weft.algorithms.{name}")
    functions = inspect.getmembers(module, inspect.isfunction)
    return {
        key for key, value in functions if value.__module__ == module.__name__ and not key.startswith("_")
    }


@pytest.mark.parametrize("line", ALGORITHMS.values(), ids=lambda line: line.name)
def test_a_line_names_exactly_the_functions_of_its_module(line: Algorithm) -> None:
    assert public_functions(line.name) == set(line.collectives)
    assert len(set(line.collectives)) == len(line.collectives)
    assert set(line.collectives) <= set(COLLECTIVES)


@pytest.mark.parametrize("line", ALGORITHMS.values(), ids=lambda line: line.name)
def test_every_function_takes_a_root_if_and_only_if_its_collective_has_one(line: Algorithm) -> None:
    module = import_module(f"weft.algorithms.{line.name}")
    for collective in line.collectives:
        parameters = inspect.signature(getattr(module, collective)).parameters
        assert ("root" in parameters) == (collective in ("broadcast", "reduce"))
        required = [name for name, value in parameters.items() if value.default is value.empty]
        assert required == ["topology"]


def test_keys_are_names_and_summaries_are_one_short_line() -> None:
    for name, line in ALGORITHMS.items():
        assert name == line.name
        assert 10 < len(line.summary) < 80
        assert "\n" not in line.summary


@pytest.mark.parametrize("line", ALGORITHMS.values(), ids=lambda line: line.name)
def test_build_makes_the_collective_that_was_asked_for(line: Algorithm) -> None:
    picky = dict.fromkeys(("hierarchical", "nccl_ring", "nccl_tree"), "hosts:4,4")
    picky |= {"hdrm": "bigraph:2,4", "rccl_ring": "mi300x:1"}
    topology = load_topology(picky.get(line.name, "torus:4x4"))
    for collective in line.collectives:
        schedule = line.build(topology, collective, root=3)
        assert (schedule.collective, schedule.algorithm) == (collective, line.name)
        if collective == "broadcast":
            assert set(schedule.source.tolist()) == {3}
        if collective == "reduce":
            assert set(schedule.target.tolist()) == {3}


def test_build_refuses_a_collective_that_the_algorithm_lacks() -> None:
    with pytest.raises(
        UnsupportedError, match=r"ring2d: has no broadcast, only all_reduce; .*offered by ring"
    ):
        find("ring2d").build(load_topology("torus:4x4"), "broadcast")
    with pytest.raises(UnsupportedError, match="ring: has no gossip"):
        find("ring").build(load_topology("torus:4x4"), "gossip")


def test_find_names_close_matches() -> None:
    assert find("swing").name == "swing"
    with pytest.raises(InputError, match=r"no algorithm 'rign'; did you mean ring"):
        find("rign")
    with pytest.raises(InputError, match=r"no algorithm 'xyz'.*known: ring, "):
        find("xyz")


def test_for_collective_keeps_the_order_of_the_registry() -> None:
    names = [line.name for line in for_collective("all_reduce")]
    assert names == [name for name in ALGORITHMS if "all_reduce" in ALGORITHMS[name].collectives]
    assert for_collective("gossip") == []


def test_algorithms_are_reached_through_the_package() -> None:
    assert weft.algorithms.ring.all_reduce(load_topology("ring:3")).steps == 4
    assert set(ALGORITHMS) <= set(dir(algorithms))
    for name in dir(algorithms):
        assert getattr(algorithms, name).__name__ == f"weft.algorithms.{name}"
    with pytest.raises(AttributeError, match="no attribute 'rign'"):
        _ = algorithms.rign


def test_naming_the_package_loads_no_algorithm() -> None:
    code = "import weft, sys; weft.algorithms.registry.find('ring')"
    code += "; print('weft.algorithms.ring' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
