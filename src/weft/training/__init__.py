"""Models of training: how long an iteration takes, which fusion and policy suit it, and searches for better.

Nothing here trains. Layers and costs go in, measured or assumed, and times come out, so that a choice can be
made, explained, and held against what really happens.
"""

from weft.training.choice import Choice, Option, best
from weft.training.costs import AlphaBeta, Costs, Linear, Simulated
from weft.training.fitting import fit
from weft.training.fusion import Groups, digest, fuse
from weft.training.iteration import (
    POLICIES,
    Span,
    Timeline,
    dear,
    ideal_dear,
    ideal_wfbp,
    serial,
    wfbp,
)
from weft.training.layers import Exchange, Layer
from weft.training.tuning import BayesianSearch, BoundedSearch, Search

__all__ = [
    "POLICIES",
    "AlphaBeta",
    "BayesianSearch",
    "BoundedSearch",
    "Choice",
    "Costs",
    "Exchange",
    "Groups",
    "Layer",
    "Linear",
    "Option",
    "Search",
    "Simulated",
    "Span",
    "Timeline",
    "best",
    "dear",
    "digest",
    "fit",
    "fuse",
    "ideal_dear",
    "ideal_wfbp",
    "serial",
    "wfbp",
]
