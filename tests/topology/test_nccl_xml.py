"""NCCL's topology dumps: what of a machine becomes a network, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import DisconnectedError, FormatError, TopologyError, WeftError
from weft.topology import Topology, load_topology
from weft.topology.nccl_xml import parse_nccl_box, parse_nccl_xml

DATA = Path(__file__).parents[1] / "data" / "topology"
GB = 10**9


def gpu(
    number: int, inside: str = "", *, bus: int | None = None, extra: str = 'sm="80"', link: str = ""
) -> str:
    at = number + 16 if bus is None else bus
    return (
        f'<pci busid="0000:{at:02x}:00.0" class="0x030200" {link or gen(4)}>\n'
        f'<gpu dev="{number}" rank="{number}" {extra}>{inside}</gpu></pci>\n'
    )


def gen(generation: int, width: int = 16) -> str:
    speed = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}[generation]
    return f'link_speed="{speed} GT/s PCIe" link_width="{width}"'


def nvlink(target: int | str, count: int = 1, tclass: str = "0x030200") -> str:
    bus = target if isinstance(target, str) else f"0000:{target + 16:02x}:00.0"
    return f'<nvlink target="{bus}" count="{count}" tclass="{tclass}"/>'


def cpu(inside: str, numa: int = 0, extra: str = 'arch="x86_64" vendor="AuthenticAMD"') -> str:
    return f'<cpu numaid="{numa}" {extra}>\n{inside}</cpu>\n'


def system(*cpus: str, rating: str = "nominal") -> Topology:
    return parse_nccl_xml(f'<system version="1">\n{"".join(cpus)}</system>\n', "box.xml", rating)


def wires(topology: Topology) -> dict[str, int]:
    return {topology.link_name(link): int(topology.bandwidth[link]) for link in range(topology.links)}


def test_a_dgx_a100_is_eight_gpus_on_one_switch() -> None:
    box = load_topology(DATA / "dgx-a100.nccl.xml")
    assert (box.ranks, box.switches, box.links) == (8, 1, 16)
    assert set(box.bandwidth.tolist()) == {12 * 25 * GB}
    assert box.hosts == (tuple(range(8)),)
    assert box.name == "dgx-a100.nccl"


def test_a_dgx_1_keeps_its_cube_mesh() -> None:
    box = load_topology(DATA / "dgx1-v100.nccl.xml")
    assert (box.ranks, box.switches, box.links) == (8, 0, 32)
    found = wires(box)
    assert found["0->1"] == found["1->0"] == 25 * GB
    assert found["0->3"] == 50 * GB
    assert found["3->7"] == 25 * GB
    assert all(box.egress(rank) == 150 * GB for rank in range(8))


def test_machines_without_nvlink_keep_bridges_cpus_and_network() -> None:
    pair = load_topology(DATA / "two-hosts-pcie.nccl.xml")
    assert (pair.ranks, pair.switches) == (8, 4)
    assert pair.hosts == ((0, 1, 2, 3), (4, 5, 6, 7))
    found = wires(pair)
    assert found["0->s0"] == 31.5 * GB
    assert found["s0->s1"] == 22 * GB, "Sapphire Rapids between CPUs, as slow as its slowest part"
    assert found["s0->s2"] == 12_500_000_000, "100 Gbit/s between the machines"
    assert len(pair.route(2, 6)) == 5


@pytest.mark.parametrize(
    ("link", "speed"),
    [
        (gen(3), 15.75 * GB),
        (gen(4), 31.5 * GB),
        (gen(5), 63 * GB),
        (gen(6), 121 * GB),
        (gen(4, 8), 15.75 * GB),
        (gen(1, 1), 250_000_000),
        ('link_speed="8 GT/s" link_width="16"', 15.75 * GB),
        ('link_speed="32.0 GT/s" link_width="16"', 63 * GB),
        ('link_speed="" link_width="0"', 15.75 * GB),
        ("", 31.5 * GB),
        ('link_speed="Unknown" link_width=""', 15.75 * GB),
    ],
)
def test_pcie_speeds_are_those_of_the_lanes(link: str, speed: int) -> None:
    pair = system(cpu(gpu(0, link=link) + gpu(1, link=link)))
    assert wires(pair) == {"0->1": speed, "1->0": speed}


@pytest.mark.parametrize(
    ("capability", "nominal", "effective"),
    [
        (60, 20.0, 18.0),
        (70, 25.0, 20.0),
        (75, 25.0, 20.0),
        (80, 25.0, 20.0),
        (86, 14.0625, 12.0),
        (89, 25.0, 20.0),
        (90, 25.0, 20.78),
        (100, 50.0, 40.1),
        (120, 50.0, 40.1),
    ],
)
def test_nvlink_speeds_depend_on_the_compute_capability(
    capability: int, nominal: float, effective: float
) -> None:
    extra = f'sm="{capability}"'
    both = cpu(gpu(0, nvlink(1, 4), extra=extra) + gpu(1, nvlink(0, 4), extra=extra))
    for rating, speed in (("nominal", nominal), ("effective", effective)):
        pair = system(both, rating=rating)
        assert wires(pair) == {"0->1": round(4 * speed * GB), "1->0": round(4 * speed * GB)}


@pytest.mark.parametrize(
    ("extra", "speed"),
    [
        ('arch="x86_64" vendor="AuthenticAMD"', 16),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79"', 6),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"', 10),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"', 22),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"', 40),
        ('arch="x86_64" vendor="CentaurHauls" familyid="7" modelid="91"', 9),
        ('arch="x86_64" vendor="HygonGenuine"', 16),
        ('arch="arm64"', 6),
        ('arch="ppc64"', 32),
    ],
)
def test_cpus_are_joined_at_the_speed_of_their_kind(extra: str, speed: int) -> None:
    box = system(
        cpu(gpu(0, link=gen(6)) + gpu(1, link=gen(6)), 0, extra),
        cpu(gpu(2, link=gen(6)) + gpu(3, link=gen(6)), 1, extra),
    )
    assert wires(box)["s0->s1"] == wires(box)["s1->s0"] == speed * GB


def test_nvswitches_are_one_switch_even_where_a_virtual_machine_hides_them() -> None:
    hidden = nvlink("fffffff:ffff:ff", 18, "0x068000")
    seen = nvlink("0000:c4:00.0", 9, "0x068000") + nvlink("0000:c5:00.0", 9, "0x068000")
    box = system(
        cpu(gpu(0, seen, extra='sm="90"') + gpu(1, seen, extra='sm="90"') + gpu(2, hidden, extra='sm="90"'))
    )
    assert (box.ranks, box.switches, box.links) == (3, 1, 6)
    assert set(box.bandwidth.tolist()) == {18 * 25 * GB}


def test_pcie_is_left_out_only_where_nvlink_joins_everyone() -> None:
    joined = nvlink(1, 4), nvlink(0, 4)
    whole = system(cpu(gpu(0, joined[0]) + gpu(1, joined[1])))
    assert (whole.switches, whole.links) == (0, 2)
    partly = system(cpu(gpu(0, joined[0]) + gpu(1, joined[1]) + gpu(2)))
    assert (partly.switches, partly.links) == (1, 8)
    assert partly.route(0, 1) == partly.links_between(0, 1)
    assert len(partly.route(0, 2)) == 2


def test_each_gpu_lists_its_own_direction() -> None:
    box = system(cpu(gpu(0, nvlink(1, 4)) + gpu(1, nvlink(0, 2))))
    assert wires(box) == {"0->1": 100 * GB, "1->0": 50 * GB}


def test_bus_ids_match_in_either_spelling() -> None:
    there, back = nvlink("00000000:11:00.0"), nvlink("00000000:10:00.0")
    assert system(cpu(gpu(0, there) + gpu(1, back))).links == 2
    upper = nvlink("0000:1A:00.0"), nvlink("0000:1B:00.0")
    assert system(cpu(gpu(0, upper[1], bus=0x1A) + gpu(1, upper[0], bus=0x1B))).links == 2


def test_a_missing_class_is_told_from_the_target() -> None:
    bare = '<nvlink target="0000:%02x:00.0" count="1"/>'
    assert system(cpu(gpu(0, bare % 17) + gpu(1, bare % 16))).switches == 0
    assert system(cpu(gpu(0, bare % 0xC4) + gpu(1, bare % 0xC4))).links == 2, "a switch of two is a cable"


def test_grace_and_power_reach_their_cpu_by_other_wires() -> None:
    grace = system(
        cpu(gpu(0, '<c2c bw="44712" count="10"/>', link=gen(1, 1)), 0, 'arch="arm64"'),
        cpu(gpu(1, '<c2c bw="44712" count="10"/>', link=gen(1, 1)), 1, 'arch="arm64"'),
    )
    assert max(grace.bandwidth.tolist()) == 447_120_000_000
    power = system(
        cpu("".join(gpu(i, nvlink("0004:04:00.0", 3, "0x068001"), extra='sm="70"') for i in range(3)))
    )
    assert Counter(power.bandwidth.tolist()) == {75 * GB: 6, 31_500_000_000: 6}


def test_the_levels_of_a_broadcom_switch_are_one_switch() -> None:
    def bridge(bus: int, device: str, subsystem: str, inside: str) -> str:
        ids = f'vendor="0x1000" device="{device}" subsystem_vendor="0x1000" subsystem_device="{subsystem}"'
        return f'<pci busid="0000:{bus:02x}:00.0" class="0x060400" {ids} {gen(4)}>\n{inside}</pci>\n'

    def box(device: str, upper: str, lower: str) -> Topology:
        pairs = [bridge(3 + k, device, lower, gpu(2 * k) + gpu(2 * k + 1)) for k in range(2)]
        return system(cpu(bridge(2, device, upper, "".join(pairs))))

    assert box("0xc010", "0xa096", "0xa064").switches == 1
    assert box("0xc030", "0x0100", "0x1100").switches == 1
    assert box("0xc010", "0x1234", "0x1234").switches == 2
    assert box("0xc030", "0x0100", "0x0100").switches == 2


def test_ranks_follow_the_rank_attribute_then_the_device() -> None:
    def box(first: str, second: str) -> Topology:
        pci = '<pci busid="0000:%02x:00.0" class="0x030200" %s><gpu sm="80" %s/></pci>\n'
        third = pci % (3, gen(5), 'dev="2" rank="2"' if "rank" in first else 'dev="2"')
        return system(cpu(pci % (1, gen(3), first) + pci % (2, gen(4), second) + third))

    assert wires(box('dev="0" rank="1"', 'dev="1" rank="0"'))["0->s0"] == 31.5 * GB
    assert wires(box('dev="1"', 'dev="0"'))["0->s0"] == 31.5 * GB


def test_a_gpu_without_a_rank_is_not_part_of_the_job() -> None:
    spare = f'<pci busid="0000:40:00.0" class="0x030200" {gen(4)}><gpu dev="9" sm="80"/></pci>\n'
    assert system(cpu(gpu(0) + spare + gpu(1))).ranks == 2


def test_several_ranks_may_share_a_gpu() -> None:
    both = '<gpu dev="0" rank="0" sm="80"/><gpu dev="0" rank="1" sm="80"/>'
    shared = f'<pci busid="0000:01:00.0" {gen(4)}>{both}</pci>'
    box = system(cpu(shared + gpu(2)))
    assert box.ranks == 3
    assert wires(box)["0->s0"] == 5000 * GB


def test_hosts_are_told_apart_by_their_hash() -> None:
    net = '<net name="a" dev="0" speed="%s" latency="1.5"/>'
    nic = f'<pci busid="0000:40:00.0" {gen(4)}><nic>{net}</nic></pci>\n'
    hosts = [cpu(gpu(0) + gpu(1) + nic % 200_000, extra=f'host_hash="0x{h}" arch="arm64"') for h in (1, 2)]
    pair = system(*hosts)
    assert pair.hosts == ((0, 1), (2, 3)), "both number their ranks from 0, so machine by machine"
    uplinks = [link for link in range(pair.links) if pair.link_src[link] > 3 and pair.link_dst[link] > 3]
    assert {int(pair.bandwidth[link]) for link in uplinks} == {25 * GB}, "25 GB/s behind 31.5 GB/s of PCIe"
    assert {int(pair.latency_ps[link]) for link in uplinks} == {3_000_000}
    unknown = system(*[host.replace("200000", "-1") for host in hosts])
    assert 1_250_000_000 in unknown.bandwidth.tolist(), "NCCL takes an unknown speed for 10 Gbit/s"
    with pytest.raises(DisconnectedError, match=r"box\.xml: box: rank 0 cannot reach rank 2"):
        system(*[host.replace("<net ", "<other ") for host in hosts])


@pytest.mark.parametrize("speed", ["-200000", "-2", "nan", "inf"])
def test_a_port_needs_a_speed_that_can_be(speed: str) -> None:
    nic = f'<nic><net name="a" dev="0" speed="{speed}"/></nic>'
    with pytest.raises(FormatError, match=rf"<net>: speed must be .*, not '?{speed}"):
        system(cpu(gpu(0) + gpu(1) + nic))
    with pytest.raises(FormatError, match=rf"<net>: speed must be .*, not '?{speed}"):
        parse_nccl_box(f"<system>{cpu(gpu(0) + gpu(1) + nic)}</system>", "box.xml")


@pytest.mark.parametrize("speed", ["-16.0 GT/s PCIe", "0 GT/s", "0.0", "nan GT/s", "inf", "-200000"])
def test_a_pcie_link_needs_a_speed_that_can_be(speed: str) -> None:
    link = f'link_speed="{speed}" link_width="16"'
    with pytest.raises(FormatError, match=f"<pci>: link_speed must be such as 16.0 GT/s, not '{speed}'"):
        system(cpu(gpu(0, link=link) + gpu(1)))
    unknown = link.replace(speed, "Unknown speed")
    assert system(cpu(gpu(0, link=unknown) + gpu(1))).ranks == 2


def machines(arch: str, capability: int) -> Topology:
    """Two machines with NVSwitches and a NIC each."""
    nic = f'<pci busid="0000:40:00.0" {gen(4)}><nic><net name="a" dev="0" speed="200000"/></nic></pci>\n'
    box = "".join(gpu(n, nvlink("0000:c4:00.0", 12, "0x068000"), extra=f'sm="{capability}"') for n in (0, 1))
    return system(*[cpu(box + nic, extra=f'host_hash="0x{h}" arch="{arch}"') for h in (1, 2)])


def test_each_machine_has_an_nvswitch_of_its_own() -> None:
    pair = machines("x86_64", 80)
    assert pair.hosts == ((0, 1), (2, 3))
    inside, across = pair.route(0, 1), pair.route(0, 2)
    assert set(pair.bandwidth[list(inside)].tolist()) == {300 * GB}
    assert min(pair.bandwidth[list(across)].tolist()) == 25 * GB
    assert "NICs meet in one switch that can take all they send" in pair.notes


def test_nvlink_joins_the_machines_of_a_rack() -> None:
    rack = machines("arm64", 100)
    assert (rack.ranks, rack.switches, len(rack.hosts)) == (4, 1, 2)
    assert "the 2 machines are one NVLink domain, as in an NVL72 rack" in rack.notes


def test_what_was_assumed_is_said() -> None:
    notes = load_topology(DATA / "dgx-a100.nccl.xml").notes
    assert notes == (
        "speeds of NVLink, PCIe and ports are nominal ones",
        "PCIe, CPUs and NICs are left out: NVLink joins all GPUs",
        "latency of a link: NVLink 500ns",
    )
    unsaid = system(cpu(gpu(0, link=" ") + gpu(1)))
    assert "PCIe links whose speed or width is not said: 16 lanes, 8 GT/s" in unsaid.notes
    assert (
        "1 GPUs without a rank are left out"
        in system(cpu(gpu(0) + gpu(1) + gpu(2).replace(' rank="2"', ""))).notes
    )


def test_nics_of_one_machine_are_left_out() -> None:
    nic = '<nic><net name="eth0" dev="0" speed="100000"/></nic>'
    assert system(cpu(gpu(0) + gpu(1) + nic)) == system(cpu(gpu(0) + gpu(1)))


def test_comments_and_unknown_elements_are_skipped() -> None:
    plain = system(cpu(gpu(0) + gpu(1)))
    assert system("<!-- hello --><thing/>", cpu("<thing/>" + gpu(0) + gpu(1))) == plain
    declared = (
        '<?xml version="1.0" encoding="utf-16"?>\n<system name="my box">' + cpu(gpu(0) + gpu(1)) + "</system>"
    )
    assert parse_nccl_xml(declared, "x").name == "my box"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<", "x.xml: line 1: not XML: unclosed token"),
        ("<system>\n", "x.xml: line 2: not XML: no element found"),
        ("<system>\n</cpu>", "x.xml: line 2: not XML: mismatched tag"),
        ("<system>\n\0</system>", "x.xml: line 2: not XML: not well-formed"),
        ("<system>&nope;</system>", "x.xml: line 1: not XML: undefined entity"),
        ("<graph/>", "x.xml: line 1: expected <system> or <graphs>, the root of an NCCL dump, found <graph>"),
        ("<system/>", "x.xml: line 1: <system>: holds no <gpu>; Weft needs what NCCL_TOPO_DUMP_FILE writes"),
        ("<system>\n<cpu><pci class='0x03'/></cpu></system>", "holds no <gpu>"),
        ("<a>\n" * 70, "x.xml: line 65: nested deeper than 64"),
        ("<system>" + "<cpu/>" * 70_000, "x.xml: line 1: more than 65,536 elements"),
        ("<system>" + cpu(gpu(0)) * 600 + "</system>", "holds more than 512 CPUs"),
        (
            "<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]><system>&b;</system>",
            "x.xml: line 1: has a DOCTYPE; NCCL writes none, and Weft reads none",
        ),
        ("<!DOCTYPE x SYSTEM 'file:///etc/passwd'><system/>", "has a DOCTYPE"),
        ("<system>" + "x" * (9 << 20) + "</system>", "larger than the 8 MiB of XML"),
    ],
)
def test_a_file_that_is_no_dump_is_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_nccl_xml(text, "x.xml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (nvlink(1).replace('count="1"', ""), "box.xml: line 4: <nvlink>: has no count"),
        (nvlink(1).replace('"1"', '"x"'), "box.xml: line 4: <nvlink>: count must be a whole number, not 'x'"),
        (nvlink(1, 0), "box.xml: line 4: <nvlink>: count must be 1 to 1,000,000, not 0"),
        (nvlink(1, -1), "count must be 1 to 1,000,000"),
        (
            '<xgmi target="0000:11:00.0" count="1"/>',
            "box.xml: line 4: <xgmi>: dumps of RCCL are not understood",
        ),
        ('<c2c count="1"/>', "box.xml: line 4: <c2c>: has no bw"),
    ],
)
def test_a_wrong_link_is_named_with_its_line(inside: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        system(cpu(gpu(0, inside) + gpu(1)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (cpu(gpu(0, nvlink(1), extra="") + gpu(1)), "line 4: <gpu>: has NVLinks but no sm"),
        (cpu(gpu(0, link='link_width="999"')), "line 3: <pci>: link_width 999 is not a number of lanes"),
        (cpu(gpu(0, link='link_width="x"')), "line 3: <pci>: link_width must be a whole number, not 'x'"),
        (cpu(gpu(0).replace('busid="0000:10:00.0"', "")), "line 3: <pci>: has no busid"),
        (
            cpu(gpu(0).replace('rank="0"', 'rank="first"') + gpu(1)),
            "<gpu>: rank must be a whole number, not 'first'",
        ),
        (
            cpu("", extra='arch="x86_64" modelid="z"'),
            "line 2: <cpu>: modelid must be a whole number, not 'z'",
        ),
    ],
)
def test_a_wrong_attribute_is_named_with_its_line(wrong: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        system(wrong)
    assert message in str(caught.value)


def test_one_gpu_is_no_cluster() -> None:
    with pytest.raises(TopologyError, match="a cluster of 1 rank has nothing to reduce"):
        system(cpu(gpu(0)))


def test_a_sum_that_is_too_fast_is_an_error_not_an_overflow() -> None:
    fast = '<c2c bw="1000000" count="1000000"/>' * 20
    with pytest.raises(TopologyError, match="is faster than"):
        system(cpu(gpu(0, fast) + gpu(1, fast) + gpu(2)))


@given(st.text(alphabet='<>/="systemcpugi \n0x', max_size=60))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(WeftError):
        parse_nccl_xml(f"<{text}", "x.xml")
