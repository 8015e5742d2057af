"""Every JSON document that a command prints has a version, and is as its schema in docs/schemas says."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli.running import Run
from support.jobs import WEFT

from weft.cli import VERBS
from weft.cli.output import DOCUMENT_VERSION
from weft.papers import find_paper, reproduce
from weft.training.policies import POLICIES

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
PAGE = ROOT / "docs" / "json.md"
WITHOUT_DOCUMENT = {"lab", "report", "studio"}
"""A group of commands, which have schemas of their own, and commands that make pages."""

SCRIPT = """
import weft

def wrong(topology):
    builder = weft.ScheduleBuilder(topology, "all_reduce", "wrong", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=1, op="reduce")
    return builder.build()
"""

ON_RING = ("ring:4", "--size", "1MiB")
COMMANDS: list[tuple[str, tuple[str, ...], int]] = [
    ("compare", ("compare", *ON_RING), 0),
    ("compare", ("compare", *ON_RING, "--algorithm", "mine.py:wrong"), 1),
    ("compare", ("compare", "dgx-h100:2", "--size", "1MiB", "--algorithm", "nccl_tree"), 0),
    ("compare", ("compare", "ring:4", "--algorithm", "ring"), 0),
    ("plan", ("plan", "ring:4", "--algorithm", "ring", "--algorithm", "swing"), 0),
    ("plan", ("plan", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--algorithm", "hdrm"), 0),
    ("simulate", ("simulate", *ON_RING, "--algorithm", "ring"), 0),
    ("simulate", ("simulate", *ON_RING, "--algorithm", "mine.py:wrong", "--segment", "none"), 0),
    ("verify", ("verify", "switch:4", "--algorithm", "direct", "--contention"), 0),
    ("verify", ("verify", "fattree:2,2,2", "--algorithm", "direct", "--contention"), 0),
    ("verify", ("verify", "ring:4", "--algorithm", "mine.py:wrong"), 1),
    ("verify", ("verify", "plan.weft"), 0),
    ("train", ("train", "ring:4", "--model", "resnet50", "--straggler", "1=2"), 0),
    ("train", ("train", "plan.weft", "--model", "resnet50", "--policy", "ddp"), 0),
    ("topology", ("topology", "torus:4x4", "--routes", "0", "5"), 0),
    ("topology", ("topology", "dgx-h100:2+fail=host0.nic1"), 0),
    ("import", ("import", str(ROOT / "tests" / "data" / "topology" / "tree.slurm.conf")), 0),
    ("packets", ("packets", "ring:4", "--size", "64KiB", "--algorithm", "ring"), 0),
    ("export", ("export", "ring:4", "--algorithm", "ring", "-o", "ring.weft"), 0),
    ("export", ("export", "ring:4", "--algorithm", "ring", "--size", "64KiB", "-o", "ring.ni.json"), 0),
    ("doctor", ("doctor",), 0),
    ("explain", ("explain", str(Path(__file__).with_name("flights"))), 0),
    ("reproduce", ("reproduce",), 0),
]


def schema_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    return found


def check(name: str, document: dict[str, Any]) -> None:
    assert document["version"] == DOCUMENT_VERSION
    assert next(iter(document)) == "version"
    errors = jsonschema.Draft202012Validator(schema_of(name)).iter_errors(document)
    first = jsonschema.exceptions.best_match(errors)
    assert first is None, f"docs/schemas/{name}.json: {first.json_path}: {first.message[:200]}"


@pytest.mark.parametrize(
    ("name", "words", "code"), COMMANDS, ids=[" ".join(words)[:50] for _, words, _ in COMMANDS]
)
def test_a_document_is_as_its_schema_says(name: str, words: tuple[str, ...], code: int, weft: Run) -> None:
    Path("mine.py").write_text(SCRIPT, "utf-8")
    if "plan.weft" in words:
        weft("plan", "ring:4", "--size", "1MiB", "--algorithm", "ring", "-o", "plan.weft")
    outcome = weft(*words, "--json")
    assert outcome.code == code, outcome.err
    check(name, outcome.document)


def test_a_sweep_is_as_its_schema_says(weft: Run) -> None:
    policies = f"{next(iter(POLICIES))},nonsense"
    words = ("train", "ring:4", "--model", "resnet50", "--sweep", f"policy={policies}", "--jobs", "1")
    check("train", weft(*words, "--json").document)


def test_the_documents_of_real_processes_are_as_their_schemas_say(weft: Run) -> None:
    check("run", weft("run", "--json", "-n", "2", "--", sys.executable, "-c", "pass").document)
    failing = weft("run", "--json", "-n", "2", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert failing.code == 3
    check("run", failing.document)
    check("bench", weft("bench", "--json", "-R", "2", "-b", "4K", "-e", "4K", "-n", "1", "-w", "0").document)
    check("soak", weft("soak", "--json", "--seconds", "1", "--episodes", "1", "--seed", "7").document)
    outcome = weft(
        "run", "--plain", "-n", "2", "--", sys.executable, "-m", "weft", "probe", "--seconds", "1", "--json"
    )
    check("probe", outcome.document)


def test_whether_clusters_can_be_emulated_is_told_as_its_schema_says(weft: Run) -> None:
    check("lab-check", weft("lab", "check", "--json").document)


@pytest.mark.namespaces
def test_a_measurement_on_an_emulated_cluster_is_as_its_schema_says() -> None:
    words = ("lab", "bench", "switch:2@bw=40Mbit/s", "--size", "40kB", "-r", "1", "--json")
    done = subprocess.run([WEFT, *words], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    check("lab-bench", json.loads(done.stdout))


def test_a_claim_that_is_run_is_as_its_schema_says(weft: Run) -> None:
    check("reproduce", weft("reproduce", "--claim", "ace-memory", "--json").document)


@pytest.mark.parametrize("claim", ["ace-memory", "multitree-ring-links"])
def test_a_paper_of_which_little_is_run_is_as_its_schema_says(claim: str) -> None:
    paper = claim.partition("-")[0]
    found = reproduce(paper, effort=find_paper(paper).NEEDED[claim], charts=False)
    assert len(found.rows) > 1
    check("reproduce", {"version": DOCUMENT_VERSION, **found.to_dict()})


@pytest.mark.slow
def test_a_paper_of_which_everything_is_run_is_as_its_schema_says(weft: Run) -> None:
    document = weft("reproduce", "dear", "--json").document
    assert document["paper"] == "dear"
    check("reproduce", document)


def test_every_schema_is_held_against_a_document() -> None:
    checked = set(re.findall(r'check\("([\w-]+)"', Path(__file__).read_text("utf-8")))
    commands = {name for name, _, _ in COMMANDS}
    assert checked | commands == {path.stem for path in SCHEMAS.glob("*.json")}


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every part of a schema that describes an object with named fields."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_a_schema_is_one_and_catches_fields_that_are_renamed_or_missing(path: Path) -> None:
    schema = schema_of(path.stem)
    jsonschema.Draft202012Validator.check_schema(schema)
    for form in schema.get("oneOf", [schema]):
        assert form["properties"]["version"] == {"const": DOCUMENT_VERSION}
        assert form["required"][0] == "version"
    for part in objects(schema):
        # What can have further fields has names that come from data, all of one type.
        assert part["additionalProperties"] is False or part["additionalProperties"]["type"]


def test_the_check_notices_a_field_that_was_renamed(weft: Run) -> None:
    document = weft("compare", *ON_RING, "--algorithm", "ring", "--json").document
    renamed = copy.deepcopy(document)
    renamed["results"][0]["time"] = renamed["results"][0].pop("seconds")
    dropped = {name: value for name, value in document.items() if name != "sharing"}
    for wrong in (renamed, dropped, document | {"more": 1}, document | {"version": 99}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(schema_of("compare")).validate(wrong)


def test_every_command_has_a_schema_and_the_page_lists_them_all() -> None:
    known = {path.stem for path in SCHEMAS.glob("*.json")}
    assert set(VERBS) - WITHOUT_DOCUMENT <= known
    assert set(re.findall(r"\(schemas/([\w-]+)\.json\)", PAGE.read_text("utf-8"))) == known
