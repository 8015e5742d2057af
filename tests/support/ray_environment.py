"""What a process needs to start a Ray cluster of its own, and to leave nothing of it behind."""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def ray_environment(folder: Path) -> Iterator[dict[str, str]]:
    """Give environment variables with a mark, by which processes that are left over are found and ended."""
    mark = secrets.token_hex(8)
    # The token that Ray lets its own processes in by is made anew, and is not that of the user.
    token = folder / "ray-token"
    token.write_text(secrets.token_hex(32), "utf-8")
    token.chmod(0o600)
    with tempfile.TemporaryDirectory(prefix="ray-") as short:  # paths of sockets have at most 107 characters
        try:
            yield {
                "WEFT_TEST_MARK": mark,
                "RAY_AUTH_TOKEN_PATH": str(token),
                "RAY_TMPDIR": short,
                "RAY_USAGE_STATS_ENABLED": "0",
            }
        finally:
            for number in _left(f"WEFT_TEST_MARK={mark}".encode()):
                os.kill(number, signal.SIGKILL)


def _left(mark: bytes) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes():
                yield int(folder.name)
        except OSError:
            continue  # it is gone, or somebody else's
