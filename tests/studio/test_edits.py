"""Edits of clusters and the table of sessions, without a server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import limits
from weft.studio.api_bodies import EditBody, StudioRefusal
from weft.studio.cable_edits import apply_edit
from weft.studio.edit_session import IDLE_S, SessionTable, apply_edits

TORUS = weft.load_topology("torus:4x4")


@given(st.integers(0, TORUS.links - 1), st.floats(0.001, 1))
def test_slowing_a_cable_changes_the_speed_of_its_two_directions_alone(link: int, factor: float) -> None:
    a, b = int(TORUS.link_src[link]), int(TORUS.link_dst[link])
    slow = apply_edit(TORUS, EditBody("slow", str(a), str(b), factor=factor))
    changed = np.flatnonzero(slow.bandwidth != np.floor(TORUS.bandwidth))
    touched = {*TORUS.links_between(a, b), *TORUS.links_between(b, a)}
    assert set(changed.tolist()) <= touched
    assert (slow.bandwidth[list(touched)] <= TORUS.bandwidth[list(touched)]).all()
    assert (slow.latency_ps == TORUS.latency_ps).all()


@given(st.integers(0, 15), st.integers(0, 15))
def test_a_cable_that_is_added_and_cut_again_leaves_the_others(a: int, b: int) -> None:
    if a == b:
        with pytest.raises(weft.TopologyError, match="itself"):
            apply_edit(TORUS, EditBody("add", str(a), str(b), bandwidth="1GB/s", latency="1us"))
        return
    more = apply_edit(TORUS, EditBody("add", str(a), str(b), bandwidth="1GB/s", latency="1us"))
    assert more.links == TORUS.links + 2
    assert (more.link_src[: TORUS.links] == TORUS.link_src).all()
    fewer = apply_edit(more, EditBody("cut", str(a), str(b)))
    parallel = len(TORUS.links_between(a, b))
    assert fewer.links == TORUS.links - 2 * parallel


def test_a_name_is_a_spec_where_a_spec_can_say_the_edits() -> None:
    edits = [EditBody("cut", "0", "1"), EditBody("slow", "2", "3", bandwidth="1GB/s")]
    edited = apply_edits(TORUS, edits)
    assert edited.name == "torus:4x4+fail=0-1+speed=2-3:1GB/s"
    assert edited == weft.load_topology(edited.name)
    more = [*edits, EditBody("slow", "4", "5", factor=0.5)]
    assert apply_edits(TORUS, more).name == "torus:4x4 with 3 edits"


@pytest.mark.parametrize("name", ["torus:4x4 with 1 edit", "torus:4x4", "torus:8x8", "fullmesh:1000", "a:b"])
def test_a_name_is_no_spec_where_the_cluster_is_not_the_one_that_it_describes(name: str) -> None:
    """As in a file that was saved from the studio, or whose speeds were changed and not its name."""
    slower = replace(TORUS, name=name, bandwidth=TORUS.bandwidth // 2)
    assert apply_edits(slower, [EditBody("cut", "0", "1")]).name == f"{name} with 1 edit"


def test_edits_of_a_cluster_without_some_ranks_have_no_spec_because_ranks_have_other_numbers() -> None:
    without = weft.load_topology("torus:4x4+fail=rank:0")
    edited = apply_edits(without, [EditBody("cut", "0", "1")])
    assert edited.name == "torus:4x4+fail=rank:0 with 1 edit"
    whole = weft.load_topology("torus:4x4+fail=5-6")
    again = apply_edits(whole, [EditBody("cut", "0", "1")])
    assert again == weft.load_topology(again.name)


def test_edits_are_bounded() -> None:
    edits = [EditBody("slow", "0", "1", factor=0.999)] * (limits.MAX_STUDIO_EDITS + 1)
    with pytest.raises(weft.LimitError, match="edits"):
        apply_edits(TORUS, edits)


def test_a_cut_that_divides_the_cluster_is_refused() -> None:
    with pytest.raises(weft.DisconnectedError):
        apply_edits(weft.load_topology("switch:4"), [EditBody("cut", "0", "s0")])


def test_idle_sessions_are_dropped_and_give_way_to_new_ones() -> None:
    now = [0.0]
    table = SessionTable(clock=lambda: now[0])
    first = table.open(TORUS)
    for _ in range(limits.MAX_STUDIO_SESSIONS - 1):
        now[0] += 1
        table.open(TORUS)
    with pytest.raises(StudioRefusal, match="the most"):
        table.open(TORUS)
    now[0] += 60
    assert table.find(first.key) is first  # being asked for is use
    table.open(TORUS)
    assert len(table) == limits.MAX_STUDIO_SESSIONS
    assert table.find(first.key) is first
    now[0] += IDLE_S
    table.drop_idle(IDLE_S)
    assert len(table) == 0
    with pytest.raises(StudioRefusal, match="no such session"):
        table.find(first.key)
