"""NCCL's own cost model below a comparison: which boxes it knows, and that it says what it is."""

from __future__ import annotations

import pytest

from weft.planning import compare
from weft.planning.nccl_costs import NcclCluster
from weft.planning.nccl_estimate import estimate_of_nccl, nccl_cluster_of
from weft.topology import load_topology


@pytest.mark.parametrize(
    ("spec", "cluster"),
    [
        ("dgx-h100:2", NcclCluster(2)),
        ("dgx-h100:2@speed=effective", NcclCluster(2)),
        ("dgx-h100:1", NcclCluster(1)),
        ("dgx-a100:4", NcclCluster(4, generation="ampere", gigabits=200, cpu="amd")),
        ("dgx-a100:2@nics=4,nic=100Gbit/s", NcclCluster(2, 8, "ampere", 4, 100, cpu="amd")),
        ("dgx-b200:2", NcclCluster(2, generation="blackwell")),
        ("leafspine:16x8@oversub=3", NcclCluster(16)),
        ("dgx-h100:2+fail=host0.nic5", NcclCluster(2, interfaces=7)),
    ],
)
def test_boxes_with_an_nvswitch_are_known_by_the_speed_of_nvlink(spec: str, cluster: NcclCluster) -> None:
    assert nccl_cluster_of(load_topology(spec)) == cluster


@pytest.mark.parametrize(
    "spec",
    [
        "torus:4x4",
        "mi300x:2",
        "hosts:8,8",
        "rails:2x8@inside=pcie",
        "dgx-h100:2@nvlink=1GB/s",
        "dgx-h100:2@nic=1B/s",
        "gb200-nvl72:1",
    ],
)
def test_other_clusters_have_no_estimate(spec: str) -> None:
    assert estimate_of_nccl(load_topology(spec), 1 << 20) is None


def test_a_comparison_has_the_estimate_of_an_all_reduce_only() -> None:
    found = compare("dgx-h100:2", "1MiB", algorithms="direct")
    assert found.nccl_estimate is not None
    assert found.to_dict()["nccl_estimate"]["estimates"][0]["protocol"] in {"LL", "LL128", "Simple"}
    assert "neither simulated nor verified" in found._repr_html_()
    assert compare("dgx-h100:2", "1MiB", "all_gather", "direct").nccl_estimate is None
