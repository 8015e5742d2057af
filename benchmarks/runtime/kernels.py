"""How fast the reduction kernels are, against numpy, in cache and in memory.

GB/s are bytes of one operand per CPU second: `into = into op other` reads two such operands and writes one.
Weft's and numpy's calls alternate, so that both meet the same neighbours on a shared machine. numpy has no
bfloat16.

    python benchmarks/runtime/kernels.py        # into kernels.json beside this file
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft import _runtime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SIZES = {"128 KiB, in cache": 128 << 10, "64 MB, in memory": 64_000_000}
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
OPS = {"sum": np.add, "max": np.maximum, "prod": np.multiply}
SECONDS_PER_SAMPLE = 0.02


Call = Callable[[], object]


def sample(level: str | None, call: Call, times: int) -> float:
    """CPU seconds of one call."""
    if level:
        _runtime.set_cpu_level(level)
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / times


def repeats(level: str | None, call: Call) -> int:
    """Calls that take about SECONDS_PER_SAMPLE together."""
    sample(level, call, 1)
    return max(1, round(SECONDS_PER_SAMPLE / max(sample(level, call, 3), 1e-7)))


def speeds(size: int, seconds: list[float]) -> dict[str, float]:
    """Median and quartiles in GB/s."""
    lower, median, upper = statistics.quantiles((size / each / 1e9 for each in seconds), n=4)
    return {"median": round(median, 2), "lower_quartile": round(lower, 2), "upper_quartile": round(upper, 2)}


def operands(dtype: str, op: str, size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two arrays of which the second changes nothing, so that values stay ordinary however often."""
    rng = np.random.default_rng(0)
    neutral = 1 if op == "prod" else 0
    if dtype == "bfloat16":
        values = rng.uniform(1, 2, size // 2).astype(np.float32)
        other = np.full(size // 2, neutral, np.float32)
        return upper_halves(values), upper_halves(other)
    count = size // np.dtype(dtype).itemsize
    return (rng.uniform(1, 2, count) * 100).astype(dtype), np.full(count, neutral, dtype)


def upper_halves(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of bfloat16 numbers."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def bit_equal(dtype: str, op: str, size: int) -> bool:
    """Whether all levels, and numpy where it has the type, give the same bits for ordinary numbers."""
    a = operands(dtype, op, size)[0]
    b = a[::-1].copy()
    answers = []
    for level in _runtime.cpu_levels():
        _runtime.set_cpu_level(level)
        out = np.empty_like(a)
        _runtime.reduce_to(out.view(np.uint8), a.view(np.uint8), b.view(np.uint8), dtype, op)
        answers.append(out)
    if dtype != "bfloat16":
        answers.append(OPS[op](a, b))
    return len({answer.tobytes() for answer in answers}) == 1


def measure(dtype: str, op: str, size: int, rounds: int) -> dict[str, Any]:
    """Alternate Weft's levels and numpy on the same arrays."""
    into, other = operands(dtype, op, size)
    into_bytes, other_bytes = into.view(np.uint8), other.view(np.uint8)
    levels = _runtime.cpu_levels()
    calls: dict[str, tuple[str | None, Call]] = {
        level: (level, lambda: _runtime.reduce(into_bytes, other_bytes, dtype, op)) for level in levels
    }
    if dtype != "bfloat16":
        calls["numpy"] = (None, lambda: OPS[op](into, other, out=into))
    counts = {name: repeats(*call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seconds[name].append(sample(*call, counts[name]))
    ratio = None
    if "numpy" in seconds:
        pairs = zip(seconds["numpy"], seconds[levels[-1]], strict=True)
        ratio = round(statistics.median(theirs / ours for theirs, ours in pairs), 2)
    return {
        "dtype": dtype,
        "op": op,
        "bit_equal": bit_equal(dtype, op, SIZES["128 KiB, in cache"]),
        "GBps": {name: speeds(size, values) for name, values in seconds.items()},
        "times_numpy": ratio,
    }


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--rounds", type=int, default=45)
    arguments = parser.parse_args()
    started, results = result_files.start(), []
    for label, size in SIZES.items():
        for op in OPS:
            for dtype in DTYPES:
                result = {"size": label} | measure(dtype, op, size, arguments.rounds)
                results.append(result)
                medians = ", ".join(f"{name} {speed['median']:.1f}" for name, speed in result["GBps"].items())
                print(f"{label}, {op}, {dtype}: {medians} GB/s, {result['times_numpy']} times numpy")
    parameters = {"levels": _runtime.cpu_levels(), "rounds": arguments.rounds}
    result_files.write(arguments.output, started, parameters=parameters, results=results)


if __name__ == "__main__":
    main()
