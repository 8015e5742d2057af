"""How drawings of networks look: colours of nodes and links for light and dark pages, and speeds in words."""

from __future__ import annotations

from typing import Final

SCOPE: Final = "weft-topology"
"""Class of these drawings."""

STYLE: Final = """
.weft-topology .box{fill:#f4f6fa;stroke:#d9e0ea}
.weft-topology .rank{fill:#4353c9;stroke:#fff}
.weft-topology .switch{fill:#f0a63c;stroke:#fff}
.weft-topology .near{fill:#8fc26a}
.weft-topology .bus{fill:#c3b8a5}
.weft-topology .cpu{fill:#d9a3c4}
.weft-topology .nic{fill:#5fc0c7}
.weft-topology .failed{fill:#fff;stroke:#c0392b;stroke-dasharray:3 2}
.weft-topology .number{fill:#fff;text-anchor:middle;font-weight:600}
.weft-topology .switch-number{fill:#3d2604;text-anchor:middle;font-weight:600}
.weft-topology .failed+.switch-number{fill:#c0392b}
.weft-topology .speed{fill:#3a4759;font-size:11px;text-anchor:middle}
.weft-topology .speed{paint-order:stroke;stroke:#fff;stroke-width:4px}
.weft-topology .count{fill:#1a2433;font-size:12px;font-weight:600}
.weft-topology .gap{fill:none;stroke:#93a1b3;stroke-width:1.6;stroke-dasharray:2 5;stroke-linecap:round}
.weft-topology .link{fill:none;stroke:currentColor;stroke-linecap:round}
.weft-topology .arrow{fill:currentColor}
.weft-topology .s0{color:#a5b3c5}
.weft-topology .s1{color:#8aa2c1}
.weft-topology .s2{color:#5f86b8}
.weft-topology .s3{color:#3565a8}
.weft-topology .s4{color:#173f82}
.weft-topology .l0{color:#ccd5df}
.weft-topology .l1{color:#8fb5c9}
.weft-topology .l2{color:#e9c14d}
.weft-topology .l3{color:#ee8f3c}
.weft-topology .l4{color:#d9472f}
.weft-topology .l5{color:#8e1540}
@media (prefers-color-scheme:dark){
.weft-topology .box{fill:#1c242e;stroke:#313d4b}
.weft-topology .rank{fill:#6272e8;stroke:#151b23}
.weft-topology .switch{fill:#e3993a;stroke:#151b23}
.weft-topology .near{fill:#8fc26a}
.weft-topology .bus{fill:#c3b8a5}
.weft-topology .cpu{fill:#d9a3c4}
.weft-topology .nic{fill:#5fc0c7}
.weft-topology .failed{fill:#151b23;stroke:#e5786d}
.weft-topology .failed+.switch-number{fill:#e5786d}
.weft-topology .speed{fill:#cdd8e5;stroke:#151b23}
.weft-topology .count{fill:#eef3f9}
.weft-topology .gap{stroke:#66768a}
.weft-topology .s0{color:#5d6e83}
.weft-topology .s1{color:#6884a6}
.weft-topology .s2{color:#6f97c9}
.weft-topology .s3{color:#95bdf0}
.weft-topology .s4{color:#cfe2ff}
.weft-topology .l0{color:#3a4653}
.weft-topology .l1{color:#4f7d94}
.weft-topology .l5{color:#c2336a}
}
"""


def speed_text(bandwidth: int) -> str:
    """Write a speed in four digits, which are enough to look at.

    Examples
    --------
    >>> speed_text(25_000_000_000), speed_text(53_687_091_200)
    ('25 GB/s', '53.69 GB/s')
    """
    for unit, scale in (("TB/s", 10**12), ("GB/s", 10**9), ("MB/s", 10**6), ("KB/s", 10**3)):
        if bandwidth >= scale:
            return f"{bandwidth / scale:.4g} {unit}"
    return f"{bandwidth} B/s"
