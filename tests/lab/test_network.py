"""Emulated clusters, built for real: what they carry, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.hosts import find_missing_privilege, without_privileges
from support.jobs import WEFT

from weft.errors import InputError, RuntimeFailure
from weft.lab import (
    build,
    emulated,
    iproute,
    namespace_names,
)
from weft.lab.iproute import ip
from weft.runtime.launcher.launch import launch
from weft.topology import load_topology
from weft.topology.toml_file import format_toml, parse_toml

JOBS = Path(__file__).with_name("jobs")


def spaces() -> set[str]:
    return {line.split()[0] for line in ip("netns", "list").splitlines() if line.startswith("weftlab-")}


def mine() -> set[str]:
    return {name for name in spaces() if name.startswith(f"weftlab-{os.getpid()}-")}


EXACT = JOBS / "network_exact.py"


@pytest.mark.namespaces
@pytest.mark.parametrize(
    "spec",
    [
        "torus:2x3@bw=50Mbit/s,routing=ecmp",
        "hosts:3,1@uplink=40Mbit/s",
        pytest.param("fattree:2,2,2@bw=50Mbit/s", marks=pytest.mark.slow),
        pytest.param("ring:4@bw=9Mbit/s+fail=0>1", marks=pytest.mark.slow),
    ],
)
def test_every_rank_reaches_every_other_and_nothing_is_left(spec: str) -> None:
    done = subprocess.run(
        [str(WEFT), "lab", "run", "--json", spec, str(EXACT)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ranks"] == load_topology(spec).ranks
    owners = {name.split("-")[1] for name in spaces()}
    assert not owners & {str(one["pid"]) for one in result["results"]}


PARALLEL = """
name = "parallel"
ranks = 2
[[links]]
src = 0
dst = 1
bandwidth = "40Mbit/s"
latency = "1us"
duplex = true
count = 2
"""


@pytest.mark.namespaces
def test_what_a_schedule_sends_over_a_cable_goes_over_that_cable(tmp_path: Path) -> None:
    file = tmp_path / "parallel.toml"
    with build(parse_toml(PARALLEL, "parallel.toml")) as network:
        file.write_text(format_toml(network.topology), "utf-8")
        line = [sys.executable, str(JOBS / "network_counted.py"), str(file), "forest"]
        with Path(os.devnull).open("wb") as nowhere:
            result = launch(line, 2, out=nowhere, err=nowhere, seats=network.seats())
        assert result.exit_code == 0
        told = json.loads(ip("-s", "-j", "link", space=network.names[0]))
    sent = {one["ifname"]: one["stats64"]["tx"]["bytes"] for one in told}
    # Two megabytes each way, half of them over either cable; the meeting goes over one of them.
    assert 950_000 < sent["c0"] < 1_300_000
    assert 950_000 < sent["c1"] < 1_300_000


@pytest.mark.namespaces
def test_a_failure_inside_removes_everything() -> None:
    class Unexpected(Exception):
        pass

    with pytest.raises(Unexpected), build(load_topology("switch:3@bw=50Mbit/s")):
        raise Unexpected
    assert mine() == set()


@pytest.mark.namespaces
def test_what_the_kernel_refuses_is_told_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.lab.network._PACKETS", "gso_max_size nonsense")
    with pytest.raises(RuntimeFailure, match="nonsense"), build(load_topology("switch:3@bw=50Mbit/s")):
        pass
    assert mine() == set()


@pytest.mark.namespaces
def test_what_a_killed_lab_leaves_is_removed_by_the_next_and_no_other() -> None:
    killed = subprocess.run(
        [sys.executable, str(JOBS / "network_killed.py")],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    left = set(killed.stdout.split())
    assert killed.returncode == -signal.SIGKILL
    assert len(left) == 4
    foreign = f"weftlab-{os.getpid()}-1-0-x0"
    ip("netns", "add", foreign)
    try:
        found = left & spaces()  # unless another lab beside this test was quicker
        assert found <= set(namespace_names.find_leftovers())
        with build(load_topology("switch:2@bw=50Mbit/s")):
            assert not left & spaces()
        assert foreign in spaces()
    finally:
        ip("netns", "del", foreign)


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="run it as root"), build(load_topology("switch:2@bw=50Mbit/s")):
        pass


def check(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)


def test_a_container_without_the_privileges_is_told_which_are_missing() -> None:
    done = check(*without_privileges(str(WEFT), "lab", "check"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("weft: error: no cluster can be emulated here: ")
    if os.geteuid() == 0:
        assert "Operation not permitted" in done.stderr
        assert "the lab needs CAP_SYS_ADMIN, CAP_NET_ADMIN and a writable /proc/sys" in done.stderr
    told = check(*without_privileges(str(WEFT), "lab", "check", "--json"))
    assert told.returncode == 2
    assert json.loads(told.stdout)["problem"] in done.stderr


@pytest.mark.namespaces
def test_a_missing_privilege_is_told_also_where_a_killed_lab_left_namespaces() -> None:
    left = "weftlab-1-1-0-h0"  # process 1 did not start at that tick
    check("ip", "netns", "add", left)
    try:
        done = check(*without_privileges(str(WEFT), "lab", "check"))
        assert "Operation not permitted" in done.stderr
    finally:
        check("ip", "netns", "del", left)


def test_whether_clusters_can_be_emulated_here_is_told() -> None:
    done = check(str(WEFT), "lab", "check")
    possible = find_missing_privilege() is None
    assert done.returncode == (0 if possible else 2), done.stderr
    assert json.loads(check(str(WEFT), "lab", "check", "--json").stdout)["ok"] == possible


@pytest.mark.namespaces
def test_a_proc_that_cannot_be_written_is_named() -> None:
    """Containers with the capabilities alone have it mounted so."""
    frozen = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys"
    done = check("unshare", "--mount", "sh", "-ec", f'{frozen} && "$0" lab check', str(WEFT))
    assert done.returncode == 2
    assert "Read-only file system" in done.stderr
    assert "a writable /proc/sys" in done.stderr


def test_without_iproute2_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iproute.shutil, "which", lambda *_words, **_options: None)
    with pytest.raises(InputError, match="apt install iproute2"):
        iproute.check_rights()


@pytest.mark.namespaces
def test_a_link_inside_a_host_has_no_cable_to_cut() -> None:
    topology = load_topology("hosts:2,1@uplink=40Mbit/s")
    with build(topology) as network:
        inside = next(link for link in range(topology.links) if network.blueprint.find_cable(link) is None)
        with pytest.raises(InputError, match="inside a host"):
            network.cut(inside)


def test_predictions_are_for_what_is_built() -> None:
    topology = load_topology("hosts:2,1@uplink=40Mbit/s,intra=10GB/s")
    there = emulated(topology)
    speeds = dict(zip(topology.bandwidth.tolist(), there.bandwidth.tolist(), strict=True))
    assert speeds == {5_000_000: 5_000_000 * 1448 // 1514, 10**10: 10**10}


def wait_for(condition: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.namespaces
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_lab_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path / "started"
    words = ["lab", "run", "switch:3@bw=50Mbit/s", "--", "sh", "-c", f"touch {mark}; sleep 1000"]
    process = subprocess.Popen(
        [str(WEFT), *words],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(mark)
    process.send_signal(number)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert not {name for name in spaces() if name.startswith(f"weftlab-{process.pid}-")}


@pytest.mark.namespaces
def test_what_no_cable_can_have_is_refused() -> None:
    with build("ring:3@bw=40Mbit/s") as network:
        for link in (-1, 99):
            with pytest.raises(InputError, match=f"no link {link}"):
                network.cut(link)
        for bandwidth in (0, -5, 10**12):
            with pytest.raises(InputError, match="bytes per second"):
                network.set_speed(0, bandwidth)


@pytest.mark.namespaces
def test_jobs_are_told_of_the_network_and_its_cables() -> None:
    with build("ring:3@bw=40Mbit/s") as network:
        seat = network.seats()[1]
        told = load_topology(seat.variables["WEFT_TOPOLOGY"])
        assert told.digest == network.topology.digest
        assert told.addresses
    assert not network.file.exists()


@pytest.mark.namespaces
def test_processes_that_start_others_when_told_to_end_are_ended() -> None:
    stubborn = "trap 'sleep 300 & sleep 300' TERM; while :; do sleep 300; done"
    with build("switch:2@bw=40Mbit/s") as network:
        name = network.names[0]
        line = [*network.seats()[0].prefix, "setsid", "--fork", "sh", "-c", stubborn]
        subprocess.run(line, check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(inside := ip("netns", "pids", name).split()) < 2:
            assert time.monotonic() < deadline
        space = Path("/proc", inside[0], "ns", "net").readlink()
    assert name not in spaces()
    left = [one for one in Path("/proc").glob("[0-9]*/ns/net") if read_link(one) == space]
    assert not left


def read_link(path: Path) -> Path | None:
    try:
        return path.readlink()
    except FileNotFoundError:  # it has just ended
        return None
