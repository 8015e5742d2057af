"""The studio under load: requests at a fixed rate, whatever it does, each of them accounted for.

Half of the requests are edits, half comparisons of ring and multitree on ``torus:4x4``, from several sessions
in turn: an edit slows a cable down or takes that back, and so cancels what its session compares. Requests are
sent when their time has come, not when the last one is answered. Malformed requests are mixed in. At the end
every request has an answer, and every comparison that was accepted has finished, was cancelled or has failed.

In some of the loads an edit follows the comparison of its own session at once, in others only when the other
sessions have had their turn. The last load has longer comparisons on a larger cluster from as many sessions
as there can be, which is more than workers and queue take: there the studio has to refuse, with 429 in JSON.

A second part measures how long the first row of a comparison at 64 ranks takes, and all rows.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import result_files

OUTPUT = Path(__file__).with_suffix(".json")
SPEC = "torus:4x4"
COMPARISON = {"size": "64MiB", "algorithms": ["ring", "multitree"]}
OVERFLOW_SPEC = "torus:8x8"
OVERFLOW_COMPARISON = {"size": "64MiB"}


@dataclass(frozen=True)
class Load:
    """Requests at a rate.

    Parameters
    ----------
    rate_per_s, seconds
        How many requests a second, and for how long.
    sessions
        How many sessions take turns.
    closely
        Whether the edit of a session comes right behind its comparison, or a whole round later.
    overflows
        Whether comparisons are longer and more than workers and queue take, so that some must be refused.
    """

    rate_per_s: int
    seconds: int
    sessions: int
    closely: bool = False
    overflows: bool = False

    @property
    def cluster(self) -> str:
        """What the comparisons run on."""
        return OVERFLOW_SPEC if self.overflows else SPEC

    @property
    def comparison(self) -> dict[str, Any]:
        """The body of each comparison."""
        return OVERFLOW_COMPARISON if self.overflows else COMPARISON


LOADS = (
    Load(50, 20, 8),
    Load(50, 20, 8, closely=True),
    Load(200, 5, 15),
    Load(50, 10, 16, overflows=True),
)
"""The first two are the same but for the time between a comparison and the edit that cancels it."""

ANSWER_S = 60.0
FIRST_ROWS = ("torus:8x8", "fattree:64", "hosts:16,16,16,16", "dgx-h100:8")
MALFORMED = (b"{", b"[]", b'{"action": "burn"}', b"\xff", b"")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:([0-9]+)/#(\S+)")


@dataclass
class Tally:
    """What became of requests."""

    sent: int = 0
    lost: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    last_events: Counter[str] = field(default_factory=Counter)
    wrong_problems: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    """Requests to one studio, each on a connection of its own."""

    port: int
    token: str

    async def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: close\r\n"
                f"Authorization: Bearer {self.token}\r\n"
            )
            if body is not None:
                head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"\r\n" + (body or b""))
            await writer.drain()
            found = await reader.read(-1)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        answer_head, _, answer = found.partition(b"\r\n\r\n")
        status = int(answer_head.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" in answer_head.lower():
            answer = _join_chunks(answer)
        return status, answer

    async def ask_json(self, method: str, path: str, body: Any = None) -> Any:
        """The same for JSON that must be there."""
        status, answer = await self.ask(method, path, None if body is None else json.dumps(body).encode())
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {answer[:200]!r}")
        return json.loads(answer)


def _join_chunks(data: bytes) -> bytes:
    whole = bytearray()
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        whole += data[:length]
        data = data[length + 2 :]
        if not length:
            break
    return bytes(whole)


def run_load(port: int, token: str, load: Load) -> dict[str, Any]:
    """Send requests at a rate for some seconds, and count what became of them."""
    return asyncio.run(_run_load(Client(port, token), load))


async def _run_load(client: Client, load: Load) -> dict[str, Any]:
    opened = [
        await client.ask_json("POST", "/api/sessions", {"topology": load.cluster})
        for _ in range(load.sessions)
    ]
    paths = [f"/api/sessions/{one['session']}" for one in opened]
    tally = Tally()
    total = load.rate_per_s * load.seconds
    began = time.monotonic()
    tasks = []
    for number in range(total):
        await asyncio.sleep(max(0.0, began + number / load.rate_per_s - time.monotonic()))
        turn, place = divmod(number // 2, len(paths))
        sending = _send(client, tally, load, number, paths[place], undo=turn % 2 == 1)
        tasks.append(asyncio.create_task(sending))
    sending_s = time.monotonic() - began
    await asyncio.gather(*tasks)
    counts = await client.ask_json("GET", "/api/counts")
    answered_s = time.monotonic() - began
    return {
        "requests": {
            "sent": tally.sent,
            "lost": tally.lost,
            "by_status": dict(sorted(tally.statuses.items())),
            "problems_that_are_no_json": tally.wrong_problems,
        },
        "comparisons": counts,
        "last_events": dict(sorted(tally.last_events.items())),
        "sending_s": sending_s,
        "until_all_answered_s": answered_s,
        "median_seconds": {kind: statistics.median(times) for kind, times in sorted(tally.seconds.items())},
        "longest_seconds": {kind: max(times) for kind, times in sorted(tally.seconds.items())},
    }


async def _send(client: Client, tally: Tally, load: Load, number: int, path: str, *, undo: bool) -> None:
    """One request: by turns an edit and a comparison of the same session, and every 25th is malformed."""
    if number % 25 == 24:
        kind, method, place, sent = "malformed", "POST", "edits", MALFORMED[number // 25 % len(MALFORMED)]
    elif number % 2 == (0 if load.closely else 1):
        kind, method, place, sent = "comparison", "POST", "comparisons", json.dumps(load.comparison).encode()
    elif undo:
        kind, method, place, sent = "edit", "DELETE", "edits/last", None
    else:
        edit = {"action": "slow", "a": "0", "b": "1", "factor": 1 - (number % 7 + 1) / 10}
        kind, method, place, sent = "edit", "POST", "edits", json.dumps(edit).encode()
    tally.sent += 1
    began = time.monotonic()
    try:
        async with asyncio.timeout(ANSWER_S):
            status, body = await client.ask(method, f"{path}/{place}", sent)
    except (OSError, ValueError, IndexError, TimeoutError):
        tally.lost += 1
        return
    tally.statuses[f"{kind} {status}"] += 1
    tally.seconds.setdefault(f"{kind} {status}", []).append(time.monotonic() - began)
    if status >= 400:
        tally.wrong_problems += not _is_problem(body)
    elif kind == "comparison":
        tally.last_events[json.loads(body.splitlines()[-1])["event"]] += 1


def _is_problem(body: bytes) -> bool:
    try:
        return set(json.loads(body)) == {"error", "what_to_do"}
    except ValueError:
        return False


def check(found: dict[str, Any], load: Load) -> None:
    """Fail unless nothing was lost, everything is accounted for, and the queue refused what it had to."""
    requests, counts = found["requests"], found["comparisons"]
    assert requests["lost"] == 0, found
    assert requests["problems_that_are_no_json"] == 0, found
    assert sum(requests["by_status"].values()) == requests["sent"], found
    assert {status.split()[1] for status in requests["by_status"]} <= {"200", "409", "422", "429"}, found
    assert counts["running"] == counts["waiting"] == 0, found
    assert counts["accepted"] == counts["finished"] + counts["cancelled"] + counts["failed"], found
    ends = found["last_events"]
    assert ends.get("done", 0) == counts["finished"], found
    assert ends.get("cancelled", 0) == counts["cancelled"], found
    assert counts["failed"] == 0, found
    assert counts["refused"] > 0 or not load.overflows, found
    assert counts["cancelled"] > 0 or not load.closely, found


async def _measure_first_rows(client: Client, spec: str) -> dict[str, Any]:
    """Seconds from the request to the first row, to the last, and to the end, of all algorithms."""
    opened = await client.ask_json("POST", "/api/sessions", {"topology": spec})
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port, limit=64 << 20)
    body = json.dumps({"size": "64MiB"}).encode()
    head = (
        f"POST /api/sessions/{opened['session']}/comparisons HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
        f"Authorization: Bearer {client.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    began = time.monotonic()
    writer.write(head.encode() + body)
    times: dict[str, float] = {}
    algorithms = 0
    async with asyncio.timeout(ANSWER_S):
        while "end" not in times:
            line = await reader.readline()
            if not line.startswith(b"{"):
                continue
            event = json.loads(line)
            now = time.monotonic() - began
            if event["event"] == "rows" and event["result"]["results"]:
                times.setdefault("first row", now)
                times["last row"] = now
                algorithms = len(event["result"]["results"])
            if event["event"] in ("done", "error", "cancelled"):
                times["end"] = now
    writer.close()
    return {
        "kind": "rows",
        "topology": spec,
        "ranks": opened["ranks"],
        "algorithms": algorithms,
        "first_row_s": times["first row"],
        "last_row_s": times["last row"],
        "end_s": times["end"],
    }


async def _with_studio(work: Callable[[Client], Awaitable[Any]]) -> Any:
    words = [sys.executable, "-m", "weft", "studio", SPEC, "--no-browser"]
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(ANSWER_S):
            line = (await process.stdout.readline()).decode()
        found = _ADDRESS.search(line)
        assert found is not None, line
        client = Client(int(found[1]), found[2])
        # The workers import what they need; a first comparison waits for that.
        opened = await client.ask_json("POST", "/api/sessions", {"topology": "ring:4"})
        path = f"/api/sessions/{opened['session']}"
        await client.ask("POST", f"{path}/comparisons", json.dumps(COMPARISON).encode())
        await client.ask("DELETE", path)
        return await work(client)
    finally:
        process.terminate()
        async with asyncio.timeout(ANSWER_S):
            await process.wait()


async def _main(loads: Sequence[Load]) -> list[dict[str, Any]]:
    results = []
    for one in loads:

        async def load(client: Client, one: Load = one) -> dict[str, Any]:
            before = await client.ask_json("GET", "/api/counts")
            found = await _run_load(client, one)
            found["comparisons"] = {
                name: value - (0 if name in ("running", "waiting", "sessions") else before[name])
                for name, value in found["comparisons"].items()
            }
            check(found, one)
            return {"kind": "load", **asdict(one), "topology": one.cluster, **found}

        results.append(await _with_studio(load))

    async def rows(client: Client) -> list[dict[str, Any]]:
        return [await _measure_first_rows(client, spec) for spec in FIRST_ROWS]

    return [*results, *await _with_studio(rows)]


def load_table(path: Path = OUTPUT) -> str:
    """The loads, for docs/studio.md."""
    lines = [
        (
            "| requests a second | cluster | sessions | next edit | sent | lost | comparisons finished "
            "| cancelled | failed | 429 |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result_files.read(path)["results"]:
        if row["kind"] == "load":
            counts, sent = row["comparisons"], row["requests"]
            # Not the queue alone refuses: so does the guard, if too many requests are there at once.
            refused = sum(count for status, count in sent["by_status"].items() if status.endswith(" 429"))
            ends = (counts["finished"], counts["cancelled"], counts["failed"], refused)
            rate = f"{row['rate_per_s']} for {row['seconds']} s"
            edit = f"after {edit_after_s(row):.2g} s"
            cells = (
                rate,
                f"`{row.get('topology', SPEC)}`",
                row["sessions"],
                edit,
                sent["sent"],
                sent["lost"],
                *ends,
            )
            lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def edit_after_s(row: dict[str, Any]) -> float:
    """Seconds between a comparison and the next edit of its session, which cancels it."""
    requests = 1 if row.get("closely") else 2 * row["sessions"] - 1
    return float(requests / row["rate_per_s"])


def row_table(path: Path = OUTPUT) -> str:
    """When rows come, for docs/studio.md."""
    lines = ["| cluster of 64 ranks | algorithms | first row | last row |", "|---|---|---|---|"]
    for row in result_files.read(path)["results"]:
        if row["kind"] == "rows":
            times = f"{row['first_row_s']:.2f} s | {row['last_row_s']:.1f} s"
            lines.append(f"| `{row['topology']}` | {row['algorithms']} | {times} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, check and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--note", help="How the machine was, which the file then says.")
    options = parser.parse_args()
    started = result_files.start()
    results = asyncio.run(_main(LOADS))
    versions = {name: importlib.metadata.version(name) for name in ("starlette", "uvicorn")}
    parameters = {
        "topology": SPEC,
        **COMPARISON,
        "loads": [{**asdict(one), "topology": one.cluster, "comparison": one.comparison} for one in LOADS],
    }
    written = result_files.write(
        options.output, started, parameters=parameters, results=results, versions=versions, note=options.note
    )
    print(f"wrote {written}")
    print(load_table(written) + row_table(written))


if __name__ == "__main__":
    main()
