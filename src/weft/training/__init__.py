"""Models of training: how long an iteration takes, which fusion and policy suit it, and searches for better.

Nothing here trains. Layers and costs go in, measured or assumed, and times come out, so that a choice can be
made, explained, and held against what really happens. Three ways lead from layers to times, from fast to
faithful: `iteration` adds up two policies by hand, which is what a job decides by while it runs;
`single_channel` runs the graph of any policy on one channel; `cluster` simulates every rank and link. `job`
puts a whole job together for the last of them, and `sweep` runs many jobs.
"""

from weft.training.choice import Option, PolicyChoice, best
from weft.training.cluster import Cluster, ClusterRun, Noise
from weft.training.costs import AlphaBeta, Bounded, Costs, Linear, Simulated, fit
from weft.training.devices import find_device
from weft.training.endpoints import Endpoint, EndpointEngine, find_endpoint
from weft.training.fusion import Groups, digest, fuse
from weft.training.fusion_tuner import BayesianSearch, BoundedSearch, FusionSearch
from weft.training.iteration import (
    FORMULAS,
    IterationTimeline,
    TimelineSpan,
    dear,
    ideal_dear,
    ideal_wfbp,
    serial,
    wfbp,
)
from weft.training.job import TrainingJob, TrainingResult, train
from weft.training.layers import Layer, LayerExchange
from weft.training.schedules import by_algorithm
from weft.training.task_graph import Graph, RankTask
from weft.training.workloads import Workload, load_workload

__all__ = [
    "FORMULAS",
    "AlphaBeta",
    "BayesianSearch",
    "Bounded",
    "BoundedSearch",
    "Cluster",
    "ClusterRun",
    "Costs",
    "Endpoint",
    "EndpointEngine",
    "FusionSearch",
    "Graph",
    "Groups",
    "IterationTimeline",
    "Layer",
    "LayerExchange",
    "Linear",
    "Noise",
    "Option",
    "PolicyChoice",
    "RankTask",
    "Simulated",
    "TimelineSpan",
    "TrainingJob",
    "TrainingResult",
    "Workload",
    "best",
    "by_algorithm",
    "dear",
    "digest",
    "find_device",
    "find_endpoint",
    "fit",
    "fuse",
    "ideal_dear",
    "ideal_wfbp",
    "load_workload",
    "serial",
    "train",
    "wfbp",
]
