"""Several hosts on one machine: network namespaces around one switch, gone again whatever happens.

To Weft they are hosts: ranks in two of them share no memory, and reach each other only through the network.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from support.jobs import Process, as_file, start_script

NO_NAMESPACES = "network namespaces cannot be made here"
"""Start of the reason for which tests marked ``namespaces`` are skipped."""

SHAPED = "tc qdisc add dev eth0 root tbf rate 8mbit burst 8000 latency 100ms"
SYSTEM = "/usr/sbin:/sbin"
_NUMBER = count()


def find_ip() -> str:
    """Where ``ip`` is; an ordinary user's PATH may lack its folder."""
    program = shutil.which("ip", path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM}")
    assert program, "these tests need iproute2; 'tools/system-packages' installs it"
    return program


def ip(*words: str) -> str:
    """Run ``ip``; its output."""
    return subprocess.run([find_ip(), *words], check=True, capture_output=True, text=True, timeout=30).stdout


@cache
def find_missing_privilege() -> str | None:
    """Try once what the tests of hosts and of the lab need; what was refused, or None if nothing was.

    It does not ask Weft, whose own answer a test compares with this one.
    """
    name = f"weft{os.getpid()}t"
    try:
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "eth1")
            setting = "echo 1 > /proc/sys/net/ipv4/ip_forward"
            ip("netns", "exec", name, "sh", "-ec", f"PATH=$PATH:{SYSTEM}; {setting}; {SHAPED}")
        finally:
            ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return " ".join(error.stderr.split())
    return None


def without_privileges(*command: str) -> list[str]:
    """A command that runs as in most containers: whoever starts it, it cannot make network namespaces."""
    dropped = ["setpriv", "--bounding-set=-net_admin,-sys_admin"] if os.geteuid() == 0 else []
    return [*dropped, *command]


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

    def prefix(self, number: int) -> list[str]:
        """Stands before a command that is to run on a host."""
        return [find_ip(), "netns", "exec", self.host(number)]

    def unplug(self, number: int) -> None:
        """Cut the cable of a host: nothing arrives any more, and nobody is told."""
        ip("-n", f"{self.name}s", "link", "set", f"p{number}", "down")

    def start(
        self,
        folder: Path,
        per_host: int,
        job: str | Path,
        *words: str,
        variables: dict[str, str] | None = None,
        stdin: int | None = None,
    ) -> list[Process]:
        """Start a script, a file or its text, on so many ranks of each host, the first ranks on the first."""
        script = as_file(folder, job)
        place = {
            "WEFT_SIZE": str(self.hosts * per_host),
            "WEFT_ADDRESS": self.address(0),
            "WEFT_PORT": "4000",
            "WEFT_JOB": "test",
            "WEFT_SECRET": secrets.token_hex(32),
        }
        return [
            start_script(
                script,
                words,
                variables={
                    **os.environ,
                    **place,
                    "WEFT_RANK": str(number * per_host + n),
                    "WEFT_INTERFACE": self.address(number),
                    **(variables or {}),
                },
                stdin=stdin,
                network=self.host(number),
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
