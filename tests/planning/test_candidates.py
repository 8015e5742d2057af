"""What a plan chooses from: all of the registry, verified, in a sensible order."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from weft.algorithms import registry
from weft.algorithms.registry import ALGORITHMS, Algorithm, Refusal
from weft.errors import InputError, VerificationError
from weft.planning.candidates import PROMPT, Candidate, Recipe, build, list_recipes
from weft.schedule import COLLECTIVES, Schedule
from weft.topology import load_topology


@pytest.mark.parametrize("line", ALGORITHMS.values(), ids=lambda line: line.name)
def test_every_declared_variant_is_taken_by_some_collective(line: Algorithm) -> None:
    module = import_module(f"weft.algorithms.{line.name}")
    for options in getattr(module, "VARIANTS", ()):
        assert options, "the default needs no mention"
        taken = [set(inspect.signature(getattr(module, name)).parameters) for name in line.collectives]
        assert any(parameters.issuperset(options) for parameters in taken), options


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_algorithm_of_a_collective_is_tried(collective: str) -> None:
    recipes = list_recipes(collective)
    assert {recipe.algorithm.name for recipe in recipes} == {
        line.name for line in registry.for_collective(collective) if not line.yardstick
    }
    labels = [recipe.label for recipe in recipes]
    assert len(set(labels)) == len(labels)


def test_what_is_quick_and_serves_any_network_comes_first() -> None:
    names = [recipe.label for recipe in list_recipes("all_reduce")]
    assert tuple(names[: len(PROMPT)]) == PROMPT


def test_what_was_good_before_comes_before_everything() -> None:
    names = [recipe.label for recipe in list_recipes("all_reduce", first=["bucket (halfway=True)", "swing"])]
    assert names[:3] == ["bucket (halfway=True)", "swing", PROMPT[0]]


def test_names_restrict_the_choice_and_unknown_ones_are_refused() -> None:
    found = list_recipes("all_reduce", ["ring", "bucket"])
    assert {recipe.algorithm.name for recipe in found} == {"ring", "bucket"}
    with pytest.raises(InputError, match="did you mean ring"):
        list_recipes("all_reduce", ["rign"])
    with pytest.raises(InputError, match=r"ring2d: no broadcast there; it is offered by .*ring"):
        list_recipes("broadcast", ["ring2d"])
    with pytest.raises(InputError, match="collective 'gossip' is unknown"):
        list_recipes("gossip")


def test_a_recipe_that_does_not_apply_gives_its_reason() -> None:
    found = build(Recipe(registry.find("swing"), {}), load_topology("ring:6"), "all_reduce", 0)
    assert found == Refusal("swing", "needs a power of two ranks, there are 6")


def test_options_reach_the_algorithm() -> None:
    found = build(
        Recipe(registry.find("multitree"), {"trees_per_root": 2}), load_topology("ring:4"), "all_gather", 0
    )
    assert isinstance(found, Candidate)
    assert found.label == "multitree (trees_per_root=2)"
    assert found.schedule.chunks == 8


def test_a_wrong_schedule_is_an_error_that_names_the_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = registry.find("ring").build(load_topology("ring:4"), "all_reduce")
    rows = ("step", "chunk", "src", "dst", "op", "route")
    short = replace(whole, **{name: getattr(whole, name)[:-1] for name in rows})

    def lose_a_row(*_: Any, **__: Any) -> Schedule:
        return short

    monkeypatch.setattr("weft.algorithms.ring.all_reduce", lose_a_row)
    with pytest.raises(VerificationError, match="ring on ring:4 made a wrong schedule") as caught:
        build(Recipe(registry.find("ring"), {}), load_topology("ring:4"), "all_reduce", 0)
    assert caught.value.check == "semantics"
    assert caught.value.rank is not None
