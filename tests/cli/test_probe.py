"""``weft probe`` on this machine, where the ranks share memory and there is no network."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli.running import Run
from support.jobs import WEFT

from weft.topology import load_topology


def run_probe(ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(WEFT), "run", "-n", str(ranks), "--", str(WEFT), "probe", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_outside_a_job_it_says_how_to_start_one(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEFT_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    outcome = weft("probe")
    assert outcome.code == 2
    assert "not a rank of any job" in outcome.err
    assert "weft run -n 4" in outcome.err


def test_ranks_of_one_machine_hang_on_one_switch(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    done = run_probe(3, "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"[0] wrote {path}, 3 ranks, 6 links\n"
    found = load_topology(path)
    assert (found.ranks, found.switches, found.hosts, found.name) == (3, 1, ((0, 1, 2),), "machine")


def test_a_page_shows_what_was_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run_probe(2, "-o", str(tmp_path / "machine.toml"), "--report", str(page))
    assert done.returncode == 0, done.stderr
    assert f"[0] wrote {page}, {page.stat().st_size:,} bytes\n" in done.stdout
    assert '"title":"machine"' in page.read_text("utf-8")


def test_a_rank_alone_has_nothing_to_measure() -> None:
    done = run_probe(1)
    assert done.returncode == 2
    assert "one rank alone has no network" in done.stderr


def test_an_output_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    done = run_probe(2, "-o", str(tmp_path / "missing" / "file.toml"))
    assert done.returncode == 2
    assert "there is no directory" in done.stderr


def test_a_claim_about_more_ranks_is_refused() -> None:
    done = run_probe(2, "--verify", "switch:3")
    assert done.returncode == 2
    assert "switch:3 has 3 ranks, this job 2" in done.stderr


def test_a_tolerance_without_a_claim_is_refused() -> None:
    done = run_probe(2, "--tolerance", "0.2")
    assert done.returncode == 2
    assert "there is nothing to compare with" in done.stderr


def test_a_claim_that_memory_does_not_keep_fails() -> None:
    done = run_probe(2, "--verify", "switch:2@bw=100TB/s")
    assert done.returncode == 1
    assert "4 of 4 links are slower than claimed" in done.stdout
