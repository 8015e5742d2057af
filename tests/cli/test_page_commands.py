"""Every command in the indented lines of pages is run by a test, or there is a reason why not.

``test_docs.py`` runs the commands that pages show with their output; here are the others. Commands that are
cheap are run here, in the order of their page, in one directory for each page. Whatever a new line has to be
listed in is named by the failure.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli.running import Run

from weft.cli import group

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
PROGRAMS = r"weft|torchrun|mpirun|make|pip|python|export|nvidia-smi|pgrep|pkill|tools/\S+|\.venv/\S+"
LINE = re.compile(rf"^    (?:\$ )?((?:[A-Z_]+=\S+ )*(?:{PROGRAMS})(?: (?:.*\\\n)*.*)?)$", re.MULTILINE)
SPAN = re.compile(r"`weft ([a-z][^`]*)`")

RUN_HERE = [
    ("docs/lab.md", "weft lab check"),
    ("docs/report.md", "weft plan torus:4x4 -o plan.weft"),
    ("docs/report.md", "weft report plan.weft -o report.html"),
    ("docs/topology.md", "weft import topology.conf -o cluster.toml"),
    ("docs/topology.md", "weft import topology.conf --box dgx-h100:1"),
    ("docs/training.md", "weft train torus:2x2 --model resnet50 --policy ddp --trace out.json"),
    ("docs/tutorial.md", "weft plan switch:2 --size 4MiB -o small.weft"),
]
RUN_HERE_SLOW = [
    ("docs/report.md", "weft compare hosts:8,4,2 --report report.html"),
    ("docs/report.md", "weft train torus:4x4 --model resnet50 --report report.html"),
    ("docs/report.md", "weft plan switch:4 --size 1MiB -o four.weft"),
    ("docs/report.md", "weft bench -R 4 -b 64K -e 1M -f 4 --plan four.weft --report report.html"),
    ("docs/training.md", "weft train 'switch:16@bw=1.25GB/s,lat=25us'"),
    ("docs/training.md", "weft train 'torus:{scale}'"),
]
"""They take more than 3 CPU seconds, or start processes of their own."""

RUN_BY = [
    (
        "docs/dear.md",
        "torchrun --nproc-per-node 4 examples/train_gpt.py",
        "torch/test_examples.py",
        "train_gpt",
    ),
    ("docs/engines.md", "mpirun -n 4 python -m mpi4py average.py", "runtime/test_engines.py", "average.py"),
    ("docs/engines.md", "torchrun --nproc-per-node 4 tensors.py", "runtime/test_engines.py", "tensors.py"),
    ("docs/frameworks.md", "torchrun", "frameworks/test_frameworks.py", "train_elastic"),
    (
        "docs/tutorial.md",
        "torchrun --nproc-per-node 2 two_boxes.py small.weft",
        "cli/test_tutorial.py",
        "two_boxes",
    ),
    ("docs/papers/dear.md", "torchrun", "torch/test_examples.py", "train_gpt"),
]
"""Page, beginning of the command, the test in tests/ that runs it, and a word of that test."""

BENCH = "tests/bench/test_bench.py runs smaller sizes of it"
LAUNCHED = "stands for a script of the reader; tests/runtime/test_launchers.py runs one under each launcher"
RUNS_ALL = "it runs tests or installs; CONTRIBUTING.md and the Makefile say which"
SEVERAL_HOSTS = "needs several machines"
GPUS = "needs GPUs; tests/torch/test_gpu_check.py runs what does not"
NOT_RUN = [
    ("CONTRIBUTING.md", "make ", RUNS_ALL),
    (
        "CONTRIBUTING.md",
        ".venv/bin/python tools/remake_claims.py",
        "stores claims; tests/papers run the same code",
    ),
    ("docs/bench.md", "weft bench", BENCH),
    (
        "docs/bench.md",
        "weft run -n 4 -- weft bench",
        "tests/bench/test_bench.py runs one inside a job of its own",
    ),
    ("docs/engines.md", "pip install", "installs what make install has installed"),
    ("docs/engines.md", "torchrun --nproc-per-node 8 gpus.py", GPUS),
    ("docs/engines.md", "torchrun --nnodes 2", GPUS),
    (
        "docs/failures.md",
        "pgrep",
        "tests/runtime/test_launchers.py sends the signal to the ranks of each launcher",
    ),
    (
        "docs/failures.md",
        "pkill",
        "tests/runtime/test_launchers.py sends the signal to the ranks of each launcher",
    ),
    ("docs/failures.md", "weft explain .", "of the records of a job; test_docs.py runs it on stored ones"),
    (
        "docs/lab.md",
        "weft lab run",
        "stands for a script; tests/lab/test_network.py runs one in the same way",
    ),
    ("docs/lab.md", "weft lab run hosts:4,2,1 -- weft bench", "tests/lab/test_network.py runs it with less"),
    ("docs/lab.md", "weft lab bench", "tests/lab/test_bench.py runs it with smaller sizes"),
    (
        "docs/papers/dear.md",
        "weft train cluster.toml",
        "of a probed cluster; docs/training.md sweeps the same way",
    ),
    ("docs/papers/dear.md", "weft run -n 4 -- weft probe", "tests/cli/test_probe.py runs it with two ranks"),
    ("docs/probe.md", "weft run -n 4 -- weft probe", "tests/cli/test_probe.py runs it with two ranks"),
    ("docs/probe.md", "mpirun --host", SEVERAL_HOSTS),
    (
        "docs/pytorch.md",
        "weft run -n 4 --keep-going train.py",
        "tests/torch/test_surviving.py runs the page's job",
    ),
    ("docs/pytorch.md", "tools/gpu-check", GPUS),
    ("docs/runtime.md", "weft run -n 4 train.py", LAUNCHED),
    ("docs/runtime.md", "weft run -n 4 -- python", LAUNCHED),
    (
        "docs/runtime.md",
        "weft run -n 4 --restarts",
        "tests/cli/test_run_restarts.py runs a job with checkpoints",
    ),
    ("docs/runtime.md", "torchrun", LAUNCHED),
    ("docs/runtime.md", "mpirun -n 4", LAUNCHED),
    ("docs/runtime.md", "export", SEVERAL_HOSTS),
    ("docs/runtime.md", "mpirun --host", SEVERAL_HOSTS),
    ("docs/soak.md", "weft soak", "takes minutes; tests/soak/test_soak.py runs it for seconds"),
    ("docs/studio.md", "pip install", "installs what make install has installed"),
    (
        "docs/studio.md",
        "weft studio",
        "serves until it is interrupted; tests/cli/test_studio.py starts and ends it",
    ),
    ("docs/sweeps.md", "mpirun -n 4", "tests/sweeps/test_points.py runs a sweep on MPI with fewer points"),
    ("docs/sweeps.md", "weft train", "needs a cluster of Dask or Ray; make executors runs such sweeps"),
    (
        "docs/topology.md",
        "weft import ibnet.txt",
        "files of the reader; tests/cli/test_import.py has such files",
    ),
    ("docs/topology.md", "NCCL_TOPO_DUMP_FILE", GPUS),
    ("docs/topology.md", "nvidia-smi", GPUS),
    ("docs/torch-suite.md", "make ", RUNS_ALL),
    (
        "docs/torch-suite.md",
        "PYTHONPATH=tools",
        "takes ten minutes; tests/unit/test_torch_suite.py runs a part",
    ),
    ("docs/tutorial.md", "tools/gpu-check", GPUS),
    ("docs/tutorial.md", "torchrun --nnodes 2", GPUS),
]
"""Page, beginning of the command, and why it is not run."""


def lines(text: str) -> list[str]:
    """Return the commands in the indented lines of a page, without comments."""
    found = LINE.findall(FENCED.sub("", text))
    return [re.sub(r"\s+# .*|\s{4,}\S.*$", "", re.sub(r"\\\n\s*", "", line)).strip() for line in found]


def listed() -> Iterator[tuple[str, str]]:
    """Yield page and beginning of every command that this file knows."""
    for entries in (RUN_HERE, RUN_HERE_SLOW, RUN_BY, NOT_RUN):
        for page, start, *_ in entries:
            yield page, start


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_run_or_has_a_reason(page: Path) -> None:
    known = [start for name, start in listed() if name == name_of(page)]
    assert [line for line in lines(page.read_text("utf-8")) if not line.startswith(tuple(known))] == []


def test_every_entry_is_about_a_command() -> None:
    texts = {name_of(page): lines(page.read_text("utf-8")) for page in PAGES}
    stale = [
        (page, start) for page, start in listed() if not any(line.startswith(start) for line in texts[page])
    ]
    assert stale == []


def test_the_check_finds_a_new_command() -> None:
    text = "    weft new --option 1   # why\n    $ torchrun \\\n        job.py\n\n```sh\n    make it\n```\n"
    assert lines(text) == ["weft new --option 1", "torchrun job.py"]


@pytest.mark.parametrize(("page", "start", "test", "word"), RUN_BY)
def test_the_tests_that_are_named_have_the_program(page: str, start: str, test: str, word: str) -> None:
    assert word in (ROOT / "tests" / test).read_text("utf-8"), (page, start)


@pytest.mark.parametrize(
    "page",
    [
        *sorted({page for page, _ in RUN_HERE}),
        *(
            pytest.param(page, marks=[pytest.mark.slow, pytest.mark.timeout(600)])
            for page in sorted({page for page, _ in RUN_HERE_SLOW})
        ),
    ],
)
def test_cheap_commands_run(page: str, weft: Run, request: pytest.FixtureRequest) -> None:
    is_slow = request.node.get_closest_marker("slow") is not None
    starts = tuple(start for name, start in (RUN_HERE_SLOW if is_slow else RUN_HERE) if name == page)
    shutil.copy(ROOT / "tests" / "data" / "topology" / "tree.slurm.conf", "topology.conf")
    chosen = [line for line in lines((ROOT / page).read_text("utf-8")) if line.startswith(starts)]
    assert len(chosen) >= len(starts)
    for line in chosen:
        done = weft(*shlex.split(line)[1:])
        # A machine that can emulate no cluster says so by code 2.
        assert done.code == 0 or (line == "weft lab check" and done.code == 2), (line, done.err)


def check_span(words: list[str]) -> str | None:
    """What is wrong with the options of a command in running text; None if nothing is."""
    command: click.Command | None = group.get_command(click.Context(group), words[0])
    if command is None:
        return f"there is no command {words[0]}"
    while isinstance(command, click.Group) and len(words) > 1 and words[1] in command.commands:
        words = words[1:]
        command = command.commands[words[0]]
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    for word in words[1:]:
        if word == "--":
            break  # what follows is the command of a job
        if word.startswith("-") and (option := word.partition("=")[0]) not in known:
            return f"{words[0]} has no {option}"
        if words[0] == "run" and word.endswith(".py"):
            break
    return None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_running_text_have_existing_options(page: Path) -> None:
    spans = [shlex.split(span) for span in SPAN.findall(FENCED.sub("", page.read_text("utf-8")))]
    assert [(words, wrong) for words in spans if words and (wrong := check_span(words))] == []


def test_an_option_that_does_not_exist_is_found() -> None:
    assert check_span(["compare", "torus:4x4", "--no-such"]) == "compare has no --no-such"
    assert check_span(["lab", "bench", "--no-such"]) == "bench has no --no-such"
    assert check_span(["run", "-n", "2", "--", "job", "--own"]) is None
