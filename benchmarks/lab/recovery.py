"""A torus whose cable is cut, or becomes slow, under load: how long steps take before and after.

    python benchmarks/lab/recovery.py        # as root, a minute; into recovery.json beside this file

Every step all-reduces 4 MB and checks every element. When the cable is cut, all ranks raise LinkLost and
repair; when it is slowed down to a fifth, the watch notices and adapts.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from weft.lab import Network, build
from weft.runtime.launcher.launch import launch
from weft.topology import load_topology
from weft.topology.toml_file import format_toml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SPEC = "torus:2x4@bw=20Mbit/s"
CABLE = (1, 2)
SIZE = 4_000_000
STEPS, EVENT = 20, 8

JOB = f"""
import json, sys, time
from pathlib import Path

import numpy as np
import weft
from weft.probing import SpeedWatch

topology, mark = sys.argv[1:]
log, step = [], 0
with weft.init(topology=topology, timeout=60) as comm:
    watch = SpeedWatch(comm)
    while step < {STEPS}:
        if step == {EVENT} and comm.rank == 0:
            Path(mark).touch()
        array = np.full({SIZE} // 4, comm.rank + step, np.float32)
        began = time.perf_counter()
        try:
            comm.all_reduce(array)
        except weft.LinkLost as error:
            lost = time.perf_counter()
            step -= comm.repair()
            repaired = time.perf_counter()
            log.append(
                {{"lost": error.ranks, "noticed_after_s": lost - began, "repair_s": repaired - lost}}
            )
            continue
        spent = time.perf_counter() - began
        assert (array == sum(range(comm.size)) + step * comm.size).all()
        log.append({{"step": step, "step_s": spent, "digest": comm.last.digest[:12]}})
        began = time.perf_counter()
        came = watch.step(spent)
        if came is not None:
            log.append({{"adapted": came.plan is not None, "adapting_s": time.perf_counter() - began,
                "simulated_before_s": came.before_seconds, "simulated_after_s": came.after_seconds}})
        step += 1
if comm.rank == 0:
    print(json.dumps(log))
"""


def run(what: str) -> dict[str, Any]:
    """One job, and what happens to its cable in the midst of it."""
    out, err = io.BytesIO(), io.BytesIO()
    with tempfile.TemporaryDirectory() as temporary, build(load_topology(SPEC)) as network:
        script, file, mark = (Path(temporary, name) for name in ("job.py", "torus.toml", "mark"))
        script.write_text(JOB, "utf-8")
        file.write_text(format_toml(network.topology), "utf-8")
        helper = threading.Thread(target=disturb, args=(network, mark, what), daemon=True)
        helper.start()
        line = [sys.executable, str(script), str(file), str(mark)]
        done = launch(line, network.topology.ranks, out=out, err=err, seats=network.seats())
    if done.exit_code:
        raise SystemExit(err.getvalue().decode())
    log = json.loads(out.getvalue().decode().removeprefix("[0] "))
    steps = [one for one in log if "step" in one]
    first, last = steps[0]["digest"], steps[-1]["digest"]
    before = median(one["step_s"] for one in steps[1:EVENT])
    after = median(one["step_s"] for one in steps if one["digest"] == last)
    print(f"{what}: {before:.3f} s a step before, {after:.3f} after", flush=True)
    assert first != last
    return {"what": what, "step_before_s": before, "step_after_s": after, "log": log}


def disturb(network: Network, mark: Path, what: str) -> None:
    """Wait until the job is at it, then cut the cable or slow it down."""
    while not mark.exists():
        time.sleep(0.02)
    time.sleep(0.3)
    link, back = (network.topology.links_between(*ends)[0] for ends in (CABLE, CABLE[::-1]))
    if what == "cut":
        network.cut(link)
        return
    for one in (link, back):
        network.set_speed(one, int(network.topology.bandwidth[one]) // 5)


def main() -> None:
    """Both."""
    started = result_files.start()
    results = [run("cut"), run("slow")]
    parameters = {
        "topology": SPEC,
        "cable": CABLE,
        "size_bytes": SIZE,
        "steps": STEPS,
        "event_in_step": EVENT,
    }
    result_files.write(Path(__file__).with_suffix(".json"), started, parameters=parameters, results=results)


if __name__ == "__main__":
    main()
