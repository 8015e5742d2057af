"""The output of ibnetdiscover."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import FormatError
from weft.topology import load_topology
from weft.topology.ibnetdiscover import is_ibnetdiscover, parse_ibnetdiscover

DATA = Path(__file__).parents[1] / "data" / "topology"
RAILS = (DATA / "rails.ibnetdiscover.txt").read_text("utf-8")
GB = 10**9


def switch(*ports: str, guid: str = "S-1") -> str:
    return "\n".join((f'Switch 8 "{guid}" # "sw" base port 0 lid 1 lmc 0', *ports, ""))


def test_adapters_of_a_machine_are_its_nics_in_the_order_of_their_names() -> None:
    fabric = parse_ibnetdiscover(RAILS, "ib.txt")
    assert fabric.nodes == ("node01", "node02", "node03", "node04")
    assert fabric.switches == ("leaf1", "leaf2", "spine1")
    for ports in fabric.ports:
        assert [(port.switch, port.bandwidth) for port in ports] == [(0, 50 * GB), (1, 50 * GB)]


def test_a_cable_that_is_listed_at_both_ends_is_one() -> None:
    assert len(parse_ibnetdiscover(RAILS, "ib.txt").trunks) == 4
    cluster = load_topology(DATA / "rails.ibnetdiscover.txt")
    assert (cluster.ranks, cluster.switches, cluster.links) == (4, 3, 2 * (8 + 4))


def test_half_of_the_output_is_enough_because_both_ends_are_named() -> None:
    head = RAILS[: RAILS.index("caguid=")]
    assert parse_ibnetdiscover(head, "ib.txt").ports == parse_ibnetdiscover(RAILS, "ib.txt").ports


@pytest.mark.parametrize(
    ("rate", "gigabits"), [("4xSDR", 8), ("4xQDR", 32), ("4xEDR", 100), ("2xNDR", 200), ("4xXDR", 800)]
)
def test_speeds_are_what_the_lanes_carry(rate: str, gigabits: int) -> None:
    ports = [f'[{n}] "H-{n}"[1](1) # "node{n} mlx5_0" lid {n} {rate}' for n in (1, 2)]
    found = parse_ibnetdiscover(switch(*ports), "ib.txt").ports[0][0].bandwidth
    assert found == gigabits * 125_000_000


def test_adapters_without_the_name_of_a_machine_are_machines_of_their_own() -> None:
    ports = [f'[{n}] "H-{n}"[1] # "MT23108 InfiniHost Mellanox Technologies" lid {n} 4xSDR' for n in (1, 2)]
    fabric = parse_ibnetdiscover(switch(*ports), "ib.txt")
    assert fabric.nodes == ("H-1", "H-2")
    assert any("machines of their own" in note for note in fabric.notes)


def test_a_machine_may_be_called_like_an_adapter_without_a_name() -> None:
    ports = ['[1] "H-1"[1] # "x" lid 1 4xNDR', '[2] "H-2"[1] # "H-1 mlx5_0" lid 2 4xNDR']
    assert [len(ports) for ports in parse_ibnetdiscover(switch(*ports), "ib.txt").ports] == [2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[1] "H-1"[1] # "a mlx5_0" lid 1 4xNDR', "line 1: a port before the first Switch"),
        (switch('[1] "X-1"[1] # 4xNDR'), "neither a switch"),
        (switch('[1] "S-1"[2] # "sw" lid 1 4xNDR'), "cabled to the device it is on"),
        (switch('[1] "H-1"[1] # "a mlx5_0" lid 1 4xABC'), "ABC is not known"),
        (switch('[1] "S-2"[1] # "sw" lid 1'), "no machine"),
        (
            switch('[1] "H-1"[1] # "a m_0" 4xNDR', '[1] "H-2"[1] # "b m_0" 4xNDR'),
            "line 3: port 1 of 'S-1' is cabled to port 1 of 'H-1' elsewhere, and to port 1 of 'H-2' here",
        ),
        (
            switch('[1] "H-1"[1] # "a m_0" 4xNDR', '[2] "H-1"[1] # "a m_0" 4xNDR'),
            "line 3: port 1 of 'H-1' is cabled to port 1 of 'S-1' elsewhere, and to port 2 of 'S-1' here",
        ),
        (switch('[1] "S-2"[1]', '[2] "H-1"[1] # "a m_0" 4xNDR'), "no speed"),
        (switch("what is this"), "line 2: 'what is this' is not understood"),
        (
            'Ca 1 "H-1" # "a mlx5_0"\n[1](1) "H-2"[1](2) # lid 1 lmc 0 "b mlx5_0" lid 2 4xEDR',
            "without a switch",
        ),
        (switch() + 'Ca 1 "S-1" # "x"', "is a Switch elsewhere"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said) as caught:
        parse_ibnetdiscover(text, "ib.txt")
    assert "\n" not in str(caught.value)


def test_it_is_told_from_other_files_by_its_first_lines() -> None:
    assert is_ibnetdiscover(RAILS)
    assert is_ibnetdiscover("ibwarn: [1] x\n" + RAILS)
    assert is_ibnetdiscover("vendid=0x2c9\n")
    for other in DATA.iterdir():
        assert is_ibnetdiscover(other.read_text("utf-8")) == ("ibnetdiscover" in other.name)
