"""The benchmark that holds the runtime against its peers: a quick run of it, and what it makes of results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.bench.bench_session import BenchSession
from weft.bench.task import BenchTask

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPT = FOLDER / "runtime" / "peers.py"
sys.path.insert(0, str(FOLDER / "runtime"))
sys.path.insert(0, str(FOLDER))

import machine_limits  # noqa: E402
import peers  # noqa: E402
import results_page  # noqa: E402


def times(*seconds: float) -> dict[str, Any]:
    """One contestant, as it is in a file."""
    return {
        "median_s": sorted(seconds)[len(seconds) // 2],
        "p10_s": peers.percentile(list(seconds), 10),
        "p90_s": peers.percentile(list(seconds), 90),
        "seconds": list(seconds),
        "wrong": 0,
    }


def row(size_bytes: int, capped: tuple[str, ...] = (), **contestants: dict[str, Any]) -> dict[str, Any]:
    """One size on two ranks; names have a blank where Python's have an underscore."""
    return {
        "dtype": "float32",
        "ranks": 2,
        "size_bytes": size_bytes,
        "limit": {"memory_s": 0.5, "wire_s": 2.0},
        "contestants": {name.replace("_", " "): one for name, one in contestants.items()},
        "capped": {name: {"cap_s": 0.5} for name in capped},
    }


def write(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "ranks-2.json").write_text(json.dumps({"parameters": {}, "results": rows}), "utf-8")


def test_a_peer_is_ahead_only_where_its_90th_percentile_is_below_the_10th_of_weft(tmp_path: Path) -> None:
    slow, mixed, fast = times(2, 2, 2), times(1, 1.5, 3), times(0.5, 0.5, 0.5)
    write(tmp_path, row(4, weft=slow, mpi=mixed, gloo=fast))
    found = {cell.peer: cell for cell in peers.read_cells(tmp_path)}
    assert (found["gloo"].ratio, found["gloo"].is_peer_ahead) == (0.25, True)
    assert (found["mpi"].ratio, found["mpi"].is_peer_ahead) == (0.75, False)


def test_tcp_is_held_against_gloo_alone_and_its_limit_is_the_wire(tmp_path: Path) -> None:
    one = times(4, 4, 4)
    write(tmp_path, row(1 << 20, weft=one, weft_shared=one, weft_tcp=one, gloo=one, mpi=one))
    found = [(cell.kind, cell.peer, cell.of_limit) for cell in peers.read_cells(tmp_path)]
    assert found == [
        ("private", "gloo", 0.125),
        ("private", "mpi", 0.125),
        ("shared", "gloo", 0.125),
        ("shared", "mpi", 0.125),
        ("tcp", "gloo", 0.5),
    ]


def test_table_marks_who_is_ahead_and_who_was_capped(tmp_path: Path) -> None:
    one, half = times(2, 2, 2), times(1, 1, 1)
    write(tmp_path, row(4, weft=one, gloo=half, mpich=one), row(1 << 20, ("mpich",), weft=one, gloo=one))
    assert peers.table(tmp_path).splitlines() == [
        "| tensors | ranks | peer | 4 B | 1 MiB |",
        "|---|---|---|---|---|",
        "| private | 2 | gloo | **0.50** | 1.00 |",
        "| private | 2 | mpich | 1.00 | capped |",
        "",
        "A peer is ahead in 1 of 3 cells (33.3 %); 1 more are capped. gloo in 1.",
    ]


def test_results_of_separate_runs_are_shown_while_there_are_no_others(tmp_path: Path) -> None:
    rows = [{"size_bytes": size, "ratios": {"gloo": 2 * size}} for size in peers.OLD_SIZES]
    (tmp_path / "tcp-ring-4.json").write_text(json.dumps({"results": rows[1:]}), "utf-8")
    assert peers.table(tmp_path).splitlines() == [
        "| tensors | ranks | peer | 4 KiB | 32 KiB | 256 KiB | 2 MiB | 16 MiB | 128 MiB |",
        "|---|---|---|---|---|---|---|---|---|",
        "| tcp-ring | 4 | gloo |  | 65536.00 | 524288.00 | 4194304.00 | 33554432.00 | 268435456.00 |",
    ]


def test_no_copy_of_the_working_set_is_faster_than_the_limit_of_memory() -> None:
    with machine_limits.MemoryLimit(2, 1 << 20) as limit:
        limit.sample()
        limit.sample()
        found = limit.to_dict()
    assert found["touched_bytes"] == 4 << 20
    assert found["memory_s"] == pytest.approx((4 << 20) / max(limit.bytes_per_s.values()))
    assert min(found[f"{way}_GBps"] for way in machine_limits.WAYS) > 0


def test_limit_of_the_wire_counts_what_all_ranks_have_to_send() -> None:
    with machine_limits.WireLimit(3) as wire:
        wire.sample(1 << 20)
        assert wire.bytes_per_s > 0
        assert wire.seconds(300) == pytest.approx(4 * 300 / wire.bytes_per_s)


def test_quick_results_are_not_kept_beside_the_others() -> None:
    done = run("--quick")
    assert done.returncode == 2
    assert "--quick needs --out" in done.stderr


def test_a_quick_run_has_every_job_the_limits_and_a_table(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run("--quick", "--peers", "gloo", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "ranks-2.json").read_text("utf-8"))
    assert found["parameters"]["stopped"] is None
    rows = {one["size_bytes"]: one for one in found["results"]}
    assert list(rows) == list(peers.QUICK_SIZES)
    assert set(rows[4]["contestants"]) == {"weft", "weft shared", "gloo"}, "TCP is for larger sizes"
    assert set(rows[1 << 20]["contestants"]) == {*peers.OWN, "gloo"}
    assert rows[4]["limit"] == {}
    assert rows[1 << 20]["limit"]["memory_s"] > 0
    assert rows[1 << 20]["limit"]["wire_s"] > 0
    for one in rows.values():
        for who in one["contestants"].values():
            assert len(who["seconds"]) == peers.QUICK_ROUNDS
            assert who["wrong"] == 0
    assert run("--table", "--out", str(tmp_path)).stdout == done.stdout
    assert done.stdout.startswith("| tensors | ranks | peer | 4 B | 16 KiB | 1 MiB |")
    page = results_page.table(tmp_path, tmp_path, tmp_path).splitlines()[2:]
    assert [line.split(" ranks, ")[1].split(" | ")[0] for line in page] == [
        "over TCP",
        "private memory",
        "memory of `comm.empty`",
        "over TCP",
    ]


def test_what_is_not_there_ends_the_run_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_ONECCL", str(tmp_path / "nowhere"))
    done = run("--quick", "--peers", "oneccl", "--out", str(tmp_path))
    assert done.returncode == 1
    assert "failed: --against oneccl" in done.stderr
    assert not list(tmp_path.iterdir())


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words], check=False, capture_output=True, text=True, timeout=250
    )


def test_a_peer_that_fails_is_ended_recorded_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """A peer that hangs or dies must not go on using the processors that the others are measured on."""
    pytest.importorskip("torch")
    with BenchSession(90) as session, machine_limits.WireLimit(2) as wire:
        contest = peers.Contest(session, 2, ["gloo"])
        for rank in contest.jobs["gloo"]._ranks:
            os.kill(rank.pid, signal.SIGKILL)
        case = peers.Case(BenchTask("all_reduce", "float32", "sum", 2, 64))
        contest.hold(case, ["weft", "gloo"], wire, 2, 0.0)
        found = case.to_dict()
        contest.leave()
    assert set(found["contestants"]) == {"weft"}
    assert len(found["contestants"]["weft"]["seconds"]) == 2
    assert found["capped"]["gloo"]["size_bytes"] == 256
    assert "gloo is left out from 256 B on" in capsys.readouterr().err
