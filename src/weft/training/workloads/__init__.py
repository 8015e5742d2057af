"""Models to train, as lists of operators with shapes; a device turns each into layers with times.

A new model is one function that returns a `Workload`, and one line here.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import InputError, look_up
from weft.training.workloads.dlrm import dlrm
from weft.training.workloads.gnmt import gnmt
from weft.training.workloads.inception import inception_v4
from weft.training.workloads.llama import llama2_7b
from weft.training.workloads.multitree_networks import NETWORKS
from weft.training.workloads.operators import Operator, OperatorWork, Product
from weft.training.workloads.published import PublishedWorkload, published_dlrm, published_resnet50
from weft.training.workloads.transformers import bert_base, bert_large, gpt2_medium
from weft.training.workloads.vision import densenet201, resnet50, vgg16
from weft.training.workloads.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "PUBLISHED",
    "WORKLOADS",
    "Operator",
    "OperatorWork",
    "Product",
    "PublishedWorkload",
    "Workload",
    "load_workload",
]

WORKLOADS: Final[dict[str, Callable[..., Workload]]] = {
    "resnet50": resnet50,
    "densenet201": densenet201,
    "inception-v4": inception_v4,
    "vgg16": vgg16,
    "bert-base": bert_base,
    "bert-large": bert_large,
    "gpt2-medium": gpt2_medium,
    "llama2-7b": llama2_7b,
    "gnmt": gnmt,
    "dlrm": dlrm,
    **NETWORKS,
}
"""Name and definition of each."""

PUBLISHED: Final[dict[str, Callable[..., Workload]]] = {
    "resnet50-published": published_resnet50,
    "dlrm-published": published_dlrm,
}
"""The same for workloads whose layer times are published; no device times them."""


def load_workload(name: str, **options: object) -> Workload:
    """Give a workload by its name.

    Parameters
    ----------
    name
        One of `WORKLOADS` or `PUBLISHED`.
    options
        What its definition takes: ``image``, ``sequence``, ``steps`` and the like.

    Raises
    ------
    InputError
        If there is none of that name, or it has no such option.

    Examples
    --------
    >>> bert = load_workload("bert-large", sequence=128)
    >>> bert.tensors, bert.parameters
    (398, 336232258)
    """
    define = look_up("workload", name, WORKLOADS | PUBLISHED)
    known = inspect.signature(define).parameters
    for option, value in options.items():
        if option not in known:
            raise InputError(f"workload {name} has no option {option!r}; it has {', '.join(known) or 'none'}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"workload {name}: {option} is {value!r}; expected a whole number of at least 1")
        limits.check(f"{option} of workload {name}", value, limits.MAX_LAYERS)
    return define(**options)
