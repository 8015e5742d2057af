"""Probing emulated clusters, with real bytes: what comes out is what was built."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from support.measured import measure_within

from weft.lab import build
from weft.lab.expected_time import FRAME_BYTES, PAYLOAD_BYTES
from weft.runtime.launcher.launch import launch
from weft.topology import Topology, load_topology
from weft.topology.toml_file import parse_toml

JOBS = Path(__file__).with_name("jobs")

pytestmark = pytest.mark.namespaces

PAYLOAD = PAYLOAD_BYTES / FRAME_BYTES
WEFT = str(Path(sys.executable).with_name("weft"))

SLOW_NIC = """
ranks = 5
switches = 1
links = [
  {src = 0, dst = "s0", bandwidth = "40Mbit/s", latency = "20us", duplex = true},
  {src = 1, dst = "s0", bandwidth = "40Mbit/s", latency = "20us", duplex = true},
  {src = 2, dst = "s0", bandwidth = "40Mbit/s", latency = "20us", duplex = true},
  {src = 3, dst = "s0", bandwidth = "8Mbit/s", back = "40Mbit/s", latency = "20us", duplex = true},
  {src = 4, dst = "s0", bandwidth = "40Mbit/s", latency = "20us", duplex = true},
]
"""
SLOW_CABLE = """
ranks = 4
links = [
  {src = 0, dst = 1, bandwidth = "40Mbit/s", latency = "20us", duplex = true},
  {src = 1, dst = 2, bandwidth = "40Mbit/s", back = "8Mbit/s", latency = "20us", duplex = true},
  {src = 2, dst = 3, bandwidth = "40Mbit/s", latency = "20us", duplex = true},
  {src = 0, dst = 3, bandwidth = "12Mbit/s", latency = "20us", duplex = true},
]
"""

DYING = JOBS / "lab_dying.py"


def probe(truth: Topology, *words: str) -> tuple[int, str, str]:
    """Exit code and output of ``weft probe`` in a lab."""
    out, err = io.BytesIO(), io.BytesIO()
    with build(truth) as network:
        done = launch([WEFT, "probe", *words], truth.ranks, out=out, err=err, seats=network.seats())
    return done.exit_code, out.getvalue().decode(), err.getvalue().decode()


def find(truth: Topology, folder: Path) -> Topology:
    """The topology file that comes out."""
    path = folder / "probed.toml"
    code, out, err = probe(truth, "-o", str(path))
    assert code == 0, err
    assert f"wrote {path}, {truth.ranks} ranks" in out
    return load_topology(path)


def find_alike(truth: Topology, folder: Path) -> Topology:
    """The topology file that comes out, of the same shape, whose links are as fast, but for the headers."""

    def find_shape() -> Topology:
        found = find(truth, folder)
        assert (found.ranks, found.switches, found.links) == (truth.ranks, truth.switches, truth.links)
        return found

    speeds = {
        (int(truth.link_src[link]), int(truth.link_dst[link])): float(truth.bandwidth[link])
        for link in range(truth.links)
    }
    return measure_within(find_shape, lambda found: off(found, speeds))


def off(found: Topology, speeds: Mapping[tuple[int, int], float]) -> list[str]:
    """Links that are not as fast as between such nodes, but for the headers."""
    wrong = []
    for ends, speed in speeds.items():
        (link,) = found.links_between(*ends)
        measured, expected = int(found.bandwidth[link]), PAYLOAD * speed
        if measured != pytest.approx(expected, rel=0.1):
            wrong.append(f"{found.link_name(link)} has {measured / 1e6:.3f} MB/s, not {expected / 1e6:.3f}")
    return wrong


@pytest.mark.slow  # the star with a slow network card stays in make test
def test_a_star(tmp_path: Path) -> None:
    find_alike(load_topology("switch:6@bw=40Mbit/s"), tmp_path)


def test_a_torus_with_its_addresses(tmp_path: Path) -> None:
    truth = load_topology("torus:2x4@bw=20Mbit/s")
    found = find_alike(truth, tmp_path)
    assert found.grid == truth.grid
    assert len(found.addresses) == found.links


@pytest.mark.slow  # hosts with several ranks share uplinks too
def test_leaves_that_share_an_uplink(tmp_path: Path) -> None:
    truth = load_topology("fattree:2,1,3@bw=40Mbit/s,uplink=40Mbit/s")
    found = find_alike(truth, tmp_path)
    assert found.groups == ((0, 1, 2), (3, 4, 5))


def test_hosts_with_several_ranks(tmp_path: Path) -> None:
    truth = load_topology("hosts:4,2,1@uplink=40Mbit/s/20Mbit/s/10Mbit/s")

    def find_hosts() -> Topology:
        found = find(truth, tmp_path)
        assert (found.hosts, found.switches) == (truth.hosts, 3)  # a host with one rank has no switch inside
        return found

    speeds = {}
    for names, mbit in {
        ("s1", "s2"): 20,
        ("6", "s2"): 10,
        ("s0", "s2"): 30,
    }.items():  # 30: what the others take
        a, b = (int(name) if name.isdigit() else truth.ranks + int(name[1:]) for name in names)
        speeds[a, b] = speeds[b, a] = mbit * 125_000
    measure_within(find_hosts, lambda found: off(found, speeds))


def test_a_star_with_a_slow_network_card(tmp_path: Path) -> None:
    path = tmp_path / "truth.toml"
    path.write_text(SLOW_NIC, "utf-8")
    find_alike(load_topology(path), tmp_path)


def test_a_ring_with_slow_cables_one_of_them_one_way_only(tmp_path: Path) -> None:
    path = tmp_path / "truth.toml"
    path.write_text(SLOW_CABLE, "utf-8")
    find_alike(load_topology(path), tmp_path)


def test_time_that_is_over_leaves_a_topology_that_says_so() -> None:
    def find_briefly() -> Topology:
        code, out, err = probe(
            load_topology("switch:5@bw=40Mbit/s"), "--seconds", "1", "--max-bytes", "256KiB"
        )
        assert code == 0, err
        assert "the time of 1 s was over after" in out
        text = "".join(f"{line.removeprefix('[0] ')}\n" for line in out.splitlines())
        found = parse_toml(text, "probed.toml")
        assert (found.ranks, found.switches) == (5, 1)
        return found

    def too_slow(found: Topology) -> list[str]:
        return [found.link_name(link) for link in range(found.links) if found.bandwidth[link] <= 2_500_000]

    measure_within(find_briefly, too_slow)


def test_a_rank_that_is_killed_ends_the_probe() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    truth = load_topology("switch:3@bw=40Mbit/s")
    with build(truth) as network:
        done = launch([sys.executable, str(DYING)], 3, out=out, err=err, seats=network.seats())
    assert done.first_failure == 2
    assert [result.signal for result in done.results][2] == signal.SIGKILL
    assert out.getvalue().count(b"lost") == 2, err.getvalue()


def test_links_slower_than_claimed_are_named(tmp_path: Path) -> None:
    path = tmp_path / "truth.toml"
    path.write_text(SLOW_CABLE, "utf-8")
    slow = {"2->1", "0->3", "3->0"}

    def verify() -> set[str]:
        code, out, _ = probe(load_topology(path), "--verify", "ring:4@bw=40Mbit/s", "--json")
        assert code == 1
        report = msgspec.json.decode("".join(line.removeprefix("[0] ") for line in out.splitlines()))
        assert report["judged"] == 8
        named = {one["link"] for one in report["slow"]}
        assert slow <= named
        return named

    measure_within(verify, lambda named: sorted(named - slow))
