"""``weft train``: an iteration of training, alone or in a sweep, and what is refused."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli.running import Run
from support.engines import AS_ROOT, MPIRUN

from weft.training.job import TrainingJob
from weft.training.sweep import expand, sweep

SLOW = "switch:4@bw=125MB/s,lat=25us"
SMALL = """
import torch

def make_model():
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    return torch.nn.Sequential(*layers), torch.zeros(16, 256)

def nothing():
    return None

def broken():
    raise RuntimeError("my own mistake")
"""


@pytest.fixture(autouse=True)
def small(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL, "utf-8")


def test_a_job_tells_time_exposure_lines_and_use(weft: Run) -> None:
    found = weft("train", SLOW, "--model", "resnet50", "--policy", "ddp", "--json").document
    assert found["ranks"] == 4
    assert found["policy"] == "ddp"
    assert found["parameter_bytes"] == 4 * 25_557_032
    assert found["seconds"] >= found["lines"]["ideal-wfbp"] * (1 - 1e-6)
    assert found["seconds"] == pytest.approx(found["computing_s"] + found["exposed_s"])
    assert found["computing_s"] == pytest.approx(found["forward_s"] + found["backward_s"])
    assert found["samples_per_s"] == pytest.approx(4 * 64 / found["seconds"])
    assert 0.5 < found["resource_use"]["links"] <= 1
    assert found["busiest_links"][0]["busy"] >= found["resource_use"]["links"]


def test_left_to_choose_it_says_why(weft: Run) -> None:
    slow = weft("train", "switch:4@bw=600MB/s,lat=25us", "--model", "resnet50").out
    assert "dear for resnet50" in slow
    assert "times with ideal overlap)" in " ".join(slow.split())
    fast = weft("train", "switch:4@bw=100GB/s,lat=1us", "--model", "resnet50").out
    assert "so dear cannot win" in fast


def test_dear_where_it_cannot_win_is_advised_against(weft: Run) -> None:
    found = weft("train", "switch:4@bw=100GB/s,lat=1us", "--model", "resnet50", "--policy", "dear").out
    assert "use WFBP: communication" in found


def test_fusion_and_options_reach_the_policy(weft: Run) -> None:
    words = ("train", SLOW, "--model", "small.py:make_model", "--json")
    assert weft(*words, "--policy", "ddp", "--fusion", "1MB").document["options"] == {
        "bucket_bytes": 1_000_000,
        "first_bucket_bytes": 1_000_000,
    }
    whole = weft(*words, "--policy", "dear", "--option", "threshold_bytes=1GB").document
    cut = weft(*words, "--policy", "dear", "--fusion", "1", "--option", "prefetch=none").document
    assert whole["options"] == {"threshold_bytes": 10**9}
    assert cut["options"] == {"threshold_bytes": 1, "prefetch": None}
    assert cut["seconds"] != whole["seconds"]


def test_the_size_of_buckets_is_printed_as_it_was_given(weft: Run) -> None:
    words = ("train", "switch:4@bw=100GB/s,lat=1us", "--model", "resnet50", "--policy", "ddp")
    given = " ".join(weft(*words, "--fusion", "500MB").out.split())
    assert "bucket_bytes 500MB, first_bucket_bytes 500MB: PyTorch's buckets (by default 25 MiB" in given
    odd = " ".join(weft(*words, "--fusion", "123456789").out.split())
    assert "bucket_bytes 117.7 MiB," in odd


def test_every_policy_runs_and_none_beats_its_line(weft: Run) -> None:
    from weft.training import policies

    for name, policy in policies.POLICIES.items():
        found = weft("train", SLOW, "--model", "small.py:make_model", "--policy", name, "--json").document
        assert found["seconds"] >= found["lines"][policy.line] * (1 - 1e-6), name


def test_every_endpoint_runs(weft: Run) -> None:
    from weft.training.endpoints import ENDPOINTS

    found = {}
    for name in ENDPOINTS:
        words = ("--model", "small.py:make_model", "--device", "ace-npu", "--algorithm", "four_phase")
        found[name] = weft("train", "ace:2x2x2", *words, "--endpoint", name, "--json").document
    assert found["no-overlap"]["policy"] == "serial"
    assert found["ace"]["seconds"] >= found["ideal"]["seconds"]
    assert {"memory", "adding"} <= set(found["ace"]["resource_use"])


# Not a script, for which each worker would import torch: test_a_sweep_has_every_combination_in_order has it.
ON_PACKAGES = ("train", "ace:2x2x2", "--model", "multitree-ncf", "--device", "ace-npu")


def test_all_endpoints_are_shown_side_by_side(weft: Run) -> None:
    words = (*ON_PACKAGES, "--algorithm", "four_phase", "--policy", "gradient-first", "--endpoint", "all")
    rows = weft(*words, "--json").document["results"]
    assert [row["endpoint"] for row in rows] == ["no-overlap", "comm-opt", "comp-opt", "ace", "ideal"]
    assert [row["policy"] for row in rows] == ["serial"] + ["gradient-first"] * 4
    assert rows[4]["seconds"] <= min(row["seconds"] for row in rows)
    shown = weft(*words).out.splitlines()
    best = min(row["seconds"] for row in rows[:3])
    for row in rows:
        (line,) = (line for line in shown if line.startswith(f"{row['endpoint']} "))
        assert line.endswith(f" {best / row['seconds']:.2f}x")


def test_all_endpoints_may_take_only_while_sending(weft: Run) -> None:
    words = (*ON_PACKAGES, "--algorithm", "four_phase", "--json")
    always = weft(*words, "--endpoint", "all").document["results"]
    sending = weft(*words, "--endpoint", "all:while-sending").document["results"]
    assert sending[1]["endpoint"] == "comm-opt:while-sending"
    for often, seldom in zip(always, sending, strict=True):
        assert seldom["seconds"] <= often["seconds"] * (1 + 1e-6)
    assert sending[1]["seconds"] < always[1]["seconds"]


def test_endpoints_are_named_once(weft: Run) -> None:
    found = weft(*ON_PACKAGES, "--endpoint", "all", "--sweep", "endpoint=ace,ideal")
    assert found.code == 2
    assert "--sweep names endpoints already" in found.err
    assert weft(*ON_PACKAGES, "--endpoint", "all", "--trace", "t.json").code == 2


def test_a_straggler_delays_everyone_and_a_seed_repeats(weft: Run) -> None:
    words = ("train", SLOW, "--model", "small.py:make_model", "--device", "multitree-array", "--json")
    assert weft(*words).code == 2  # a traced model has no shapes for that
    words = ("train", "switch:4", "--model", "resnet50", "--policy", "ddp", "--json")
    plain = weft(*words).document["seconds"]
    late = weft(*words, "--straggler", "2=1.5").document
    assert late["seconds"] == pytest.approx(1.5 * plain, rel=0.01)
    noisy = [weft(*words, "--jitter", "0.1", "--seed", seed).document["seconds"] for seed in (1, 1, 2)]
    assert noisy[0] == noisy[1] != noisy[2]
    assert noisy[0] > plain


def test_a_plan_brings_its_schedules(weft: Run) -> None:
    assert weft("plan", "torus:2x2", "--algorithm", "ring", "--size", "1MB", "-o", "plan.weft").code == 0
    found = weft(
        "train", "plan.weft", "--model", "small.py:make_model", "--policy", "wfbp", "--json"
    ).document
    assert found["algorithms"] == {"all_reduce": ["ring"]}


def test_a_plan_that_was_written_anew_is_read_anew(weft: Run) -> None:
    """A process that simulates many jobs keeps what it has read, but not what a file held before."""
    for algorithm in ("ring", "multitree"):
        words = ("plan", "torus:2x2", "--algorithm", algorithm, "--size", "1MB", "-o", "plan.weft")
        assert weft(*words).code == 0
        found = weft("train", "plan.weft", "--model", "small.py:make_model", "--policy", "wfbp", "--json")
        assert found.document["algorithms"] == {"all_reduce": [algorithm]}


def test_a_preset_computes_on_its_own_device(weft: Run) -> None:
    words = ("--model", "small.py:make_model", "--policy", "wfbp", "--json")
    assert weft("train", "dgx-h100:1", *words).document["device"] == "h100"
    assert weft("train", "dgx-h100:1", "--device", "a100", *words).document["device"] == "a100"
    assert weft("train", "ring:3", *words).document["device"] == "v100"


def test_the_trace_shows_layers_collectives_and_links(weft: Run, tmp_path: Path) -> None:
    done = weft("train", "ring:3", "--model", "small.py:make_model", "--policy", "wfbp", "--trace", "t.json")
    assert done.code == 0
    assert "wrote t.json" in done.out
    events = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"computing", "collectives", "waiting", "0->1"} <= tracks
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert {"forward 0", "backward 3", "all_reduce 0", "wait"} <= names
    by_track: dict[tuple[int, int], float] = {}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        track = event["pid"], event["tid"]
        assert event["ts"] >= by_track.get(track, 0.0) - 1e-6, event
        by_track[track] = event["ts"] + event["dur"]


def test_a_trace_shows_the_ranks_and_links_that_are_named(weft: Run, tmp_path: Path) -> None:
    words = ("train", "ring:4", "--model", "multitree-ncf", "--policy", "wfbp", "--trace", "t.json")
    done = weft(*words, "--trace-ranks", "1,3", "--trace-links", "0->1", "--trace-iteration", "1")
    assert (done.code, done.err) == (0, "")
    events = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]}
    assert names == {"rank 1", "rank 3", "links", "computing", "waiting", "collectives", "0->1"}


def test_a_trace_that_is_cut_down_says_what_it_leaves_out(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.limits.MAX_TRACE_EVENTS", 200)
    done = weft("train", "ring:4", "--model", "multitree-ncf", "--policy", "wfbp", "--trace", "t.json")
    assert done.code == 0
    assert done.err.startswith("weft: the trace leaves out all iterations but number 2")
    assert "wrote t.json" in done.out


def test_a_trace_of_what_is_not_there_is_refused_before_the_work(weft: Run) -> None:
    words = ("train", "ring:4", "--model", "multitree-ncf", "--trace", "t.json")
    done = weft(*words, "--policy", "no such policy", "--trace-ranks", "7")
    assert done.code == 2
    assert "there are ranks 0 to 3" in done.err
    done = weft(*words[:-2], "--trace-ranks", "1")
    assert (done.code, "give --trace FILE" in done.err) == (2, True)


def test_a_sweep_has_every_combination_in_order(weft: Run) -> None:
    words = ("switch:{scale}", "--model", "small.py:make_model", "--jobs", 2, "--json")
    found = weft("train", *words, "--sweep", "policy=wfbp,dear", "--sweep", "scale=2,4").document["results"]
    assert [row["sweep"] for row in found] == [
        {"policy": policy, "scale": scale} for policy in ("wfbp", "dear") for scale in ("2", "4")
    ]
    assert [row["ranks"] for row in found] == [2, 4, 2, 4]
    alone = weft("train", "switch:4", "--model", "small.py:make_model", "--policy", "dear", "--json").document
    assert found[3]["seconds"] == alone["seconds"]


def test_a_job_of_a_sweep_that_cannot_be_says_so_beside_the_others(weft: Run) -> None:
    words = ("ring:4", "--model", "multitree-ncf", "--algorithm", "ring", "--jobs", 1)
    done = weft("train", *words, "--sweep", "policy=wfbp,deer")
    assert done.code == 0
    assert "policy deer: there is no policy 'deer'" in done.out


def test_any_executor_of_concurrent_futures_will_do() -> None:
    job = TrainingJob("multitree-alphagozero", "ring:{scale}", policy="wfbp")
    points = expand(job, {"scale": ["2", "3"], "fusion": ["1", "1GB"]})
    seen: list[int] = []
    with ThreadPoolExecutor(2) as executor:
        found = sweep(points, executor, report=lambda _text, done, _all: seen.append(done))
    assert [row["ranks"] for row in found] == [2, 2, 3, 3]
    assert seen[0] == 0
    assert seen[-1] == 4


def test_a_sweep_on_mpi(tmp_path: Path) -> None:
    words = ["train", "switch:{scale}", "--model", "multitree-ncf", "--sweep", "scale=2,4", "--json"]
    start = [MPIRUN, "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures", "-m", "weft"]
    done = subprocess.run(
        [*start, *words, "--executor", "mpi"],
        cwd=tmp_path,
        env=os.environ | AS_ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["ranks"] for row in json.loads(done.stdout)["results"]] == [2, 4]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--model", "resnet5"), "there is no workload 'resnet5'; did you mean resnet50"),
        (("--model", "resnet50", "--policy", "deer"), "Known: serial, wfbp, ddp"),
        (("--model", "resnet50", "--endpoint", "acee"), "Known: free, ideal"),
        (("--model", "resnet50", "--device", "v10"), "Known: v100"),
        (("--model", "resnet50", "--algorithm", "rings"), "Known: ring"),
        (("--model", "resnet50", "--dtype", "fp8"), "expected one of fp32, fp16"),
        (("--model", "resnet50", "--batch", "99999999"), "more than the 1,048,576"),
        (("--model", "resnet50", "--batch", "0"), "0 is not in the range"),
        (("--model", "resnet50", "--fusion", "0"), "at least 1"),
        (("--model", "resnet50", "--policy", "mg-wfbp", "--fusion", "1MB"), "its options: smallest_bytes"),
        (("--model", "resnet50", "--policy", "dear", "--option", "x=1"), "its options: threshold_bytes"),
        (("--model", "resnet50", "--policy", "dear", "--option", "prefetch"), "expected NAME=VALUE"),
        (("--model", "resnet50", "--straggler", "9=2"), "ranks are 0 to 3"),
        (("--model", "resnet50", "--straggler", "0=1e15"), "at most 1,000,000"),
        (("--model", "resnet50", "--straggler", "0=2", "--straggler", "0=3"), "slow already"),
        (("--model", "resnet50", "--option", "prefetch=1"), "auto chooses options, too"),
        (
            ("--model", "resnet50", "--policy", "dear", "--fusion", "1MB", "--option", "threshold_bytes=5"),
            "set already",
        ),
        (("--model", "resnet50", "--straggler", "a=b"), "such as 3=1.5"),
        (("--model", "resnet50", "--jitter", "7"), "0 to 1"),
        (("--model", "resnet50", "--sweep", "colour=red"), "keys are policy, fusion"),
        (("--model", "resnet50", "--sweep", "scale=2"), "{scale} in the topology"),
        (("--model", "resnet50", "--sweep", "batch=-1"), "expected whole numbers"),
        (("--model", "resnet50", "--sweep", "policy=ddp", "--trace", "t.json"), "a sweep writes none"),
        (("--model", "resnet50", "--jobs", "2"), "they are for --sweep"),
        (("--model", "resnet50", "--endpoint", "no-overlap", "--policy", "dear"), "use --policy serial"),
        (("--model", "resnet50", "--endpoint", "comm-opt", "--device", "multitree-array"), "does not model"),
        (("--model", "small.py:nobody"), "nobody"),
        (("--model", "small.py"), "'small.py' names no function; expected script.py:function"),
        (("--model", "nowhere.py:make_model"), "no script nowhere.py"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_a_way_out(
    weft: Run, words: tuple[str, ...], complaint: str
) -> None:
    done = weft("train", "switch:4", *words)
    assert done.code == 2
    assert complaint in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_a_script_that_fails_shows_its_own_error_once(weft: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import no_such_module\n", "utf-8")
    for model, error in (
        ("bad.py:f", "No module named 'no_such_module'"),
        ("small.py:broken", "my own mistake"),
    ):
        done = weft("train", "switch:4", "--model", model)
        assert done.code == 2
        assert done.err.count(error) == 1
        assert done.err.count("\n") == 1
    assert weft("train", "switch:4", "--model", "small.py:nothing").code == 2


HOSTILE = """
import os
import sys
import torch

def good():
    return torch.nn.Linear(8, 8), torch.zeros(4, 8)

def prints():
    print("from Python")
    os.write(1, b"from below\\n")
    return good()

def lazy():
    return torch.nn.LazyLinear(8), torch.zeros(4, 8)

def odd():
    class Odd(BaseException):
        pass
    raise Odd("nothing usual")

def dies():
    os._exit(7)
"""


def test_what_a_script_prints_is_not_part_of_the_answer(weft: Run, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE, "utf-8")
    done = weft("train", "ring:2", "--model", "hostile.py:prints", "--json")
    assert done.document["ranks"] == 2
    assert "from Python" in done.err
    assert "from below" in done.err
    assert weft("train", "ring:2", "--model", "hostile.py:lazy", "--json").document["layers"] == 1


def test_a_job_that_kills_its_process_does_not_take_finished_ones_along(weft: Run, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE, "utf-8")
    models = ",".join(f"hostile.py:{name}" for name in ("good", "odd", "dies"))
    words = ("train", "ring:2", "--model", "x", "--sweep", f"model={models}", "--jobs", 1, "--json")
    found = weft(*words).document["results"]
    assert found[0]["ranks"] == 2
    assert "Odd: nothing usual" in found[1]["error"]
    assert "its process died" in found[2]["error"]


def test_a_sweep_of_which_nothing_can_be_fails(weft: Run) -> None:
    done = weft("train", "ring:2", "--model", "resnet50", "--sweep", "policy=a,b", "--jobs", 1)
    assert done.code == 2
    assert "none of the 2 jobs" in done.err


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_sweep_that_is_stopped(tmp_path: Path, sign: signal.Signals) -> None:
    mark = f"sweep-{secrets.token_hex(8)}"
    words = ["train", "switch:{scale}", "--model", "resnet50", "--jobs", "2"]
    scales = ",".join(map(str, range(32, 96)))
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", *words, "--sweep", f"scale={scales}", "--sweep", "policy=wfbp,ddp"],
        cwd=tmp_path,
        env=os.environ | {"WEFT_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(marked(mark)) >= 4, 60)  # itself, two helpers of Python's, a worker
        process.send_signal(sign)
        process.wait(60)
        wait_until(lambda: not marked(mark), 60)
    finally:
        for number in marked(mark):
            os.kill(number, signal.SIGKILL)
        process.wait(60)


def marked(mark: str) -> list[int]:
    """Processes that live and have inherited a mark."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # it is gone, or somebody else's
    return found


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
