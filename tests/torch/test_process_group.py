"""Every collective of a process group of backend weft, against what it must give."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from support.groups import run_group
from torch import distributed as dist

from weft.torch import WeftProcessGroup

JOBS = Path(__file__).with_name("jobs")

# What is no collective: torch's own accounts of a group, which work on its stand-in.
NOT_COLLECTIVES = {
    "boxed",
    "merge_remote_group",
    "rank",
    "size",
    "split_group",
    "unbox",
    "_backend_id",
    "_enable_collectives_timing",
    "_get_backend",
    "_get_sequence_number_for_group",
    "_has_hooks",
    "_id",
    "_pybind11_conduit_v1_",
    "_register_backend",
    "_register_on_completion_hook",
    "_set_default_backend",
    "_set_group_desc",
    "_set_group_name",
    "_set_sequence_number_for_group",
    "_wait_for_pending_works",
}


def test_every_collective_that_torch_knows_is_overridden() -> None:
    known = {
        name
        for name, value in inspect.getmembers(dist.ProcessGroup, callable)
        if not name.startswith("__") and not inspect.isclass(value)
    }
    own = {name for name in known if getattr(WeftProcessGroup, name) is not getattr(dist.ProcessGroup, name)}
    assert known - own == NOT_COLLECTIVES


COLLECTIVES = JOBS / "process_group_collectives.py"


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_collectives_give_exactly_what_they_should(tmp_path: Path, ranks: int) -> None:
    run_group(tmp_path, ranks, COLLECTIVES)


REFUSED = JOBS / "process_group_refused.py"


def test_what_is_not_supported_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    run_group(tmp_path, 2, REFUSED)


def test_options_are_weft_options() -> None:
    from weft.torch.process_group import create

    with pytest.raises(TypeError, match=r"weft\.torch\.Options, not dict"):
        create(None, {})  # type: ignore[arg-type]


GROUPS = JOBS / "process_group_groups.py"


def test_groups_of_some_ranks_and_many_of_them(tmp_path: Path) -> None:
    run_group(tmp_path, 4, GROUPS, str(tmp_path / "store"))


TOPOLOGY = JOBS / "process_group_topology.py"


def test_the_topology_of_the_environment_is_that_of_all_ranks(tmp_path: Path) -> None:
    run_group(tmp_path, 3, TOPOLOGY, variables={"WEFT_TOPOLOGY": "ring:3"})


FUNCTIONAL = JOBS / "process_group_functional.py"


@pytest.mark.parametrize(
    ("ranks", "compiler"),
    [
        (2, "aot_eager"),
        pytest.param(2, "inductor", marks=pytest.mark.slow),
        pytest.param(4, "inductor", marks=pytest.mark.slow),
    ],
)
def test_functional_collectives_also_compiled(tmp_path: Path, ranks: int, compiler: str) -> None:
    # Each rank of inductor runs a C++ compiler for seconds; the graph that it is given is that of aot_eager.
    run_group(tmp_path, ranks, FUNCTIONAL, compiler)


def test_the_backend_is_registered_on_import() -> None:
    assert dist.Backend("weft") == "weft"
    assert torch.distributed.Backend.backend_capability["weft"] == ["cpu"]
