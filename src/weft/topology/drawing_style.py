"""How drawings look: colours for light and dark pages, and words.

Class names start with the drawing's own, because a style inside an SVG reaches the whole page it is put into.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final

NAMESPACE: Final = "http://www.w3.org/2000/svg"

STYLE: Final = """
.weft-topology{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.weft-topology .page{fill:#fff;stroke:#e3e8ef}
.weft-topology .title{fill:#1a2433;font-size:16px;font-weight:600}
.weft-topology .note{fill:#5d6b7e;font-size:12px}
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
.weft-topology .page{fill:#151b23;stroke:#2a3441}
.weft-topology .title{fill:#eef3f9}
.weft-topology .note{fill:#9aa8b9}
.weft-topology .box{fill:#1c242e;stroke:#313d4b}
.weft-topology .rank{fill:#6272e8;stroke:#151b23}
.weft-topology .switch{fill:#e3993a;stroke:#151b23}
.weft-topology .failed{fill:#151b23;stroke:#e5786d}
.weft-topology .failed+.switch-number{fill:#e5786d}
.weft-topology .speed{fill:#cdd8e5;stroke:#151b23}
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


def clean_text(text: str, longest: int = 200) -> str:
    """Make text safe in XML: no control characters, no lone surrogates, nothing that looks like markup.

    Examples
    --------
    >>> clean_text("a<b & c"), clean_text("a" * 20, longest=5)
    ('a&lt;b &amp; c', 'aaaa…')
    """
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)
    return escape(plain if len(plain) <= longest else plain[: max(longest - 1, 1)] + "…")
