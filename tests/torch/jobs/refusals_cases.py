"""What several jobs of tests/torch/test_refusals.py share.

Each case is a call that this rank can tell to be wrong; `later` is what its async_op is.
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from support.torch_rank import N, R
from torch.distributed import distributed_c10d as c10d

import weft

world = dist.group.WORLD
P = (R + 1) % N
SUM, AVG, MAX, BAND = (getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MAX", "BAND"))


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


def with_options(kind, later, **values):
    options = kind()
    options.asyncOp = later
    for name, value in values.items():
        setattr(options, name, value)
    return options


def both(*parts):
    return [ones(4) for _ in range(N - len(parts))] + list(parts)


UINT16, DOUBLE = torch.ones(4, dtype=torch.uint16), ones(4, dtype=torch.float64)
OTHERS_DOUBLE = [ones(4) if r == R else DOUBLE for r in range(N)]
SPARSE, SHARED = torch.eye(4).to_sparse(), ones(1).expand(4)
QUANTIZED = torch.quantize_per_tensor(ones(4), 1.0, 0, torch.qint8)
NESTED = torch.nested.nested_tensor([ones(2), ones(3)])
LONG = timedelta(days=30)
INT1, UINT4 = torch.empty(4, dtype=torch.int1), torch.empty(4, dtype=torch.uint4)


def op(name, *tensors, **options):
    return lambda later: getattr(dist, name)(*tensors, **options, async_op=later)


def call(name, kind, *given, **values):
    return lambda later: getattr(world, name)(*given, with_options(getattr(c10d, kind), later, **values))


def rooted(name, tensors, at_root):
    return lambda later: getattr(world, name)(
        *tensors, with_options(getattr(c10d, name.title() + "Options"), later, rootRank=R if at_root else P)
    )


CASES = {
    "all_reduce of uint16": op("all_reduce", UINT16),
    "all_reduce by BAND": op("all_reduce", ones(4), BAND),
    "all_reduce of an average of bool": op("all_reduce", ones(4, dtype=torch.bool), AVG),
    "all_reduce of expanded": op("all_reduce", SHARED),
    "all_reduce of sparse by MAX": op("all_reduce", SPARSE, MAX),
    "all_reduce of quantized": op("all_reduce", QUANTIZED),
    "all_reduce of nested": op("all_reduce", NESTED),
    "all_reduce with a time that is too long": call("allreduce", "AllreduceOptions", [ones(4)], timeout=LONG),
    "all_reduce_coalesced with uint16": call("allreduce", "AllreduceCoalescedOptions", [ones(4), UINT16]),
    "reduce to a rank that is not there": op("reduce", ones(4), group_dst=N),
    "reduce to a negative rank": op("reduce", ones(4), group_dst=-1),
    "reduce of uint16": op("reduce", UINT16, 0),
    "broadcast from a rank that is not there": op("broadcast", ones(4), group_src=N),
    "broadcast from a negative rank": op("broadcast", ones(4), group_src=-1),
    "broadcast of expanded": op("broadcast", SHARED, 0),
    "broadcast of quantized": op("broadcast", QUANTIZED, 0),
    "all_gather into too many": op("all_gather", [ones(4) for _ in range(N + 1)], ones(4)),
    "all_gather into too few": op("all_gather", [ones(4)], ones(4)),
    "all_gather into the wrong size": op("all_gather", [ones(5) for _ in range(N)], ones(4)),
    "all_gather into another type": call("allgather", "AllgatherOptions", [[DOUBLE] * N], [ones(4)]),
    "all_gather into types that differ": call("allgather", "AllgatherOptions", [OTHERS_DOUBLE], [ones(4)]),
    "all_gather of two into one": call("allgather", "AllgatherOptions", [both()], [ones(4), ones(4)]),
    "all_gather_into_tensor of the wrong size": op("all_gather_into_tensor", ones(4 * N + 1), ones(4)),
    "all_gather_into_tensor of another type": call(
        "all_gather_single", "AllgatherOptions", ones(4 * N, dtype=torch.float64), ones(4)
    ),
    "all_gather_into_tensor of several, one of them wrong": call(
        "all_gather_single_coalesced", "AllgatherOptions", [ones(4 * N), ones(5)], [ones(4), ones(4)]
    ),
    "all_gather_into_tensor of several into one": call(
        "all_gather_single_coalesced", "AllgatherOptions", [ones(4 * N)], [ones(4), ones(4)]
    ),
    "reduce_scatter of too many": op("reduce_scatter", ones(4), [ones(4) for _ in range(N + 1)]),
    "reduce_scatter of the wrong size": op("reduce_scatter", ones(5), both()),
    "reduce_scatter of types that differ": call(
        "reduce_scatter", "ReduceScatterOptions", [ones(4)], [OTHERS_DOUBLE]
    ),
    "reduce_scatter of uint16": op("reduce_scatter", UINT16, [UINT16] * N),
    "reduce_scatter_tensor of the wrong size": op("reduce_scatter_tensor", ones(4), ones(4 * N + 1)),
    "reduce_scatter_tensor of another type": call(
        "reduce_scatter_single", "ReduceScatterOptions", ones(4), ones(4 * N, dtype=torch.float64)
    ),
    "reduce_scatter_tensor of several, one of them wrong": call(
        "reduce_scatter_single_coalesced", "ReduceScatterOptions", [ones(4), ones(4)], [ones(4 * N), ones(5)]
    ),
    "gather at a rank that is not there": op("gather", ones(4), group_dst=N),
    "gather into too few": rooted("gather", ([[ones(4)]], [ones(4)]), True),
    "gather into nothing": rooted("gather", ([], [ones(4)]), True),
    "gather into the wrong size": rooted("gather", ([both(ones(5))], [ones(4)]), True),
    "gather into another type": rooted("gather", ([both(DOUBLE)], [ones(4)]), True),
    "gather of two": rooted("gather", ([both()], [ones(4), ones(4)]), True),
    "gather of nothing": rooted("gather", ([], []), False),
    "gather into something elsewhere than at the root": rooted("gather", ([both()], [ones(4)]), False),
    "scatter from a rank that is not there": op("scatter", ones(4), group_src=N),
    "scatter of too few": rooted("scatter", ([ones(4)], [[ones(4)]]), True),
    "scatter of nothing": rooted("scatter", ([ones(4)], []), True),
    "scatter of the wrong size": rooted("scatter", ([ones(4)], [both(ones(5))]), True),
    "scatter of another type": rooted("scatter", ([ones(4)], [both(DOUBLE)]), True),
    "scatter into nothing": rooted("scatter", ([], []), False),
    "scatter of something elsewhere than at the root": rooted("scatter", ([ones(4)], [both()]), False),
    "all_to_all of too few": op("all_to_all", both(), [ones(4)]),
    "all_to_all into too few": op("all_to_all", [ones(4)], both()),
    "all_to_all of types that differ": call("alltoall", "AllToAllOptions", both(), both(DOUBLE)),
    "all_to_all into the wrong size": op("all_to_all", [ones(5) for _ in range(N)], both()),
    "all_to_all_single of rows that are no multiple": op("all_to_all_single", ones(N + 1), ones(N + 1)),
    "all_to_all_single of rows, elements being one": op("all_to_all_single", ones(3, N), ones(3, N)),
    "all_to_all_single of a scalar": op("all_to_all_single", ones(), ones()),
    "all_to_all_single of too few rows": op("all_to_all_single", ones(N), ones(N), [2] * N, [1] * N),
    "all_to_all_single of negative rows": op("all_to_all_single", ones(N), ones(N), [-1, N + 1], [1] * N),
    "all_to_all_single of too many parts": op("all_to_all_single", ones(N), ones(N), [1] * N, [0] + [1] * N),
    "all_to_all_single of another type": call(
        "all_to_all_single", "AllToAllOptions", ones(N), ones(N, dtype=torch.float64), [], []
    ),
    "all_reduce of int1": op("all_reduce", INT1),
    "reduce of int1": op("reduce", INT1, 0),
    "broadcast of int1": op("broadcast", INT1, 0),
    "all_gather of int1": op("all_gather", [torch.empty_like(INT1) for _ in range(N)], INT1),
    "all_gather of uint4": op("all_gather", [torch.empty_like(UINT4) for _ in range(N)], UINT4),
    "all_gather_into_tensor of int1": op(
        "all_gather_into_tensor", torch.empty(4 * N, dtype=torch.int1), INT1
    ),
    "reduce_scatter of int1": op("reduce_scatter", INT1, [INT1] * N),
    "gather of int1": rooted("gather", ([], [INT1]), False),
    "scatter of int1": rooted("scatter", ([INT1], []), False),
    "all_to_all of int1": op("all_to_all", [torch.empty_like(INT1) for _ in range(N)], [INT1] * N),
    "all_to_all_single of int1": op("all_to_all_single", torch.empty_like(INT1), INT1),
    "barrier with a time that is too long": lambda later: dist.barrier(timeout=LONG, async_op=later),
}
MESSAGES = {
    "a rank that is not there": lambda way: way(ones(4), group_peer=N),
    "a negative rank": lambda way: way(ones(4), group_peer=-1),
    "itself": lambda way: way(ones(4), group_peer=R),
    "a negative tag": lambda way: way(ones(4), group_peer=P, tag=-1),
    "a tag that is too large": lambda way: way(ones(4), group_peer=P, tag=2**70),
    "a tag that is no number": lambda way: way(ones(4), group_peer=P, tag="one"),
    "sparse": lambda way: way(SPARSE, group_peer=P),
    "quantized": lambda way: way(QUANTIZED, group_peer=P),
    "int1": lambda way: way(INT1, group_peer=P),
}


def isend(tensor, group_peer, tag=0):
    return dist.isend(tensor, group_dst=group_peer, tag=tag)


def irecv(tensor, group_peer, tag=0):
    return dist.irecv(tensor, group_src=group_peer, tag=tag)


wrong = []


def refused(name, call, *words):
    try:
        call(*words)
    except (ValueError, TypeError) as error:
        if not isinstance(error, weft.WeftError) and type(error) not in (ValueError, TypeError):
            wrong.append(f"{name} {words}: {type(error).__name__}: {error}")
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
        wrong.append(f"{name} {words}: {type(error).__name__}: {error}")
    else:
        wrong.append(f"{name} {words} is accepted")


def check_alive(*what):
    x = torch.full((1000,), R + 1.0)
    try:
        dist.all_reduce(x)
        assert (x == sum(range(1, N + 1))).all(), x
    except BaseException as error:
        raise AssertionError((*what, wrong)) from error
