"""Host names are looked up with a deadline, also when the name server never answers."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.hosts import find_ip, make_network

from weft.errors import InputError
from weft.runtime import Place, join
from weft.runtime.bootstrap.meeting_point import reserve_port
from weft.runtime.bootstrap.name_resolution import look_up

# The system itself would wait a minute for the name server, which is a socket that nobody reads.
MUTE = "nameserver 127.0.0.1\noptions timeout:30 attempts:2\n"
JOIN = """
import socket, sys
from weft.errors import TimedOut
from weft.runtime import Place, join

mute = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mute.bind(("127.0.0.1", 53))
try:
    join(Place(int(sys.argv[1]), 2, address="rank0.example", port=4000, secret=bytes(32)), timeout=1)
except TimedOut as error:
    print(error)
"""


@pytest.mark.namespaces
@pytest.mark.parametrize("rank", [0, 1])
def test_a_name_server_that_is_mute_does_not_hold_up_a_job(tmp_path: Path, rank: int) -> None:
    (tmp_path / "resolv.conf").write_text(MUTE)
    (tmp_path / "job.py").write_text(JOIN)
    inside = (
        f"mount --bind {tmp_path}/resolv.conf /etc/resolv.conf && exec {sys.executable} {tmp_path}/job.py"
    )
    with make_network(1) as network:
        words = [find_ip(), "netns", "exec", network.host(0), "sh", "-c", f"{inside} {rank}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("join: "), done.stdout
    assert "no name server has said within 1.0 s where rank0.example is" in done.stdout


@pytest.mark.parametrize("name", ["no such name", "a..b", "\u2488com"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="WEFT_ADDRESS"):
        join(Place(0, 2, address=name, port=4000, secret=bytes(32)), timeout=20)


def test_an_address_needs_no_name_server() -> None:
    assert look_up("127.0.0.1", 5, 1) == [(socket.AF_INET, ("127.0.0.1", 5))]
    assert look_up("localhost", 5, 10)


def test_all_addresses_of_a_name_are_tried() -> None:
    # "localhost" may stand for ::1 and 127.0.0.1; rank 0 listens at one of them only.
    holder, port = reserve_port("127.0.0.1")
    places = [
        Place(rank, 2, address=address, port=port, secret=bytes(32))
        for rank, address in enumerate(["127.0.0.1", "localhost"])
    ]
    with holder, ThreadPoolExecutor(2) as pool:
        for control_plane in pool.map(lambda place: join(place, timeout=20), places):
            control_plane.close()


def test_an_address_loads_no_tables_for_names_of_other_alphabets() -> None:
    code = "import sys\nfrom weft.runtime.bootstrap.name_resolution import look_up\n"
    code += "print(look_up('127.0.0.1', 5, 1)[0][1][0], 'encodings.idna' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "127.0.0.1 False\n"
