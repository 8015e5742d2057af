"""Draw pictures of docs/images anew: ``.venv/bin/python tools/pictures.py``.

These are the drawings of the README and of docs/topology.md, which are those of ``weft topology``, and the
charts of stored measurements. ``weft reproduce PAPER --charts docs/images`` draws the charts of a paper.
"""

from __future__ import annotations

import sys
from pathlib import Path

import weft
from weft.algorithms.registry import find
from weft.export import draw_trees
from weft.topology.drawing import draw_svg

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path += [str(ROOT / "benchmarks" / name) for name in ("lab", "torch", "training", ".")]

LOADED = "torus:4x4@bw=16GB/s,lat=150ns+fail=5-6"
DRAWN = {
    "topology-rails": "dgx-h100:2+fail=host0.nic5",
    "topology-large": "rails:128x8",
    "topology-leafspine": "leafspine:16x8@oversub=3",
    "topology-torus": "tpu-v4:4x4x4",
    "topology-dragonfly": "dragonfly:9,4,2",
    "topology-slurm": str(ROOT / "tests" / "data" / "topology" / "tree.slurm.conf"),
}


def draw_loads() -> dict[str, str]:
    """One drawing per algorithm: how long each link is busy; ``weft topology --load NAME --segment none``."""
    topology = weft.load_topology(LOADED)
    return {
        f"load-{name}": weft.simulate(
            find(name).build(topology, "all_reduce"), "64MiB", segment_bytes=None
        ).to_svg()
        for name in ("ring", "multitree")
    }


def draw_topologies() -> dict[str, str]:
    """Drawings of clusters, and the trees of docs/multitree.md."""
    found = {name: draw_svg(weft.load_topology(spec)) for name, spec in DRAWN.items()}
    trees = find("multitree").build(weft.load_topology("torus:4x4"), "all_gather")
    return {**found, "multitree-trees": draw_trees(trees, [0, 5])}


def draw_measurements() -> dict[str, str]:
    """Charts of what the benchmarks stored."""
    import gallery
    import lab_training
    import result_files
    import transformer

    found = {f"lab-{one['parameters']['name']}": gallery.picture(one) for one in gallery.stored()}
    for name, asked in lab_training.SET_UPS.items():
        stored = result_files.read(ROOT / "benchmarks" / "torch" / "results" / f"training-{name}.json")
        found[f"training-{name}"] = lab_training.draw(asked, stored["results"])
    document = result_files.read(transformer.RESULTS)
    for one in document["summary"]:
        found |= transformer.draw(document, one["communication"])
    return found


def main() -> None:
    """Write every picture over the one that is there."""
    for draw in (draw_loads, draw_topologies, draw_measurements):
        for name, picture in draw().items():
            (IMAGES / f"{name}.svg").write_text(picture, "utf-8")
            print(f"{name}.svg: {len(picture):,} bytes")


if __name__ == "__main__":
    main()
