"""``weft lab bench``: contests on emulated clusters, and what is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.jobs import WEFT


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(WEFT), "lab", *words], check=False, capture_output=True, text=True, timeout=240
    )


@pytest.mark.namespaces
def test_everyone_is_measured_and_predicted() -> None:
    spec = "ring:3@bw=40Mbit/s"
    words = ("--size", "200kB", "--algorithm", "direct", "--against", "gloo,mpi", "-r", "2", "--json")
    done = lab("bench", spec, *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["topology"], found["ranks"], found["size_bytes"], found["rounds"]) == (spec, 3, 200_000, 2)
    by_name = {one["name"]: one for one in found["results"]}
    assert list(by_name) == ["weft", "weft direct", "gloo, rank order", "mpi"]
    assert by_name["weft direct"]["algorithm"] == "direct"
    assert len(by_name["weft"]["digest"]) == 64
    assert by_name["mpi"]["predicted_seconds"] is None
    for one in found["results"]:
        assert one["wrong"] == 0
        assert len(one["seconds"]) == 2
        if one["predicted_seconds"] is not None:
            # Nothing can be faster than the shaped links, and what is sent is known.
            assert one["median_seconds"] > 0.9 * one["predicted_seconds"]


@pytest.mark.namespaces
def test_a_page_shows_measured_beside_predicted_times(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = lab("bench", "switch:2@bw=40Mbit/s", "--size", "40kB", "-r", "1", "--report", str(page))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"\nwrote {page}, {page.stat().st_size:,} bytes\n")
    text = page.read_text("utf-8")
    assert '"title":"Predicted beside measured: 40KB on switch:2@bw=40Mbit/s, emulated"' in text
    assert '"label":"weft"' in text


@pytest.mark.namespaces
def test_a_table_has_a_line_for_each() -> None:
    done = lab("bench", "switch:2@bw=40Mbit/s", "--size", "40kB", "-r", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split()[:2] == ["runtime", "algorithm"]
    assert lines[3].startswith("weft ")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("bench", "switch:2", "--size", "1MB", "--against", "carrier-pigeon"), "no such peer"),
        pytest.param(
            ("bench", "switch:2@bw=40Mbit/s", "--size", "1MB", "--against", "oneccl"),
            "within one host only",
            marks=pytest.mark.namespaces,
        ),
        (("bench", "switch:2", "--size", "1MB", "--algorithm", "quick"), "quick"),
        (("bench", "switch:2", "--size", "1MB", "--scale", "0"), "--scale '0': give a factor"),
        (("bench", "switch:2", "--size", "1MB", "--timeout", "nan"), "--timeout 'nan': give seconds"),
        (("run", "switch:2@bw=1kbit/s", "--", "true"), "differ too much for a lab"),
        (("run", "fullmesh:64", "--", "true"), "cables in a lab"),
        (("run", "switch:2", "nowhere.py"), "nowhere.py: no such file"),
        (("run", "switch:2", "--"), "no command behind --"),
        (("run", "switch:2", "--", "no-such-program"), "no-such-program: cannot be started"),
        (("run", "--scale", "1000", "switch:2", "--", "true"), "give a smaller --scale"),
        (("bench", "switch:2", "--size", "3"), "--size 3: a rank has at least one element"),
        (("run", "nonsense:2", "--", "true"), "nonsense"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(words: tuple[str, ...], text: str) -> None:
    done = lab(*words)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.splitlines()[-1].startswith("weft: error: ")


TORCH = """
import torch
from torch import distributed

distributed.init_process_group("gloo")
total = torch.full((1000,), float(distributed.get_rank() + 1))
distributed.all_reduce(total)
assert (total == 6).all()
distributed.destroy_process_group()
"""


@pytest.mark.namespaces
def test_scripts_of_torch_find_each_other(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(TORCH, "utf-8")
    done = lab("run", "hosts:2,1@uplink=40Mbit/s", str(script))
    assert done.returncode == 0, done.stderr


@pytest.mark.namespaces
def test_the_exit_code_is_that_of_the_rank_that_failed() -> None:
    done = lab("run", "switch:3@bw=40Mbit/s", "--", "sh", "-c", "test $WEFT_RANK -ne 1 || exit 7; sleep 60")
    assert done.returncode == 7
    assert "rank 1 failed first: exit code 7" in done.stderr
