"""Several hosts on one machine: network namespaces around one switch, gone again whatever happens.

To Weft they are hosts: ranks in two of them share no memory, and reach each other only through the network.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_NUMBER = count()


def ip(*words: str) -> str:
    """Run ``ip``; its output."""
    program = shutil.which("ip")
    assert program, "these tests need iproute2; 'tools/system-packages' installs it"
    return subprocess.run([program, *words], check=True, capture_output=True, text=True, timeout=30).stdout


@dataclass(frozen=True)
class Network:
    """Hosts by number; each has one cable, to a switch."""

    name: str
    hosts: int

    def host(self, number: int) -> str:
        """Name of its namespace."""
        return f"{self.name}h{number}"

    def address(self, number: int) -> str:
        """Where the others reach it."""
        return f"10.213.0.{number + 1}"

    def unplug(self, number: int) -> None:
        """Cut the cable of a host: nothing arrives any more, and nobody is told."""
        ip("-n", f"{self.name}s", "link", "set", f"p{number}", "down")

    def start(
        self,
        folder: Path,
        per_host: int,
        source: str,
        *words: str,
        variables: dict[str, str] | None = None,
    ) -> list[subprocess.Popen[str]]:
        """Start a script, so many ranks on each host, the first ranks on the first."""
        script = folder / "job.py"
        script.write_text(source, "utf-8")
        job = {
            "WEFT_SIZE": str(self.hosts * per_host),
            "WEFT_ADDRESS": self.address(0),
            "WEFT_PORT": "4000",
            "WEFT_JOB": "test",
            "WEFT_SECRET": secrets.token_hex(32),
        }
        program = shutil.which("ip")
        return [
            subprocess.Popen(
                [str(program), "netns", "exec", self.host(number), sys.executable, str(script), *words],
                env={
                    **os.environ,
                    **job,
                    "WEFT_RANK": str(number * per_host + n),
                    "WEFT_INTERFACE": self.address(number),
                    **(variables or {}),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for number in range(self.hosts)
            for n in range(per_host)
        ]


@contextmanager
def make_network(hosts: int) -> Iterator[Network]:
    """Hosts and their switch, as long as the block runs."""
    network = Network(f"weft{os.getpid()}n{next(_NUMBER)}", hosts)
    switch = f"{network.name}s"
    made = []
    try:
        for name in (switch, *(network.host(number) for number in range(hosts))):
            ip("netns", "add", name)
            made.append(name)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for number in range(hosts):
            host = network.host(number)
            ip("-n", host, "link", "add", "eth0", "type", "veth", "peer", f"p{number}", "netns", switch)
            ip("-n", switch, "link", "set", f"p{number}", "master", "bridge", "up")
            ip("-n", host, "addr", "add", f"{network.address(number)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host, "link", "set", device, "up")
        yield network
    finally:
        for name in made:
            ip("netns", "del", name)
