"""Bad use and bad input: one clear line with the place, exit code 2, no traceback, no standard output."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.running import Outcome, Run

WEFT = Path(sys.executable).with_name("weft")

PAIR = """
name = "pair"
ranks = {ranks}
[[links]]
src = 0
dst = {dst}
bandwidth = "{bandwidth}"
latency = "{latency}"
duplex = true
"""


SOUND = {"ranks": 2, "dst": "1", "bandwidth": "10GB/s", "latency": "1us"}


def pair(ranks: int = 2, dst: str = "1", bandwidth: str = "10GB/s", latency: str = "1us") -> bytes:
    return PAIR.format(ranks=ranks, dst=dst, bandwidth=bandwidth, latency=latency).encode()


def assert_refused(outcome: Outcome, *fragments: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("weft: error: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.endswith("\n")
    assert outcome.err.isascii() or "\\" not in outcome.err
    assert len(outcome.err) < 700
    assert "Traceback" not in outcome.err
    for fragment in fragments:
        assert fragment in outcome.err


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        ([], ["Missing argument"]),
        (["ring:8", "--size"], ["--size"]),
        (["ring:8", "--size", "1MiB", "--nope"], ["--nope"]),
        (["ring:8", "extra", "--size", "1MiB"], ["extra"]),
        (["ring:8", "--size", "1MiB", "--sharing", "fair"], ["fair", "queue", "fluid"]),
        (["ring:8", "--size", "1MiB", "--time-limit", "soon"], ["--time-limit", "soon", "none"]),
        (["ring:8", "--size", "1MiB", "--time-limit", "0"], ["--time-limit"]),
        (["ring:8", "--size", "1MiB", "--time-limit", "nan"], ["--time-limit"]),
        (["ring:8", "--size", "1MiB", "--root", "x"], ["--root", "x"]),
        (["ring:8", "--size", "1MiB", "--root", "-1"], ["--root"]),
        (["ring:8", "--size", "1MiB", "--root", "8", "--collective", "broadcast"], ["root 8", "0..7"]),
        (
            ["ring:8", "--size", "1MiB", "--collective", "all-redcue"],
            ["did you mean all_reduce"],
        ),
        (["ring:8", "--size", "1MiB", "--collective", "zzz"], ["zzz", "reduce_scatter"]),
        (["ring:8", "--size", "1MiB", "--algorithm", "rign"], ["rign", "ring"]),
        (["ring:8", "--size", "1MiB", "--segment", "0"], ["--segment 0"]),
        (["ring:8", "--size", "1MiB", "--segment", "big"], ["big"]),
        (["ring:8", "--size", "1GiB", "--segment", "1"], ["segments of 1B", "more than"]),
        (["ring:6", "--size", "1MiB", "--algorithm", "swing"], ["swing", "6"]),
        (
            ["ring:8", "--size", "1MiB", "--algorithm", "ring", "--collective", "all_to_all"],
            ["ring", "all_to_all"],
        ),
        (["torus:4x4x4", "--size", "1MiB", "--algorithm", "ring2d"], ["ring2d"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_use_of_compare_is_one_line(weft: Run, words: list[str], fragments: list[str]) -> None:
    assert_refused(weft("compare", *words), *fragments)


@pytest.mark.parametrize(
    ("size", "fragments"),
    [
        ("0", ["at least 1 byte"]),
        ("0B", ["at least 1 byte"]),
        ("-1", ["negative"]),
        ("-64MiB", ["negative"]),
        ("64MoB", ["MoB"]),
        ("1.5", ["whole number of bytes"]),
        ("inf", ["inf"]),
        ("nan", ["nan"]),
        ("", ["size"]),
        ("9999PiB", ["more than"]),
        ("1e99", ["more than"]),
        ("9" * 500, ["too long"]),
        ("64Mb", ["bytes"]),
    ],
)
def test_a_size_that_makes_no_sense_is_one_line(weft: Run, size: str, fragments: list[str]) -> None:
    assert_refused(weft("compare", "ring:8", "--size", size), *fragments)


@pytest.mark.parametrize("verb", ["compare", "plan"])
def test_sizes_with_commas_are_told_how_to_be_given(weft: Run, verb: str) -> None:
    outcome = weft(verb, "ring:8", "--size", "64MiB,1MiB")
    assert_refused(outcome, "--size '64MiB,1MiB'", "one size", "--size may be repeated")


def test_of_sizes_with_commas_only_one_is_taken_where_one_has_a_place(weft: Run) -> None:
    outcome = weft("simulate", "ring:8", "--size", "64MiB,1MiB")
    assert_refused(outcome, "give one size")
    assert "repeated" not in outcome.err


@pytest.mark.parametrize(
    ("spec", "fragments"),
    [
        ("torsu:8x8", ["torsu", "did you mean torus"]),
        ("no-such-file.toml", ["no-such-file.toml", "no such file"]),
        ("", ["the topology is empty"]),
        ("torus:", ["shape"]),
        ("torus:8y8", ["8y8"]),
        ("torus:0x8", ["zero"]),
        ("torus:-4x4", ["-4x4"]),
        ("ring:1", ["at least 2"]),
        ("switch:1", ["at least 2"]),
        ("ring:99999999", ["more than"]),
        ("torus:99999x99999", ["more than"]),
        ("fullmesh:60000", ["more than"]),
        ("hypercube:40", ["more than"]),
        ("ring:8@bw=0GB/s", ["at least 1 byte per second"]),
        ("ring:8@bw=-5GB/s", ["negative"]),
        ("ring:8@bw=25GB", ["/s"]),
        ("ring:8@lat=5", ["unit"]),
        ("ring:8@lat=-5us", ["negative"]),
        ("ring:8@speed=1GB/s", ["speed", "bw"]),
        ("ring:8@bw", ["name=value"]),
        ("ring:8@routing=psychic", ["psychic"]),
        ("ring:8+fail=0-4", ["0->4"]),
        ("ring:8+fail=nonsense", ["nonsense"]),
        ("ring:8+broken", ["+fail=A-B"]),
        ("ring:2+fail=rank:1", ["at least 2"]),
        ("ring:8+fail=0-1,4-5", ["cannot reach"]),
        ("switch:4+fail=2>s0", ["cannot reach"]),
        ("fattree:60", ["square"]),
        ("bigraph:4,3", ["even"]),
        ("x:" + "9" * 5000, ["too many"]),
        ("ring:8\x1b[31m", ["\\x1b"]),
        ("ring:8\nring:9", ["shape"]),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_a_spec_that_cannot_be_is_one_line(weft: Run, spec: str, fragments: list[str]) -> None:
    assert_refused(weft("topology", spec), *fragments)


BAD_FILES = {
    "empty": (b"", ["empty"]),
    "not toml": (b"ranks = = 3\n", ["line 1"]),
    "binary": (bytes(range(256)), ["UTF-8", "line 2"]),
    "nul bytes": (b"\0" * 100, ["file"]),
    "no ranks": (b'name = "x"\n', ["ranks"]),
    "one rank": (b'name = "x"\nranks = 1\n', ["2"]),
    "ranks a text": (b'name = "x"\nranks = "two"\n', ["ranks"]),
    "absurd ranks": (b'name = "x"\nranks = 99999999999999999999\n', ["ranks"]),
    "zero speed": (pair(bandwidth="0GB/s"), ["links", "at least 1 byte per second"]),
    "negative speed": (pair(bandwidth="-3GB/s"), ["links", "negative"]),
    "negative latency": (pair(latency="-3us"), ["links", "negative"]),
    "no such node": (pair(dst='"s7"'), ["links", "s7"]),
    "disconnected": (pair(ranks=3), ["cannot reach"]),
    "unknown key": (pair() + b"colour = 3\n", ["colour"]),
    "deep toml": (b"x = " + b"[" * 10_000 + b"]" * 10_000, ["file"]),
    "deep toml tables": (b"a." * 10_000 + b"a = 1\n", ["file"]),
    "malformed xml": (b"<system><cpu></system>", ["line 1"]),
    "deep xml": (b"<system>" + b"<a>" * 10_000 + b"</a>" * 10_000 + b"</system>", ["file"]),
    "xml bomb": (
        b'<!DOCTYPE a [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]><system>&b;</system>',
        ["file"],
    ),
    "xml of another kind": (b"<html><body/></html>", ["html"]),
    "smi without rows": (b"\tGPU0\tGPU1\n", ["file"]),
    "json": (b'{"ranks": 2}', ["line 1"]),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_topology_file_that_cannot_be_read_is_one_line_with_its_place(weft: Run, kind: str) -> None:
    content, fragments = BAD_FILES[kind]
    Path("file").write_bytes(content)
    assert_refused(weft("topology", "file"), "file", *fragments)


@pytest.mark.parametrize("kind", ["not toml", "disconnected", "malformed xml", "deep toml", "binary"])
def test_standard_input_is_refused_in_the_same_way(weft: Run, kind: str) -> None:
    content, _ = BAD_FILES[kind]
    assert_refused(weft("topology", "-", stdin=content))


BAD_SCHEDULES = {
    "empty": (b"", ["file"]),
    "text": (b"hello\n", ["file"]),
    "toml": (pair(), ["file"]),
    "cut short": (b"\x89WEFT\r\n\x1a\1\0\0\0", ["file"]),
    "malformed json": (b'{"collective": ', ["file"]),
    "json of another kind": (b'{"hello": 1}', ["file"]),
    "json array": (b"[1, 2, 3]", ["file"]),
    "deep json": (b"[" * 10_000 + b"]" * 10_000, ["file"]),
    "deep json object": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, ["file"]),
}


@pytest.mark.parametrize("kind", BAD_SCHEDULES)
@pytest.mark.parametrize("verb", ["verify", "simulate", "export"])
def test_a_schedule_file_that_cannot_be_read_is_one_line(weft: Run, kind: str, verb: str) -> None:
    content, fragments = BAD_SCHEDULES[kind]
    Path("file").write_bytes(content)
    options = {"verify": [], "simulate": ["--size", "1MiB"], "export": ["-o", "copy.weft"]}[verb]
    assert_refused(weft(verb, "file", *options), *fragments)
    assert not Path("copy.weft").exists()


@pytest.mark.parametrize(
    "option", [("--root", "99"), ("--root", "0"), ("--collective", "all_reduce")], ids=lambda words: words[0]
)
@pytest.mark.parametrize("verb", ["verify", "simulate", "export"])
def test_options_for_building_are_refused_beside_a_schedule_file(
    weft: Run, verb: str, option: tuple[str, str]
) -> None:
    weft("export", "ring:4", "--algorithm", "ring", "-o", "ring.weft")
    more = {"verify": [], "simulate": ["--size", "1MiB"], "export": ["-o", "copy.weft"]}[verb]
    assert_refused(weft(verb, "ring.weft", *more, *option), option[0], "a schedule file has its own")


@pytest.mark.parametrize("name", ["ring.weft", "ring.json"])
@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "--size", "1MiB", "--algorithm", "ring"],
        ["verify", "--algorithm", "ring"],
        ["topology"],
        ["compare", "--size", "1MiB"],
    ],
    ids=lambda words: words[0],
)
def test_a_schedule_where_a_topology_should_be_is_told(weft: Run, words: list[str], name: str) -> None:
    weft("export", "ring:4", "--algorithm", "ring", "-o", name)
    told = ["a schedule, not a topology", "without --algorithm"]
    assert_refused(weft(*words, name), name, *told)
    assert_refused(weft(*words, "-", stdin=Path(name).read_bytes()), *told)


@pytest.mark.parametrize("at", [9, 12, 16, 20, 40, 200, -1])
def test_a_damaged_schedule_file_is_refused(weft: Run, at: int) -> None:
    assert weft("export", "ring:4", "--algorithm", "ring", "-o", "good.weft").code == 0
    data = bytearray(Path("good.weft").read_bytes())
    data[at] ^= 0x55
    Path("bad.weft").write_bytes(data)
    assert_refused(weft("verify", "bad.weft"), "bad.weft")


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["topology", "huge"], ["huge", "MiB"]),
        (["compare", "huge", "--size", "1MiB"], ["huge", "MiB"]),
        (["verify", "huge"], ["huge", "MiB"]),
        (["simulate", "huge", "--size", "1MiB"], ["huge", "MiB"]),
    ],
)
def test_a_file_of_100_megabytes_is_refused_unread(weft: Run, words: list[str], fragments: list[str]) -> None:
    with Path("huge").open("wb") as stream:
        stream.truncate(100_000_000)
    assert_refused(weft(*words), *fragments)


@pytest.mark.parametrize(
    "words",
    [
        ["topology", "."],
        ["compare", ".", "--size", "1MiB"],
        ["verify", "."],
        ["simulate", ".", "--size", "1MiB"],
        ["export", ".", "-o", "x"],
    ],
    ids=lambda words: words[0],
)
def test_a_directory_is_not_a_file(weft: Run, words: list[str]) -> None:
    assert_refused(weft(*words), "not a regular file")


@pytest.mark.parametrize("path", ["missing/file", ".", "file/", "file/below", "/dev/full", "/proc/weft"])
@pytest.mark.parametrize(
    "words",
    [
        ["topology", "ring:4", "--svg"],
        ["topology", "ring:4", "--toml"],
        ["export", "ring:4", "--algorithm", "ring", "-o"],
        ["simulate", "ring:4", "--algorithm", "ring", "--size", "1MiB", "--trace"],
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_output_that_cannot_be_written_is_one_line(weft: Run, words: list[str], path: str) -> None:
    Path("file").write_bytes(b"kept")
    assert_refused(weft(*words, path), path)
    assert Path("file").read_bytes() == b"kept"


@pytest.mark.parametrize("path", ["x" * 300, "loop/file", "loop"])
@pytest.mark.parametrize("option", ["--svg", "--toml"])
def test_output_to_a_name_that_leads_nowhere_is_one_line(weft: Run, option: str, path: str) -> None:
    Path("loop").symlink_to("loop")
    assert_refused(weft("topology", "ring:4", option, path), path[:200])


@pytest.mark.parametrize("path", ["x" * 300, "loop", "closed/file"])
@pytest.mark.parametrize("verb", ["topology", "verify"])
def test_input_from_a_name_that_leads_nowhere_is_one_line(
    weft: Run, monkeypatch: pytest.MonkeyPatch, verb: str, path: str
) -> None:
    Path("loop").symlink_to("loop")
    honest = os.stat

    def stat(name: Any, *rest: Any, **options: Any) -> os.stat_result:
        if os.fspath(name) == "closed/file":  # a directory that may not be searched, which root does not have
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return honest(name, *rest, **options)

    monkeypatch.setattr(os, "stat", stat)
    assert_refused(weft(verb, path), path[:200])


@pytest.mark.parametrize("second", ["o", "./o", "alias"])
def test_two_outputs_cannot_be_one_file(weft: Run, second: str) -> None:
    Path("alias").symlink_to("o")
    assert_refused(weft("topology", "ring:4", "--svg", "o", "--toml", second), "two outputs")
    assert not Path("o").exists()


@pytest.mark.parametrize("form", ["x.weft", "x.json", "x.txt", "x.dot"])
def test_a_file_name_that_is_not_text_gives_a_topology_a_name_that_is(weft: Run, form: str) -> None:
    odd = Path(os.fsdecode(b"\xff\xfe.toml"))
    odd.write_bytes(PAIR.replace('name = "pair"', "").format(**SOUND).encode())
    outcome = weft("export", odd, "--algorithm", "ring", "-o", form)
    assert (outcome.code, outcome.err) == (0, "")
    assert weft("topology", odd, "--svg", os.fsdecode(b"\xff.svg"), "--toml", "copy.toml").code == 0
    assert weft("topology", "copy.toml", "--json").document["name"] == "??"


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["simulate", "ring:8", "--size", "1MiB"], ["--algorithm"]),
        (["verify", "ring:8"], ["--algorithm"]),
        (["export", "ring:8", "-o", "x"], ["--algorithm"]),
        (["export", "ring:8", "--algorithm", "ring"], ["-o"]),
        (["export", "ring:8", "--algorithm", "ring", "-o", "x", "--format", "pdf"], ["pdf", "dot"]),
        (["export", "ring:8", "--algorithm", "ring", "-o", "-", "--json"], ["standard output"]),
        (["topology", "ring:8", "--toml", ""], ["the name of an output is empty"]),
        (["topology", "ring:8", "--toml", "-", "--json"], ["standard output"]),
        (["topology", "ring:8", "--toml", "-", "--svg", "-"], ["standard output"]),
        (
            ["simulate", "ring:8", "--algorithm", "ring", "--size", "1", "--trace", "-", "--json"],
            ["standard output"],
        ),
        (["verify", "ring:8", "--algorithm", "ring", "--root", "99"], ["--root", "all_reduce has no root"]),
        (["compare", "ring:8", "--size", "1MiB", "--root", "2"], ["--root", "all_reduce has no root"]),
        (["export", "ring:8", "--algorithm", "ring", "-o", "x", "--chunk", "1"], ["--chunk", "--format dot"]),
        (["topology", "ring:8", "--routes", "0", "8"], ["8", "0..7"]),
        (["topology", "ring:8", "--routes", "0", "0"], ["different"]),
        (["topology", "switch:4", "--routes", "0", "s0"], ["s0"]),
        (["verify", "ring:8", "--algorithm", "ring", "--slots", "0"], ["--slots"]),
        (["frobnicate"], ["frobnicate", "compare"]),
        (["comprae"], ["did you mean compare"]),
        (["--nope"], ["--nope"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_use_of_the_other_verbs_is_one_line(weft: Run, words: list[str], fragments: list[str]) -> None:
    assert_refused(weft(*words), *fragments)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["compare", "torsu:8x8", "--size", "64MiB"], b""),
        (["compare", "ring:6", "--size", "64MiB", "--algorithm", "swing"], b""),
        (["topology", "-"], b"<system>" + b"<a>" * 10_000),
        (["verify", "-"], b"[" * 10_000),
        (["nonsense"], b""),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_executable_refuses_in_the_same_way(words: list[str], stdin: bytes, tmp_path: Path) -> None:
    done = subprocess.run(
        [WEFT, *words], input=stdin, capture_output=True, timeout=60, check=False, cwd=tmp_path
    )
    assert_refused(Outcome(done.returncode, done.stdout.decode(), done.stderr.decode()))


def test_an_output_that_would_wait_for_a_reader_is_refused(weft: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    words = ("simulate", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--trace")
    assert_refused(weft(*words, "pipe"), "pipe: is a named pipe")
    assert_refused(weft("topology", "ring:4", "--svg", "pipe"), "pipe: is a named pipe")
    assert weft(*words, "/dev/null").code == 0


def test_a_pipe_that_is_standard_output_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    check = "import sys; from weft.cli.output import check_outputs; check_outputs(sys.argv[1], as_json=False)"
    for name in ("-", "/dev/stdout", "/dev/fd/1", str(tmp_path / "link")):
        subprocess.run([sys.executable, "-c", check, name], stdout=subprocess.PIPE, timeout=60, check=True)


def test_a_drawing_goes_into_a_pipe_by_the_name_of_standard_output(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    for name in ("/dev/stdout", "/dev/fd/1", "link"):
        words = [WEFT, "topology", "ring:4", "--svg", name]
        done = subprocess.run(words, capture_output=True, timeout=60, check=True, cwd=tmp_path)
        assert b"</svg>" in done.stdout
