"""`weft.simulate`: a wrong schedule has a time, and a warning."""

from __future__ import annotations

import inspect
import warnings

import pytest

import weft


def broken_ring() -> weft.Schedule:
    """A ring all-reduce without its last message: one rank does not get one chunk."""
    ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    builder = weft.ScheduleBuilder(ring.topology, "all_reduce", "broken", chunks=ring.chunks)
    kept = slice(0, ring.transfers - 1)
    columns = {name: getattr(ring, name)[kept] for name in ("step", "chunk", "src", "dst", "op")}
    builder.add(**columns)
    return builder.build()


def test_a_wrong_schedule_is_simulated_with_a_warning_that_says_what_is_wrong() -> None:
    broken = broken_ring()
    with pytest.warns(RuntimeWarning, match="not correct: .*rank"):
        assert weft.simulate(broken, "1MiB").seconds > 0


def test_a_correct_schedule_has_the_time_of_the_engine_and_no_warning() -> None:
    ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = weft.simulate(ring, "1MiB")
    assert found.time_ps == weft.simulation.simulate(ring, "1MiB").time_ps


def test_it_has_the_parameters_of_the_function_without_the_check() -> None:
    assert inspect.signature(weft.simulate) == inspect.signature(weft.simulation.simulate)
    assert weft.simulate.__doc__ != weft.simulation.simulate.__doc__
