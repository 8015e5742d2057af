"""Bounds of what is built, lowered for some work: what is too large is refused before a cable is drawn."""

from __future__ import annotations

import threading

import pytest

import weft
from weft.topology.cable_notes import CableNotes
from weft.topology.kinds import KINDS
from weft.topology.size_bounds import SizeBounds, lowered_bounds


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_heeds_lower_bounds(kind: str) -> None:
    spec = f"{kind}:{KINDS[kind].example}"
    whole = weft.load_topology(spec)
    for bounds in (SizeBounds(ranks=whole.ranks - 1), SizeBounds(links=whole.links - 1)):
        with lowered_bounds(bounds), pytest.raises(weft.LimitError, match="is more than"):
            weft.load_topology(spec)
    with lowered_bounds(SizeBounds(ranks=whole.ranks)):
        assert weft.load_topology(spec) == whole


def test_a_spec_beyond_them_is_refused_before_a_cable_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CableNotes, "link", lambda *_, **__: pytest.fail("a link was drawn"))
    with (
        lowered_bounds(SizeBounds(ranks=100, place="here")),
        pytest.raises(weft.LimitError, match=r"^torus:256x256: ranks here: 65,536 is more than the 100"),
    ):
        weft.load_topology("torus:256x256")


def test_they_hold_in_one_thread_and_until_the_end_of_its_work() -> None:
    found: list[weft.Topology] = []
    with lowered_bounds(SizeBounds(ranks=4)):
        other = threading.Thread(target=lambda: found.append(weft.load_topology("ring:8")))
        other.start()
        other.join()
    assert [one.ranks for one in found] == [8]
    assert weft.load_topology("ring:8").ranks == 8
