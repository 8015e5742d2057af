"""Try what of Weft may work on GPUs, and write a report to send back: nobody has run these paths on one.

tools/gpu-check                one rank per GPU of this machine, NCCL between them
tools/gpu-check --cpu          the same parts on CPUs, with gloo in NCCL's place, to see that the check works

Every part is a job of its own with a deadline: one that fails, crashes or hangs is reported, and the others
still run. The report holds versions, names of GPUs, times and errors, and nothing else of the machine.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

STEPS, BATCH, WIDTH = 12, 16, 256
TOLERANCE = 1e-4
OUTPUT_CHARACTERS = 6000


class Rank:
    """One rank of a part: where its tensors are, and which backend of torch's serves them."""

    def __init__(self, store: Path, *, cpu: bool) -> None:
        self.store, self.cpu, self.number = store, cpu, int(os.environ["RANK"])
        self.backend = "gloo" if cpu else "nccl"
        self.device = torch.device("cpu") if cpu else torch.device("cuda", self.number)
        self.timeout = timedelta(seconds=30)
        if not cpu:
            torch.cuda.set_device(self.device)

    def open(self, backend: str) -> None:
        """Make the group of all ranks."""
        # A file has no port that another program might take meanwhile.
        dist.init_process_group(
            backend,
            init_method=f"file://{self.store}",
            rank=self.number,
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=self.timeout,
        )

    def check_sum(self, device: torch.device, group: dist.ProcessGroup | None = None) -> None:
        """All-reduce a million numbers, and look at the result."""
        numbers = torch.full((1 << 20,), float(self.number + 1), device=device)
        dist.all_reduce(numbers, group=group)
        expected = dist.get_world_size() * (dist.get_world_size() + 1) / 2
        if not bool((numbers == expected).all()):
            message = f"all_reduce on {device}: expected {expected}, got {numbers[:4].tolist()}"
            raise RuntimeError(message)

    def synchronize(self) -> None:
        """Return once the GPU has done what it was given."""
        if not self.cpu:
            torch.cuda.synchronize(self.device)


def try_group(rank: Rank) -> dict[str, Any]:
    """One group for both kinds of memory: Weft's on CPUs, NCCL's on GPUs."""
    rank.open(f"cpu:weft,cuda:{rank.backend}")
    found = {"group": type(dist.group.WORLD).__name__, "backend": dist.get_backend()}
    rank.check_sum(torch.device("cpu"))
    if rank.cpu:
        return {**found, "not tried": "tensors on GPUs"}
    rank.check_sum(rank.device)
    return found


def try_two_groups(rank: Rank) -> dict[str, Any]:
    """Torch's own group for the GPUs, and a second one of backend weft for tensors on CPUs."""
    import weft.torch

    rank.open(rank.backend)
    on_cpus = dist.new_group(backend="weft", timeout=rank.timeout)
    for _ in range(3):
        rank.check_sum(rank.device)
        rank.check_sum(torch.device("cpu"), on_cpus)
    last = weft.torch.communicator(on_cpus).last
    return {"last": last and last.algorithm}


def try_engine(rank: Rank) -> dict[str, Any]:
    """Weft's schedules over torch's own group, on tensors of the device."""
    import weft

    rank.open(rank.backend)
    algorithms = ("ring", "direct", "halving_doubling")
    for algorithm in algorithms:
        with weft.init(engine="torch", algorithm=algorithm, timeout=30) as communicator:
            for dtype in (torch.float16, torch.float32, torch.int64):
                for elements in (1, 4097, 1 << 20):
                    ours = torch.arange(elements, device=rank.device).remainder(5).add(rank.number).to(dtype)
                    theirs = ours.clone()
                    communicator.all_reduce(ours)
                    dist.all_reduce(theirs)
                    if not torch.equal(ours, theirs):
                        message = f"all_reduce by {algorithm}: {elements} elements of {dtype} differ"
                        raise RuntimeError(f"{message} from {rank.backend}'s")
    return {"algorithms": algorithms}


def try_hook(rank: Rank) -> dict[str, Any]:
    """DistributedDataParallel over torch's own group, its gradients averaged by Weft."""
    import weft.torch

    rank.open(rank.backend)
    model = make_model(rank)
    plain, hooked = copy.deepcopy(model), copy.deepcopy(model)
    plain_ms = train_ddp(rank, plain)
    hooked_ms = train_ddp(rank, hooked, weft.torch.ddp_hook(timeout=30))
    return {"ddp_ms": plain_ms, "hook_ms": hooked_ms, **compare(hooked, plain)}


def try_dear(rank: Rank) -> dict[str, Any]:
    """DeAR over torch's own group, in both modes, beside DistributedDataParallel."""
    import weft.torch

    rank.open(rank.backend)
    model = make_model(rank)
    plain = copy.deepcopy(model)
    found: dict[str, Any] = {"ddp_ms": train_ddp(rank, plain)}
    ways: dict[str, dict[str, Any]] = {
        "gradients": {"mode": "gradients", "policy": "dear", "fusion": "500kB"},
        "parameters": {"mode": "parameters", "fusion": "500kB"},
        "auto": {"policy": "auto"},
    }
    for name, options in ways.items():
        net = copy.deepcopy(model)
        optimizer = weft.torch.DeAR(
            net, torch.optim.SGD, lr=0.05, momentum=0.9, max_norm=1e9, timeout=30, **options
        )
        step_ms = train(rank, net, optimizer)
        optimizer.synchronize()
        decision = optimizer.decision
        optimizer.close()
        found[name] = {"ms": step_ms, "decision": decision, **compare(net, plain)}
    return found


PARTS: dict[str, Callable[[Rank], dict[str, Any]]] = {
    "group": try_group,
    "two-groups": try_two_groups,
    "engine": try_engine,
    "hook": try_hook,
    "dear": try_dear,
}


def make_model(rank: Rank) -> nn.Module:
    """The same on every rank."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 8)).to(rank.device)


def train_ddp(rank: Rank, model: nn.Module, hook: Callable[..., Any] | None = None) -> float:
    """Train with DistributedDataParallel; median milliseconds of a step."""
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.5)
    if hook is not None:
        wrapped.register_comm_hook(None, hook)
    return train(rank, wrapped, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))


def train(rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Do a few steps; median milliseconds of one."""
    times = []
    for step in range(STEPS):
        begun = time.perf_counter()
        chance = torch.Generator().manual_seed(1000 * step + rank.number)
        inputs = torch.randn(BATCH, WIDTH, generator=chance).to(rank.device)
        wanted = torch.randn(BATCH, 8, generator=chance).to(rank.device)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()
        rank.synchronize()
        times.append(time.perf_counter() - begun)
    return round(sorted(times)[len(times) // 2] * 1e3, 3)


def compare(model: nn.Module, plain: nn.Module) -> dict[str, float]:
    """How far weights are from those that DistributedDataParallel gives."""
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    far = max(float((one - other).abs().max()) for one, other in pairs)
    if not far <= TOLERANCE:
        message = f"weights differ by {far} from DistributedDataParallel's; at most {TOLERANCE} is expected"
        raise RuntimeError(message)
    return {"largest_difference": far}


def run_rank(part: str, file: Path, seconds: float, *, cpu: bool) -> int:
    """Be one rank of a part, and leave what it found in a file."""
    # Where it hangs is in its output when it is ended.
    faulthandler.dump_traceback_later(max(1.0, seconds - 3))
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, Any] = {}
    try:
        import weft.torch  # noqa: F401 - registers the backend

        found["details"] = PARTS[part](Rank(file.with_name("store"), cpu=cpu))
    except Exception as error:  # noqa: BLE001 - it is the report's to tell
        found["error"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    new = file.with_suffix(".new")
    new.write_text(json.dumps(found), "utf-8")
    new.replace(file)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not every backend leaves in peace when others have failed, and the answer is written.
    os._exit(1 if "error" in found else 0)


def run_part(command: list[str], part: str, ranks: int, seconds: float) -> dict[str, Any]:
    """Run a part on all ranks until it is over, one rank has failed, or its time is up.

    Parameters
    ----------
    command
        What every rank runs; the file that it has to leave its answer in is added.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-gpu-check-") as name:
        folder = Path(name)
        processes = start(command, ranks, folder)
        try:
            codes = wait(processes, begun + seconds)
        finally:
            for process in processes:
                end(process)
        answers = [read(folder / f"{rank}.json") for rank in range(ranks)]
        outputs = [(folder / f"{rank}.log").read_text("utf-8", "replace") for rank in range(ranks)]
    result: dict[str, Any] = {"part": part, "seconds": round(time.monotonic() - begun, 2)}
    if all(code == 0 for code in codes) and all("details" in answer for answer in answers):
        return {**result, "outcome": "passed", "details": answers[0]["details"]}
    errors = {}
    for rank, (answer, code) in enumerate(zip(answers, codes, strict=True)):
        if "error" in answer:
            errors[rank] = answer["error"]
        elif code is not None and code != 0 and not answer:
            errors[rank] = f"ended with {describe(code)}"
        elif code is None and "details" not in answer:
            errors[rank] = "still at work when the part was ended"
    late = None in codes and not any(codes)
    tails = {rank: output[-OUTPUT_CHARACTERS:] for rank, output in enumerate(outputs)}
    return {**result, "outcome": "timed out" if late else "failed", "errors": errors, "output": tails}


def start(command: list[str], ranks: int, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start all ranks, each a leader of its own group of processes."""
    processes = []
    for rank in range(ranks):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
        with (folder / f"{rank}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [*command, str(folder / f"{rank}.json")],
                    env={**os.environ, **place, "MASTER_ADDR": "127.0.0.1"},
                    cwd=folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    return processes


def wait(processes: list[subprocess.Popen[bytes]], deadline: float) -> list[int | None]:
    """Exit codes; None of those that were not over in time, or soon after one had failed."""
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        if None not in codes:
            break
        if any(codes):  # others may have something to tell about that
            deadline = min(deadline, time.monotonic() + 5)
        time.sleep(0.05)
    return [process.poll() for process in processes]


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a rank and what it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read(file: Path) -> dict[str, Any]:
    """What a rank has left; nothing if it did not come that far."""
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return found


def describe(code: int) -> str:
    """Exit code as people read it."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def describe_machine(*, cpu: bool) -> dict[str, Any]:
    """Versions, and names of GPUs."""
    found: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "weft": version("weft"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "gpus": [],
    }
    if not cpu:
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["gpus"] = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return found


def print_result(result: dict[str, Any]) -> None:
    """One line, and one per rank that has failed."""
    print(f"{result['part']:12}  {result['outcome']:10}  {result['seconds']:6.1f} s", end="  ")
    print(json.dumps(result["details"]) if "details" in result else "", flush=True)
    for rank, error in result.get("errors", {}).items():
        print(f"    rank {rank}: {error}", flush=True)


def parse(words: list[str] | None) -> argparse.Namespace:
    """Words of the command line."""
    parser = argparse.ArgumentParser(prog="gpu-check", description="Try what of Weft may work on GPUs.")
    add = parser.add_argument
    add("--cpu", action="store_true", help="run the same parts on CPUs, with gloo in NCCL's place")
    add("--ranks", type=int, help="by default one per GPU, or two with --cpu")
    add("--seconds", type=float, default=120, help="for all parts together")
    add("--part-seconds", type=float, default=45, help="for each part")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="by default all")
    add("--json", type=Path, default=Path("weft-gpu-check.json"), metavar="FILE", help="the report")
    add("--part", choices=PARTS, help=argparse.SUPPRESS)  # of the ranks that this script starts
    add("file", type=Path, nargs="?", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run all parts; 0 if all have passed, 1 if not, 2 if there is no GPU."""
    given = parse(words)
    if given.part:
        return run_rank(given.part, given.file, given.part_seconds, cpu=given.cpu)
    if not given.cpu and not torch.cuda.is_available():
        print(
            f"gpu-check: torch {torch.__version__} finds no GPU here, so nothing was checked. "
            "tools/gpu-check --cpu runs the same parts on CPUs, which says nothing about GPUs.",
            file=sys.stderr,
        )
        return 2
    machine = describe_machine(cpu=given.cpu)
    ranks = given.ranks or (2 if given.cpu else torch.cuda.device_count())
    where = "CPUs: this says nothing about GPUs" if given.cpu else ", ".join(machine["gpus"])
    print(
        f"gpu-check: weft {machine['weft']}, torch {machine['torch']}, {ranks} ranks on {where}", flush=True
    )
    if ranks == 1:
        print("gpu-check: with one rank nothing is sent; this tries less than two GPUs would", flush=True)
    deadline = time.monotonic() + given.seconds
    results = []
    for part in given.parts:
        left = min(given.part_seconds, deadline - time.monotonic())
        if left < 5:
            result: dict[str, Any] = {"part": part, "outcome": "not run", "seconds": 0.0}
            result["errors"] = {0: "no time was left; --seconds gives more"}
        else:
            mode = ["--cpu"] if given.cpu else []
            command = [sys.executable, str(Path(__file__).resolve()), "--part", part, *mode]
            result = run_part([*command, "--part-seconds", str(left)], part, ranks, left)
        print_result(result)
        results.append(result)
    passed = sum(result["outcome"] == "passed" for result in results)
    report = {"format": 1, "device": "cpu" if given.cpu else "cuda", "ranks": ranks, "machine": machine}
    given.json.write_text(json.dumps({**report, "parts": results}, indent=1) + "\n", "utf-8")
    print(f"{passed} of {len(results)} parts passed. The report to send back, as an issue: {given.json}")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
