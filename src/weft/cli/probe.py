"""``weft probe``: measure the cluster that a job runs on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli import options
from weft.cli.inputs import obtain_topology
from weft.cli.output import check_outputs, print_json, progress, write_output, write_page
from weft.errors import InputError

if TYPE_CHECKING:
    from weft.probing.inferred_topology import ProbeFinding
    from weft.probing.session import ProbeEffort
    from weft.probing.speed_check import SpeedVerdict
    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.topology import Topology

_JOIN_S = 60.0
_LONGEST_S = 3600.0


@click.command(
    "probe",
    epilog=options.examples(
        "weft probe -o cluster.toml                     # on every rank of a job",
        "weft run -n 4 -- weft probe -o machine.toml",
        "torchrun --nproc-per-node 1 --nnodes 8 ... --no-python weft probe -o cluster.toml",
        "mpirun -n 8 weft probe --verify cluster.toml",
    ),
)
@click.option("-o", "--output", metavar="FILE", help="Write the topology here; by default it is printed.")
@click.option(
    "--seconds",
    type=options.number("SECONDS", lambda seconds: 1 <= seconds <= _LONGEST_S, "give 1 to 3600 seconds"),
    default="60",
    help="How long to measure at most.",
)
@click.option(
    "--max-bytes", type=options.SIZE, default="1GiB", help="How much one flow may send in one round."
)
@click.option(
    "--verify",
    "claim",
    metavar="TOPOLOGY",
    help="Name the links that are slower than this file or spec says; exit code 1 if there are any.",
)
@click.option(
    "--tolerance",
    type=options.number("SHARE", lambda share: 0 <= share < 1, "give a share from 0 to below 1"),
    default="0.15",
    help="How much slower than claimed is still right, with --verify.",
)
@options.report
@options.as_json
def command(
    output: str | None,
    seconds: float,
    max_bytes: int,
    claim: str | None,
    tolerance: float,
    page: str | None,
    as_json: bool,
) -> None:
    """Measure the cluster that a job runs on.

    Every rank of the job runs this command; rank 0 writes a topology file, which everything that takes a
    topology can read.
    """
    from weft.probing.session import ProbeEffort
    from weft.runtime import find_place, join

    if claim is None:
        options.refuse_unused("tolerance", reason="there is nothing to compare with; add --verify TOPOLOGY")
    with join(find_place(), timeout=_JOIN_S) as control_plane:
        claimed = _prepare(control_plane, (output, page), claim, as_json=as_json)
        finding = _measure(control_plane, ProbeEffort(seconds, max_bytes), _name(output))
    if control_plane.rank != 0:
        return
    verdict = None
    if claimed is not None:
        from weft.probing.speed_check import compare_with_claim

        verdict = compare_with_claim(finding.measurements, claimed, tolerance)
    _print(finding, verdict, output, as_json=as_json)
    write_page(page, finding.topology, _document(finding, verdict), as_json=as_json or output in (None, "-"))
    if verdict is not None and verdict.slow:
        raise click.exceptions.Exit(1)


def _prepare(
    control_plane: ControlPlane, outputs: tuple[str | None, ...], claim: str | None, *, as_json: bool
) -> Topology | None:
    """Read what is claimed, on rank 0; if something is wrong there, all ranks end, and rank 0 says why."""
    claimed, problem = None, None
    if control_plane.rank == 0:
        try:
            check_outputs(*outputs, as_json=as_json)
            claimed = None if claim is None else _read_claim(claim, control_plane.size)
        except InputError as error:
            problem = error
    told = control_plane.exchange(b"" if problem is None else b"wrong", _JOIN_S)
    if problem is not None:
        raise problem
    if told[0]:
        raise click.exceptions.Exit(InputError.exit_code)
    return claimed


def _read_claim(claim: str, ranks: int) -> Topology:
    claimed = obtain_topology(claim)
    if claimed.ranks != ranks:
        raise InputError(f"{claim} has {claimed.ranks} ranks, this job {ranks}; start as many as it has")
    return claimed


def _name(output: str | None) -> str:
    return "probed" if output in (None, "-") else Path(str(output)).stem or "probed"


def _measure(control_plane: ControlPlane, effort: ProbeEffort, name: str) -> ProbeFinding:
    from weft.probing.inferred_topology import infer
    from weft.probing.session import probe

    if control_plane.rank != 0:
        return infer(probe(control_plane, effort), name)
    with progress("probing") as report:
        return infer(probe(control_plane, effort, report), name)


def _document(finding: ProbeFinding, verdict: SpeedVerdict | None) -> dict[str, Any]:
    return finding.to_dict() | ({} if verdict is None else verdict.to_dict())


def _print(finding: ProbeFinding, verdict: SpeedVerdict | None, output: str | None, *, as_json: bool) -> None:
    from weft.probing.inferred_topology import format_finding

    text = format_finding(finding)
    if output is not None:
        write_output(output, text.encode())
    if as_json:
        print_json(_document(finding, verdict))
        return
    if output is None and verdict is None:
        click.echo(text, nl=False)
    elif output not in (None, "-"):
        click.echo(f"wrote {output}, {finding.topology.ranks} ranks, {finding.topology.links} links")
    if verdict is not None:
        _print_verdict(verdict)
        for note in finding.topology.notes:
            click.echo(f"note: {note}")


def _print_verdict(verdict: SpeedVerdict) -> None:
    from weft.probing.inferred_topology import readable
    from weft.units import human_bandwidth

    for one in verdict.slow:
        claimed, carried = human_bandwidth(one.claimed), human_bandwidth(readable(one.carried))
        click.echo(f"{one.link}: {carried}, claimed {claimed}, {one.missing:.0%} slower")
    click.echo(f"{len(verdict.slow)} of {verdict.judged} links are slower than claimed", nl=False)
    left = verdict.links - verdict.judged
    click.echo(f"; {left} could not be judged" if left else "")
