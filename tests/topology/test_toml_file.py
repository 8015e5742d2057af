"""The topology file: what it says, that it comes back the same, and where it is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters

from weft.errors import DisconnectedError, FormatError, LimitError, WeftError
from weft.limits import MAX_TOML_TOKENS
from weft.topology import Topology, load_topology
from weft.topology.toml_file import format_toml, parse_toml

DATA = Path(__file__).parents[1] / "data" / "topology"
GB = 10**9

LINK = '[[links]]\nsrc = 0\ndst = 1\nbandwidth = "1GB/s"\nlatency = "1us"\nduplex = true\n'
PAIR = f"ranks = 2\n{LINK}"


def test_the_sample_says_what_it_says() -> None:
    lab = load_topology(DATA / "lab.toml")
    assert (lab.name, lab.ranks, lab.switches, lab.links) == ("lab", 4, 2, 14)
    assert lab.hosts == ((0, 1), (2, 3))
    assert lab.routing.kind == "shortest"
    assert [lab.link_name(link) for link in range(lab.links)] == [
        *("0->s0", "s0->0", "1->s0", "s0->1", "2->s1", "s1->2", "3->s1", "s1->3"),
        *("2->3#0", "3->2#0", "2->3#1", "3->2#1", "s0->s1", "s1->s0"),
    ]
    assert lab.bandwidth.tolist()[4:6] == [12_500_000_000] * 2
    assert lab.bandwidth.tolist()[12:] == [5 * GB, 1 * GB]
    assert lab.latency_ps.tolist()[8:] == [500_000] * 4 + [20_000_000] * 2
    assert lab.addresses == ((12, "10.0.0.1", "10.0.0.2"), (13, "10.0.0.2", "10.0.0.1"))


def test_a_link_goes_one_way_unless_told() -> None:
    one_way = "ranks = 2\n" + LINK.replace("duplex = true\n", "")
    both = one_way + "".join(one_way.partition("[[links]]")[1:]).replace(
        "src = 0\ndst = 1", "src = 1\ndst = 0"
    )
    assert parse_toml(both, "x.toml").links == 2
    with pytest.raises(
        DisconnectedError,
        match=r"rank 1 cannot reach rank 0.* 1 of the links go one way, and a cable has duplex = true",
    ):
        parse_toml(one_way, "x.toml")


def test_the_name_is_optional() -> None:
    assert parse_toml(PAIR, "/some/where/pair.toml").name == "pair"
    assert parse_toml(PAIR, "<stdin>").name == "stdin"


def test_nodes_may_be_text_and_no_latency_a_number() -> None:
    pair = parse_toml(PAIR.replace("src = 0", 'src = "0"').replace('"1us"', "0"), "x.toml")
    assert pair.link_src.tolist() == [0, 1]
    assert pair.latency_ps.tolist() == [0, 0]


def test_a_grid_may_be_named_and_brings_its_routing() -> None:
    ring = "ranks = 3\ngrid = [3]\nwrap = [true]\n" + "".join(
        LINK.replace("src = 0", f"src = {a}").replace("dst = 1", f"dst = {(a + 1) % 3}") for a in range(3)
    )
    found = parse_toml(ring, "ring.toml")
    assert found == load_topology("ring:3@bw=1GB/s")
    assert found.routing.kind == "dimension-order"
    assert parse_toml(ring.replace("wrap = [true]\n", ""), "x").grid.wrap == (False,)  # type: ignore[union-attr]
    assert parse_toml('routing = "shortest"\n' + ring, "x").routing.kind == "shortest"


@pytest.mark.parametrize("digits", ["0b" + "1" * 66_000, "9" * 66_000, "0x" + "f_" * 33_000])
def test_endless_numbers_are_refused_before_they_are_read(digits: str) -> None:
    with pytest.raises(FormatError, match="line 3: more than 65,536 digits in a row"):
        parse_toml(f"# four\nname = 'x'\nranks = {digits}\n{LINK}", "x.toml")


def test_routing_and_seed_are_read() -> None:
    found = parse_toml(f'routing = "ecmp"\nseed = 7\n{PAIR}', "x.toml")
    assert (found.routing.kind, found.routing.seed) == ("ecmp", 7)


def test_a_byte_order_mark_and_windows_lines_do_not_matter() -> None:
    assert parse_toml("\ufeff" + PAIR.replace("\n", "\r\n"), "x.toml") == parse_toml(PAIR, "x.toml")


@pytest.mark.parametrize(
    "spec",
    [
        "torus:4x4",
        "mesh:2x3x2",
        "ring:2@links=3,wrap2=double",
        "fullmesh:5@back=1GB/s,links=3",
        "hosts:8,4,2@uplink=10GB/s/5GB/s/1GB/s",
        "bigraph:2,4@routing=ecmp,seed=5",
        "dgx-h100:2@fabric=flat,nic_lat=1.234567us",
        "torus:4x4+fail=0>1",
        "ring:5+fail=rank:2",
    ],
)
def test_a_spec_survives_being_written_down(spec: str) -> None:
    before = load_topology(spec)
    after = parse_toml(format_toml(before), "x.toml")
    assert after == before
    assert after.name == before.name


@given(clusters(), st.text(max_size=30), st.integers(0, 2**63 - 1))
def test_any_topology_survives_being_written_down(topology: Topology, name: str, seed: int) -> None:
    before = Topology(
        name,
        topology.ranks,
        topology.switches,
        topology.link_src,
        topology.link_dst,
        topology.bandwidth,
        topology.latency_ps,
        hosts=topology.hosts,
        routing=topology.with_routing("ecmp", seed).routing,
        addresses=((0, 'a"\\\n\x7f', "é"),),
    )
    after = parse_toml(format_toml(before), "x.toml")
    assert after.digest == before.digest
    assert after.name == before.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ranks = 2\nswitches = \n" + LINK, "x.toml: line 2: not TOML: Invalid value, in `switches =`"),
        ("ranks = 2\n[[links]\n", "x.toml: line 2: not TOML"),
        ("ranks = 2\nranks = 2\n", "x.toml: line 2: not TOML: Cannot overwrite a value"),
        ("ranks = [\n", "x.toml: line 2: not TOML"),
        ("ranks = 2 \0\n", "x.toml: line 1: not TOML"),
        ("hello", "x.toml: line 1: not TOML: Expected '=' after a key"),
        ("hello " + "x" * 99, " in a key/value pair, in `hello " + "x" * 51 + "...`"),
        ("links = []", "x.toml: ranks is missing"),
        ("ranks = 2", "x.toml: links is missing"),
        ("ranks = 1\n" + LINK, "x.toml: ranks: expected a whole number >= 2"),
        ("ranks = 99999\n" + LINK, "x.toml: ranks: expected a whole number <= 65536"),
        ("ranks = 1" + "0" * 30 + "\n" + LINK, "x.toml: ranks: expected a whole number <= 65536"),
        ("ranks = 1" + "0" * 5000 + "\n" + LINK, "x.toml: not TOML: Exceeds the limit"),
        ('ranks = "2"\n' + LINK, "x.toml: ranks: expected a whole number, got text"),
        ("ranks = 2.0\n" + LINK, "x.toml: ranks: expected a whole number, got a decimal number"),
        ("ranks = 2\nlinks = 3", "x.toml: links: expected a list, got a whole number"),
        ("ranks = 2\nlinks = [3]", "x.toml: links[0]: expected a table, got a whole number"),
        ("ranks = 2\nname = 3\n" + LINK, "x.toml: name: expected text, got a whole number"),
        ("ranks = 2\nhots = []\n" + LINK, "x.toml: hots: unknown key, did you mean hosts?"),
        ("ranks = 2\nzzz = []\n" + LINK, "x.toml: zzz: unknown key, expected ranks, links, name"),
        ("[x]\n" + PAIR, "x.toml: x: unknown key, expected ranks"),
        (
            PAIR.replace("bandwidth", "bandwith"),
            "x.toml: links[0].bandwith: unknown key, did you mean bandwidth?",
        ),
        (PAIR + LINK + "speed = 1", "x.toml: links[1].speed: unknown key"),
        (PAIR.replace("src = 0\n", ""), "x.toml: links[0]: src is missing"),
        (PAIR.replace('latency = "1us"\n', ""), "x.toml: links[0]: latency is missing"),
        (PAIR.replace("1GB/s", "1GB"), "x.toml: links[0].bandwidth: bandwidth '1GB': a speed needs '/s'"),
        (PAIR.replace('"1GB/s"', "true"), "x.toml: links[0].bandwidth: expected a whole number or text"),
        (PAIR.replace('"1GB/s"', "1.5"), "x.toml: links[0].bandwidth: expected a whole number or text"),
        (
            PAIR.replace('"1GB/s"', '"0B/s"'),
            "x.toml: links[0].bandwidth: bandwidth '0B/s': must be at least 1",
        ),
        (PAIR.replace('"1us"', '"1"'), "x.toml: links[0].latency: time '1': unknown unit"),
        (PAIR.replace('"1us"', "1"), "x.toml: links[0].latency: time 1: expected text with a unit"),
        (
            PAIR.replace("= true", "= 1"),
            "x.toml: links[0].duplex: expected true or false, got a whole number",
        ),
        (
            PAIR.replace("dst = 1", "dst = 2"),
            "x.toml: links[0].dst: there is no node '2'; the file has ranks 0..1",
        ),
        (PAIR.replace("dst = 1", "dst = -1"), "x.toml: links[0].dst: there is no node '-1'"),
        (PAIR.replace("dst = 1", 'dst = "s0"'), "x.toml: links[0].dst: there is no node 's0'; the file has"),
        (PAIR.replace("dst = 1", "dst = 0"), "x.toml: links[0]: joins 0 to itself"),
        (PAIR + "count = 0", "x.toml: links[0].count: expected a whole number >= 1"),
        (PAIR + 'back = "1GB"', "x.toml: links[0].back: bandwidth '1GB': a speed needs"),
        (
            PAIR.replace("duplex = true", 'back = "1GB/s"'),
            "x.toml: links[0].back: only a duplex link has a way back",
        ),
        (PAIR + 'src_address = "a"', "x.toml: links[0]: src_address and dst_address are given together"),
        (PAIR + 'src_address = "a"\ndst_address = ""', "x.toml: links[0].dst_address: an address has 1 to"),
        ("hosts = [[0]]\n" + PAIR, "x.toml: hosts: rank 1 is on no host"),
        ("hosts = [[0, 1], [1]]\n" + PAIR, "x.toml: hosts[1]: rank 1 is already on a host"),
        ("hosts = [[0, 1, 2]]\n" + PAIR, "x.toml: hosts[0]: there is no rank 2"),
        (PAIR.replace('"1GB/s"', "4"), "x.toml: links[0].bandwidth: a speed needs its unit"),
        (PAIR.replace('"1GB/s"', '"4"'), "x.toml: links[0].bandwidth: bandwidth '4': a speed needs a unit"),
        ("hosts = [[0], [1], []]\n" + PAIR, "x.toml: hosts[2]: a host without ranks; leave it out"),
        ('hosts = [["a"]]\n' + PAIR, "x.toml: hosts[0][0]: expected a whole number, got text"),
        ("grid = [3]\n" + PAIR, "x.toml: grid: a grid of 3 does not have 2 ranks"),
        ("grid = [-1, -2]\n" + PAIR, "x.toml: grid: a grid of -1x-2 does not have 2 ranks"),
        ("grid = []\n" + PAIR, "x.toml: grid: a grid of no dimensions does not have 2 ranks"),
        (
            "grid = [2]\nwrap = [true, true]\n" + PAIR,
            "x.toml: grid: wrap has 2 entries for a grid of 1 dimensions",
        ),
        ("grid = [" + "1, " * 20 + "2]\n" + PAIR, "x.toml: grid: dimensions: 21 is more than the 16"),
        (
            "wrap = [true]\n" + PAIR,
            "x.toml: wrap: says which dimensions of a grid close, but there is no grid",
        ),
        ('routing = "fastest"\n' + PAIR, "x.toml: routing: 'fastest' is unknown, expected one of shortest"),
        ("seed = -1\n" + PAIR, "x.toml: seed: expected a whole number >= 0"),
        ("rank_labels = [1]\n" + PAIR, "1 rank labels for 2 ranks"),
        ('name = "' + "a" * 5000 + '"\n' + PAIR, "characters of the name"),
        ('"\\u001b[31m" = 1\n' + PAIR, "x.toml: ?[31m: unknown key"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(WeftError, match=re.escape(message)):
        parse_toml(text, "x.toml")


def test_too_many_links_fail_before_they_are_drawn() -> None:
    with pytest.raises(LimitError, match="links: 4,000,002 is more than the 4,000,000"):
        parse_toml(PAIR + "count = 2000001", "x.toml")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 10_000,
        "a = " + "[" * 4_000_000,
        "a = " + "{a = " * 10_000,
        "a = [" + "1," * 4_000_000 + "]",
        "a" + ".a" * 200_000 + " = 1",
        "[" + "a." * 200_000 + "a]",
        "a = 1\n" * (MAX_TOML_TOKENS - 1),
        "\n" * 16_000_000,
        'a = "' + "\\n" * 1_000_000 + '"',
    ],
    ids=[
        "deep",
        "deeper",
        "deep-tables",
        "long",
        "dotted",
        "dotted-table",
        "twice",
        "empty-lines",
        "escapes",
    ],
)
@pytest.mark.timeout(100)
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_toml(text, "x.toml")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(WeftError):
        parse_toml(text, "x.toml")
