"""How fast the reduction kernels are, against numpy, a copy and float32's kernel, in caches and in memory.

GB/s are bytes of one operand per CPU second: `into = into op other` reads two such operands and writes one,
and a copy reads one and writes one. All calls alternate, so that they meet the same neighbours on a shared
machine. "float32" among the speeds of a half is Weft's fastest kernel of that type on as many bytes. numpy
has no bfloat16. avg adds like sum and divides at its end: "divide" is that step, by 8.

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

MiB = 1 << 20
WORKING_SETS = {"1 MiB": MiB, "16 MiB": 16 * MiB, "128 MiB": 128 * MiB}
"""Bytes of both operands together."""

CHECKED_BYTES = 128 << 10
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
HALVES = ("float16", "bfloat16")
OPS = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
DIVIDE = "divide"
RANKS = 8
SECONDS_PER_SAMPLE = 0.01


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


def own_call(dtype: str, op: str, size: int) -> Call:
    """Return a call of Weft's kernel on arrays of its own."""
    into, other = (array.view(np.uint8) for array in operands(dtype, op, size))
    if op == DIVIDE:
        return lambda: _runtime.divide(into, dtype, RANKS)
    return lambda: _runtime.reduce(into, other, dtype, op)


def calls_of(dtype: str, op: str, size: int) -> dict[str, tuple[str | None, Call]]:
    """Return what is measured side by side: for each name the level to set, if any, and the call."""
    levels = _runtime.cpu_levels()
    own = own_call(dtype, op, size)
    calls: dict[str, tuple[str | None, Call]] = {level: (level, own) for level in levels}
    into, other = operands(dtype, op, size)
    if dtype != "bfloat16" and op in OPS:
        calls["numpy"] = (None, lambda: OPS[op](into, other, out=into))
    if dtype in HALVES:
        calls["float32"] = (levels[-1], own_call("float32", op, size))
    target, source = np.empty_like(into), into
    calls["copy"] = (None, lambda: np.copyto(target, source))
    return calls


def measure(dtype: str, op: str, size: int, rounds: int) -> dict[str, Any]:
    """Alternate Weft's levels and what they are compared with."""
    calls = calls_of(dtype, op, size)
    counts = {name: repeats(*call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seconds[name].append(sample(*call, counts[name]))
    fastest = seconds[_runtime.cpu_levels()[-1]]
    result: dict[str, Any] = {
        "dtype": dtype,
        "op": op,
        "bit_equal": bit_equal(dtype, op, CHECKED_BYTES) if op in OPS else None,
        "GBps": {name: speeds(size, values) for name, values in seconds.items()},
    }
    for other in ("numpy", "float32", "copy"):
        if other in seconds:
            pairs = zip(seconds[other], fastest, strict=True)
            result[f"times_{other}"] = round(statistics.median(theirs / ours for theirs, ours in pairs), 2)
    return result


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    started, results = result_files.start(), []
    for label, size in WORKING_SETS.items():
        for op in (*OPS, DIVIDE):
            for dtype in DTYPES:
                result = {"working_set": label} | measure(dtype, op, size // 2, arguments.rounds)
                results.append(result)
                medians = ", ".join(f"{name} {speed['median']:.1f}" for name, speed in result["GBps"].items())
                ratios = ", ".join(f"{result[key]} {key}" for key in result if key.startswith("times_"))
                print(f"{label}, {op}, {dtype}: {medians} GB/s; {ratios}", flush=True)
    parameters = {"levels": _runtime.cpu_levels(), "rounds": arguments.rounds}
    result_files.write(arguments.output, started, parameters=parameters, results=results)


if __name__ == "__main__":
    main()
