"""The process behind a `RankPool`: it has imported everything, and forks a rank for each order that comes."""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

_POLL_S = 0.01
_LONGEST_ORDER = 1 << 20
_CLONE_NEWNET = 0x40000000


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork a rank for each order that comes; in the rank, return its order, and None at the end."""
    ranks: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control], [], [], _POLL_S if ranks else None)
        if ready:
            data, files, _, _ = socket.recv_fds(control, _LONGEST_ORDER, 3)
            if not data:
                break
            order: dict[str, Any] = json.loads(data)
            pid = os.fork()
            if pid == 0:
                return order | {"files": files}
            ranks[pid] = order["number"]
            for file in files:
                os.close(file)
            _report(control, started=pid, number=order["number"])
        for pid, number in tuple(ranks.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del ranks[pid]
                _report(control, ended=os.waitstatus_to_exitcode(status), number=number)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return None


def _report(control: socket.socket, **facts: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits any more, and the next order is the end
        control.send(json.dumps(facts).encode())


def settle(order: dict[str, Any]) -> None:
    """Make this fork the process that was asked for."""
    for target, source in enumerate(order["files"]):
        os.dup2(source, target)
        os.close(source)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["variables"])
    if network := order["network"]:
        with Path("/run/netns", network).open("rb") as handle:
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
    for name, limit in order["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))


def run(order: dict[str, Any]) -> int:
    """Run a script or a module as the interpreter would; its exit code."""
    sys.argv = [order["program"], *order["words"]]
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        if order["program"].endswith(".py"):
            sys.path[0] = str(Path(order["program"]).parent)
            runpy.run_path(order["program"], run_name="__main__")
        else:
            runpy.run_module(order["program"], run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Serve; in a fork, be a rank.

    A rank ends as a program does, except that the interpreter is not taken apart: unloading torch takes half
    a second of processor time.
    """
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    # What is imported stays: a collection in a rank that looked at it all would copy 80 MB that forks share.
    gc.collect()
    gc.freeze()
    order = serve(control)
    if order is None:
        return
    control.close()
    settle(order)
    code = run(order)
    if order["finalise"]:
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
