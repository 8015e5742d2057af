"""Models for tests: uniform ones whose times are formulas, and any others."""

from __future__ import annotations

from hypothesis import strategies as st

from weft.training import AlphaBeta, Layer, Linear


def uniform(count: int, forward_s: float, backward_s: float, size_bytes: int = 1000) -> tuple[Layer, ...]:
    """Equal layers that together compute this long."""
    return tuple(
        Layer(f"layer{number}", size_bytes, forward_s / count, backward_s / count) for number in range(count)
    )


def costing(layers: tuple[Layer, ...], all_reduce_s: float) -> Linear:
    """Costs without latency, of which an all-reduce of the whole model takes so long."""
    half = AlphaBeta(0.0, all_reduce_s / 2 / sum(layer.size_bytes for layer in layers))
    return Linear.in_halves(half, half)


seconds = st.floats(0.0, 10.0, allow_subnormal=False)
lines = st.builds(AlphaBeta, seconds, st.floats(0.0, 1e-3, allow_subnormal=False))
costs = st.one_of(st.builds(Linear, lines, lines, lines), st.builds(Linear.in_halves, lines, lines))
models = st.lists(
    st.builds(Layer, st.just("any"), st.integers(0, 10_000), seconds, seconds), min_size=1, max_size=30
).map(tuple)
