"""An iteration of training as a picture: what is computed above, what the network carries below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft import units
from weft.svg import Markup, document, element, hint, label, legend, series_class, shifted
from weft.training.iteration import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.training.iteration import IterationTimeline, TimelineSpan
    from weft.training.layers import Layer

_SCOPE: Final = "weft-timeline"
_WIDTH: Final = 860.0
_LEFT: Final = 104.0
_RIGHT: Final = 24.0
_TOP: Final = 58.0
_LANE: Final = 34.0
_LEAST: Final = 0.4
_MOST_SPANS: Final = 2000
_COLOURS: Final = {"forward": 0, "backward": 7, "wait": 5, **dict(zip(COLLECTIVES, (1, 2, 3), strict=True))}
_LANES: Final = ("computing", "network")


def draw_timeline(timeline: IterationTimeline, layers: Sequence[Layer], title: str) -> str:
    """Draw an iteration as an SVG document, with one lane for computing and one for the network.

    Parameters
    ----------
    timeline
        The iteration.
    layers
        Of the model, for their names.
    title
        What it is of.

    Examples
    --------
    >>> from weft.training import AlphaBeta, Layer, Linear
    >>> from weft.training.iteration import wfbp
    >>> half = AlphaBeta(0.0, 0.001)
    >>> model = [Layer("a", 1000, 1.0, 2.0), Layer("b", 1000, 1.0, 2.0)]
    >>> picture = draw_timeline(wfbp(model, ((1,), (0,)), Linear.in_halves(half, half)), model, "two layers")
    >>> picture.count("<rect"), "all_reduce" in picture
    (12, True)
    """
    end = max([timeline.seconds, *(span.end_s for span in timeline.spans)]) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / end
    bottom = _TOP + len(_LANES) * _LANE
    parts = [label(title, 24, 32, "title"), *_axis(end, scale, bottom)]
    for place, name in enumerate(_LANES):
        parts.append(
            label(name, _LEFT - 12, _TOP + place * _LANE + 19, "ink", text_anchor="end", font_size=12)
        )
    parts += _spans(timeline.spans[:_MOST_SPANS], layers, scale)
    kinds = [kind for kind in _COLOURS if any(span.kind == kind for span in timeline.spans)]
    items = [(element("rect", class_=_look(kind), x=2, y=-11, width=14, height=14), kind) for kind in kinds]
    hidden = len(timeline.spans) - _MOST_SPANS
    whole, exposed = units.human_seconds(timeline.seconds), units.human_seconds(timeline.exposed_s)
    words = f"iteration {whole}, {exposed} exposed"
    left_out = [(Markup(""), f"{hidden:,} later spans are left out")] if hidden > 0 else []
    key, _, height = legend([*items, (Markup(""), words), *left_out], _WIDTH - 48)
    tall = bottom + 44 + height
    return document(_WIDTH, tall, *parts, shifted(24, bottom + 58, key), scope=_SCOPE, title=title, style="")


def _look(kind: str) -> str:
    return f"area {series_class(_COLOURS[kind])}"


def _spans(spans: Sequence[TimelineSpan], layers: Sequence[Layer], scale: float) -> Iterator[Markup]:
    for span in spans:
        lane = 1 if span.kind in COLLECTIVES else 0
        computed = span.kind in ("forward", "backward") and span.number < len(layers)
        what = layers[span.number].name if computed else f"group {span.number}"
        words = hint(f"{span.kind} {what}: {units.human_seconds(span.seconds)}")
        place = {"x": _LEFT + span.start_s * scale, "y": _TOP + lane * _LANE + 3}
        size = {"width": max(span.seconds * scale, _LEAST), "height": _LANE - 8}
        yield element("rect", words, class_=_look(span.kind), **place, **size, stroke="none")


def _axis(end: float, scale: float, bottom: float) -> Iterator[Markup]:
    """Lines at round times, with their unit."""
    name, unit = next(((name, unit) for name, unit in _UNITS if end >= unit), _UNITS[-1])
    step = next(step for step in _STEPS if end / unit / step <= 8)
    for tick in range(int(end / unit / step) + 1):
        x = _LEFT + tick * step * unit * scale
        yield element("line", class_="grid", x1=x, x2=x, y1=_TOP, y2=bottom)
        yield label(f"{tick * step:g} {name}", x, bottom + 18, text_anchor="middle")


_UNITS: Final = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_STEPS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10**4, 10**5, 10**6)
