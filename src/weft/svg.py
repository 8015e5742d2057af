"""The one writer of SVG: elements, text, legends and colours for light and dark pages.

Drawings of networks, trees of schedules, timelines and charts are all made of these parts. Text from outside
enters a document only through `label`, `document` and the values of attributes, which escape it; what is
markup already has the type `Markup`, so that the type checker finds text that was not escaped.

A style inside an SVG reaches the whole page that it is put into. Each sort of picture therefore has a class
of its own, and every rule begins with it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAMESPACE: Final = "http://www.w3.org/2000/svg"

Markup = NewType("Markup", str)
"""Text that is part of a document as it stands."""

NOTHING: Final = Markup("")

FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif'

_LIGHT: Final = {
    "paper": "#fff",
    "edge": "#e3e8ef",
    "ink": "#1a2433",
    "faint": "#5d6b7e",
    "grid": "#dfe5ec",
    "mark": "#d1495b",
}
_DARK: Final = {
    "paper": "#151b23",
    "edge": "#2a3441",
    "ink": "#eef3f9",
    "faint": "#9aa8b9",
    "grid": "#2c3744",
    "mark": "#f0808d",
}

SERIES: Final = ("#3465a4", "#cc5500", "#2e8b57", "#8b3a8b", "#a0862c", "#6b747c", "#b22222", "#20908d")
"""Colours of series on light pages; `frame_style` has lighter ones of the same hue for dark pages."""

_DARK_SERIES: Final = (
    "#7ea6dc", "#f08a44", "#5fbf8b", "#c583c5", "#cdb35a", "#a4adb5", "#e57373", "#4fc3bf",
)  # fmt: skip

_LETTER: Final = 6.4
_SAMPLE: Final = 28.0
_GAP: Final = 22.0


def clean_text(text: str, longest: int = 200) -> Markup:
    """Make text safe in XML: no control characters, no lone surrogates, nothing that looks like markup.

    Examples
    --------
    >>> clean_text("a<b & c"), clean_text("a" * 20, longest=5)
    ('a&lt;b &amp; c', 'aaaa…')
    """
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)
    from html import (
        escape,  # not at the top: its table of entities takes longer to load than all of Weft's errors
    )

    return Markup(escape(plain if len(plain) <= longest else plain[: max(longest - 1, 1)] + "…"))


def number(value: float) -> str:
    """Write a number in as few characters as a picture needs: two digits behind the point.

    Examples
    --------
    >>> number(3), number(0.5), number(12.3456), number(-0.001)
    ('3', '0.5', '12.35', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(tag: str, /, *content: Markup, **attributes: str | float | None) -> Markup:
    """Write an element.

    Parameters
    ----------
    tag
        Its name.
    content
        What is inside, already markup.
    attributes
        In this order. An underscore in a name is a hyphen, one at its end is dropped (``class_``), and None
        leaves the attribute out.

    Examples
    --------
    >>> element("circle", class_="rank", cx=1.0, r=2.5, stroke_width=None)
    '<circle class="rank" cx="1" r="2.5"/>'
    >>> element("g", element("line"), id="a<b")
    '<g id="a&lt;b"><line/></g>'
    """
    words = [tag]
    for name, value in attributes.items():
        if value is not None:
            text = clean_text(value, 1 << 30) if isinstance(value, str) else number(value)
            words.append(f'{name.rstrip("_").replace("_", "-")}="{text}"')
    head = " ".join(words)
    return Markup(f"<{head}>{''.join(content)}</{tag}>" if content else f"<{head}/>")


def label(words: str, x: float, y: float, class_: str | None = "note", **attributes: str | float) -> Markup:
    """Write words at a place, escaped.

    Examples
    --------
    >>> label("a<b", 1, 2)
    '<text class="note" x="1" y="2">a&lt;b</text>'
    """
    return element("text", clean_text(words), class_=class_, x=x, y=y, **attributes)


def hint(words: str) -> Markup:
    """Words that appear where the mouse rests on what they are put into."""
    return element("title", clean_text(words))


def join(parts: Iterable[Markup], between: str = "") -> Markup:
    """Put markup together."""
    return Markup(between.join(parts))


def shifted(x: float, y: float, *content: Markup, **attributes: str | float) -> Markup:
    """Move markup: a group whose origin is at a place."""
    return element("g", *content, transform=f"translate({number(x)} {number(y)})", **attributes)


def document(width: float, height: float, *content: Markup, scope: str, title: str, style: str) -> str:
    """Write a document that needs nothing else, on paper of its own.

    Parameters
    ----------
    width, height
        In pixels; a narrow page makes it smaller.
    content
        What is drawn, from the back to the front.
    scope
        Class of the picture, which every rule of `style` begins with.
    title
        What a screen reader says.
    style
        Rules beside those of `frame_style`.
    """
    wide, tall = round(width), round(height)
    parts = [
        element("title", clean_text(title)),
        element("style", Markup(frame_style(scope) + style)),
        element("rect", class_="page", x=0.5, y=0.5, width=wide - 1, height=tall - 1, rx=10),
        *(part for part in content if part),
    ]
    svg = element(
        "svg",
        Markup("\n"),
        *(Markup(f"{part}\n") for part in parts),
        xmlns=NAMESPACE,
        class_=scope,
        role="img",
        viewBox=f"0 0 {wide} {tall}",
        width=wide,
        height=tall,
        style="max-width:100%",
    )
    return f"{svg}\n"


def frame_style(scope: str) -> str:
    """Rules that all pictures have: paper, titles, notes, a grid, and series ``c0`` to ``c7``.

    An element takes the colour of a series by ``fill:currentColor`` (class ``area``) or as a line (``line``).
    """
    return (
        f"\n.{scope}{{font-family:{FONT}}}\n"
        f".{scope} .title{{font-size:16px;font-weight:600}}\n"
        f".{scope} .note{{font-size:12px}}\n"
        f".{scope} .area{{fill:currentColor}}\n"
        f".{scope} .line{{fill:none;stroke:currentColor}}\n"
        f"{_rules(scope, _LIGHT, SERIES)}"
        f"@media (prefers-color-scheme:dark){{\n{_rules(scope, _DARK, _DARK_SERIES)}}}\n"
    )


def _rules(scope: str, colours: dict[str, str], series: Sequence[str]) -> str:
    rules = [
        f".page{{fill:{colours['paper']};stroke:{colours['edge']}}}",
        f".title,.{scope} .ink{{fill:{colours['ink']}}}",
        f".note{{fill:{colours['faint']}}}",
        f".grid{{stroke:{colours['grid']}}}",
        f".axis{{stroke:{colours['ink']};fill:none}}",
        f".mark{{stroke:{colours['mark']};fill:none}}",
        f".halo{{paint-order:stroke;stroke:{colours['paper']}}}",
        *(f".c{place}{{color:{colour}}}" for place, colour in enumerate(series)),
    ]
    return "".join(f".{scope} {rule}\n" for rule in rules)


def series_class(place: int) -> str:
    """Class of the colour of a series; colours repeat after the last."""
    return f"c{place % len(SERIES)}"


def legend(items: Iterable[tuple[Markup, str]], room: float) -> tuple[Markup, float, float]:
    """Lay samples with words beside them out in rows; also returns how wide and how tall they are.

    Parameters
    ----------
    items
        A sample that is up to 20 pixels wide, or `NOTHING`, and its words, which name the unit of a number.
    room
        Width in pixels after which a new row begins.

    Examples
    --------
    >>> legend([(element("path", d="M0 -4H20"), "5 ms"), (NOTHING, "idle")], 400)[1:]
    (101.2, 26.0)
    """
    parts, x, y, widest = [], 0.0, 0.0, 0.0
    for sample, words in items:
        shift = _SAMPLE if sample else 0.0
        size = shift + _LETTER * len(words)
        if x and x + size > room:
            x, y = 0.0, y + 22.0
        parts.append(shifted(round(x), y, sample, label(words, shift, 0)))
        widest = max(widest, x + size)
        x += size + _GAP
    return join(parts), round(widest, 1), y + 26.0
