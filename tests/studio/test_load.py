"""A studio under more requests than it can do: none is lost, and those too many are told so."""

from __future__ import annotations

import sys
from pathlib import Path

from support.studio import Studio, start_studio

from weft import limits

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "studio"))


def test_every_request_under_load_is_answered_and_every_comparison_counted() -> None:
    """A small form of benchmarks/studio/load.py, which says what is counted."""
    import load

    with start_studio("torus:4x4") as studio:
        asked = load.Load(rate_per_s=25, seconds=3, sessions=4)
        found = load.run_load(studio.port, studio.token, asked)
    load.check(found, asked)
    assert found["requests"]["sent"] == 75
    assert found["comparisons"]["finished"] > 0


def test_comparisons_past_the_queue_are_refused_with_429_and_the_others_end(studio: Studio) -> None:
    """Sessions are as many as can be, each with a comparison that takes long: two run, eight wait."""
    paths = [studio.open("torus:16x16") for _ in range(limits.MAX_STUDIO_SESSIONS)]
    body = {"size": "1GiB", "algorithms": ["forest", "direct"], "time_limit": 60}
    connections = [studio.send("POST", f"{path}/comparisons", body) for path in paths]
    streams = [one.getresponse() for one in connections]
    refused = [one for one in streams if one.status == 429]
    assert len(refused) >= len(paths) - limits.MAX_STUDIO_WAITING - 4
    assert all(b'"what_to_do"' in one.read() for one in refused)
    assert all(one.getheader("retry-after") == "1" for one in refused)
    session = studio.ask("POST", "/api/sessions", {})
    assert session.status == 429
    for path in paths:
        assert studio.ask("DELETE", path).status == 204
    found = studio.settle()
    assert found["refused"] == len(refused)
    assert found["accepted"] == found["finished"] + found["cancelled"] + found["failed"]
    assert found["cancelled"] > 0
    for one in connections:
        one.close()
