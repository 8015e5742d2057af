"""DLRM, Facebook's recommendation model: MLPs on every rank, embedding tables spread over the ranks.

The sizes are those of MLPerf's benchmark on Criteo's terabyte of clicks; the ACE paper does not give its own.
"""

from __future__ import annotations

from itertools import pairwise

from weft.errors import InputError
from weft.training.workloads.operators import Operator, Product, linear, pointwise, spread_embeddings
from weft.training.workloads.workload import Workload

_DENSE = 13
_BOTTOM = (512, 256)
_TOP = (1024, 1024, 512, 256, 1)


def dlrm(tables: int = 26, width: int = 128, lookups: int = 1) -> Workload:
    """DLRM: the lookups go first, and their all-to-all runs while the bottom MLP computes.

    The first layer of the top MLP waits for it: there the vectors are multiplied with one another.

    Parameters
    ----------
    tables
        Categorical features, one table each.
    width
        Of a vector in a table.
    lookups
        Vectors that are added up per table and sample: 1 for Criteo's clicks, tens in production.
    """
    if min(tables, width, lookups) < 1:
        msg = f"dlrm with {tables} tables of width {width} and {lookups} lookups: each is at least 1"
        raise InputError(msg)
    vectors = tables + 1
    pairs = vectors * (vectors - 1) // 2
    operators = [
        spread_embeddings("embeddings", tables, width, lookups, needed_by="interaction"),
        *_mlp("bot_l", (_DENSE, *_BOTTOM, width), last="relu", from_data=True),
        Operator(
            "interaction",
            products=(Product(vectors, 1, width, vectors),),
            # The vectors put together and multiplied; of the products the lower half is taken.
            forward_elements=3 * vectors * width + vectors * vectors + 2 * pairs,
            backward_elements=5 * vectors * width + 2 * vectors * vectors + 2 * pairs,
            kernels=(3, 4),
            with_next=True,
        ),
        *_mlp("top_l", (pairs + width, *_TOP), last="sigmoid"),
        pointwise("loss", 1),
    ]
    source = "MLPerf training v0.7, Criteo terabyte; the batch recalled from the ACE paper"
    return Workload("dlrm", f"DLRM with {tables} tables", tuple(operators), 512, source)


def _mlp(name: str, widths: tuple[int, ...], *, last: str, from_data: bool = False) -> list[Operator]:
    operators: list[Operator] = []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        is_last = number == len(widths) - 2
        operators += [
            linear(f"{name}.{2 * number}", inputs, outputs, input_gradient=bool(number) or not from_data),
            pointwise(f"{name}.{2 * number + 1}.{last if is_last else 'relu'}", outputs),
        ]
    return operators
