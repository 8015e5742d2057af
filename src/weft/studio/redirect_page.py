"""A private file that sends a browser to the studio, so that the token stands in no command line.

A browser is opened by a command, and every user of the machine can read the arguments of a command in
``/proc``. So it is not given the address, which holds the token, but the name of a file that only this user
can read, and whose page goes on to the address at once. Jupyter does the same.
"""

from __future__ import annotations

import html
import os
import tempfile
import webbrowser
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAGE: Final = Path(__file__).parent / "assets" / "redirect.html"


@contextmanager
def browser_opener() -> Iterator[Callable[[str], bool]]:
    """Open addresses in the user's browser by a private file, which is deleted at the end.

    Yields
    ------
    Callable
        Takes an address, and returns whether a browser was found.
    """
    with tempfile.TemporaryDirectory(prefix="weft-studio-") as folder:

        def open_address(url: str) -> bool:
            return webbrowser.open(write_redirect(Path(folder), url).as_uri())

        yield open_address


def write_redirect(folder: Path, url: str) -> Path:
    """Write a page that goes on to an address, which only this user can read."""
    page = folder / "open.html"
    handle = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(_PAGE.read_text("utf-8").replace("URL", html.escape(url)))
    return page
