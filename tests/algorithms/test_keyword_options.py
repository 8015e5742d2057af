"""Options of algorithms as text: typed by the functions that take them, and refused where they do not fit."""

from __future__ import annotations

import inspect

import pytest

from weft.algorithms import multitree, ring
from weft.algorithms.keyword_options import _READERS, format_options
from weft.algorithms.registry import ALGORITHMS, Algorithm, find
from weft.errors import InputError, UnsupportedError
from weft.topology import load_topology


@pytest.mark.parametrize("line", ALGORITHMS.values(), ids=lambda line: line.name)
def test_every_option_of_every_algorithm_can_be_read(line: Algorithm) -> None:
    for name, parameter in line.options.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert name.endswith("_bytes") or str(parameter.annotation).removesuffix(" | None") in _READERS


@pytest.mark.parametrize("line", ALGORITHMS.values(), ids=lambda line: line.name)
def test_what_the_help_lists_is_read_back_as_the_defaults(line: Algorithm) -> None:
    if not line.options:
        return
    read = dict(find(f"{line.name}:{format_options(line.options)}").given)
    assert read == {name: parameter.default for name, parameter in line.options.items()}


def test_options_reach_the_function() -> None:
    torus = load_topology("torus:4x4")
    by_text = find("multitree:paper_order=true,trees_per_root=2").build(torus, "all_reduce")
    assert by_text.digest == multitree.all_reduce(torus, paper_order=True, trees_per_root=2).digest
    assert by_text.digest != multitree.all_reduce(torus).digest
    order = [0, 2, 1, 3]
    by_text = find("ring:order=0-2-1-3").build(load_topology("switch:4"), "all_reduce")
    assert by_text.digest == ring.all_reduce(load_topology("switch:4"), order=order).digest


def test_a_name_with_options_is_one_spelling() -> None:
    assert find("multitree: paper_order = TRUE , trees_per_root=2").name == (
        "multitree:paper_order=true,trees_per_root=2"
    )
    assert dict(find("forest:size_bytes=1MiB,trees=none").given) == {"size_bytes": 1 << 20, "trees": None}


def test_options_that_were_given_leave_no_variants() -> None:
    assert find("multitree:paper_order=false").variants("all_reduce") == [{}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("multitre:paper_order=true", "did you mean multitree"),
        ("multitree:", "expected NAME=VALUE, such as multitree:trees_per_root=1"),
        ("multitree:paper_order", "expected NAME=VALUE"),
        ("multitree:paper_order=true,,", "expected NAME=VALUE"),
        ("multitree:order=true", "no option of multitree 'order'; did you mean paper_order"),
        ("multitree:paper_order=yes", "paper_order=yes: expected true or false"),
        ("multitree:trees_per_root=two", "trees_per_root=two: expected a whole number"),
        ("multitree:trees_per_root=-1", "expected a whole number"),
        ("multitree:trees_per_root=" + "9" * 5000, "expected a whole number"),
        ("multitree:paper_order=true,paper_order=true", "given twice"),
        ("forest:size_bytes=much", "much"),
        ("ring:order=0-x", "expected a whole number"),
        ("ring:topology=ring", "no option of ring 'topology'"),
        ("ring2d:root=1", "ring2d has no options"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        find(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_option_of_another_collective_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="reduce_scatter has no option order; all_reduce has it"):
        find("ring:order=0-1-2-3").build(load_topology("ring:4"), "reduce_scatter")
