"""Draw the pictures of the README anew: ``.venv/bin/python tools/pictures.py``."""

from __future__ import annotations

from pathlib import Path

import weft
from weft.algorithms.registry import find
from weft.topology.drawing import draw_svg

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SPEC = "torus:4x4@bw=16GB/s,lat=150ns+fail=5-6"


def main() -> None:
    """One drawing per algorithm: how long each link is busy."""
    topology = weft.load_topology(SPEC)
    for name in ("ring", "multitree"):
        schedule = find(name).build(topology, "all_reduce")
        result = weft.simulate(schedule, "64MiB")
        picture = draw_svg(topology, load=result.link_busy_ps / 1e9)
        (IMAGES / f"load-{name}.svg").write_text(picture, "utf-8")
        print(f"load-{name}.svg: {result}")


if __name__ == "__main__":
    main()
