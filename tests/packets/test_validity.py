"""Tables that no interface could carry out are refused where they are made, with their place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from weft import limits
from weft.algorithms import ring
from weft.errors import InputError, ScheduleError
from weft.packets import (
    Send,
    TableEntry,
    Tables,
    make_tables,
    simulate_tables,
)
from weft.topology import Topology, load_topology

TABLES = make_tables(ring.all_reduce(load_topology("ring:4")), 400)


def changed(**changes: Any) -> Tables:
    """The ring with another entry 1 of rank 2."""
    ranks = [list(entries) for entries in TABLES.ranks]
    ranks[2][1] = msgspec.structs.replace(ranks[2][1], **changes)
    return replace(TABLES, ranks=tuple(map(tuple, ranks)))


def test_the_ring_itself_is_sound() -> None:
    assert changed() == TABLES


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"op": "copy"}, "'copy' is no operation"),
        ({"flow": -1}, "flow is -1"),
        ({"flow": limits.MAX_CHUNKS}, "flow is"),
        ({"step": 7}, "step is 7, expected a number from 0 to 6"),
        ({"step": True}, "step is a bool"),
        ({"address": 401}, "address is 401"),
        ({"address": 301}, "size is 100, expected a number from 0 to 99"),
        ({"size_bytes": -1}, "size is -1"),
        ({"size_bytes": 1.0}, "size is a float"),
        ({"after": (("reduce", 0, 0),)}, "waits for reduce 0 of rank 0, which sends no such message"),
        ({"after": (("reduce", 0, 1), ("reduce", 0, 1))}, "waits for one message twice"),
        ({"sends": (Send(4, 0),)}, "receiver is 4"),
        ({"sends": (Send(2, 0),)}, "rank 2 sends to itself"),
        ({"sends": (Send(3, 1),)}, "port is 1"),
        ({"sends": (Send(3, 0), Send(1, 0))}, "a reduce has one parent, not 2"),
        ({"op": "gather", "sends": ()}, "a gather sends something"),
        ({"sends": (Send(3, 0, ()),)}, "its route ends at 2, not at rank 3"),
        ({"sends": (Send(3, 0, (8,)),)}, "link is 8"),
        ({"sends": (Send(3, 0, (0,)),)}, "its route is at 2, link 0->1 begins elsewhere"),
    ],
)
def test_an_entry_that_cannot_be_is_named(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        changed(**changes)
    assert str(caught.value).startswith("ranks[2][1]: ")
    assert problem in str(caught.value)


def test_steps_must_ascend() -> None:
    with pytest.raises(ScheduleError, match=r"ranks\[2\]\[2\]: step 2 comes after step 5"):
        changed(step=5)


def test_a_message_must_not_be_sent_twice() -> None:
    entry = TABLES.ranks[2][0]
    with pytest.raises(ScheduleError, match=r"ranks\[2\]\[1\]: sends reduce \d to rank 3 a second time"):
        changed(flow=entry.flow, after=())


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"algorithm": ""}, "algorithm"),
        ({"collective": "x" * 5000}, "collective"),
        ({"size_bytes": -1}, "size_bytes"),
        ({"size_bytes": (1 << 50) + 1}, "size_bytes"),
        ({"steps": limits.MAX_STEPS + 1}, "steps"),
        ({"ports": 0}, "ports"),
        ({"ports": 257}, "ports"),
        ({"ranks": TABLES.ranks[:3]}, "ranks"),
    ],
)
def test_a_frame_that_cannot_be_is_named(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError, match=place):
        replace(TABLES, **changes)


def test_idle_steps_are_bounded_in_all() -> None:
    """Each is passed over one by one, so a short file must not be able to ask for many."""
    last = limits.MAX_STEPS - 1
    entries = [
        (TableEntry(last, "gather", 0, 0, 1, (), (Send((rank + 1) % 4, 0),)),) if rank < 2 else ()
        for rank in range(4)
    ]
    with pytest.raises(ScheduleError, match="steps of all ranks together"):
        replace(TABLES, steps=limits.MAX_STEPS, ranks=tuple(entries))


def test_ways_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WAY_LINKS", 3)
    with pytest.raises(InputError, match="links of all ways together: 4 is more than the 3"):
        simulate_tables(TABLES)


def test_a_grid_may_have_links_across_it() -> None:
    cables = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
    cables += [(0, 4), (0, 6), (6, 5)]  # across, and over a switch
    torus = load_topology("torus:2x3")
    topology = Topology.from_links(
        "odd", 6, 1, cables, bandwidth="1GB/s", latency="1ns", grid=torus.grid
    ).with_routing("shortest")
    sends = [Send(4, 0), Send(5, 0, tuple(topology.links_between(0, 6) + topology.links_between(6, 5)))]
    entries = (TableEntry(0, "gather", 0, 0, 8, (), tuple(sends)),)
    result = simulate_tables(Tables(topology, "odd", "broadcast", 8, 1, 1, (entries, (), (), (), (), ())))
    assert result.packets == 2
