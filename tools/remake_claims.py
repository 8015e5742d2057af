"""Make the outcomes of all claims of the papers anew, store them, and write them to docs/papers/index.md.

``make claims`` runs this, or ``make claims PAPERS="ace dear"`` for some of the papers. With ``--claim`` only
the study that a claim needs is run; with ``--page`` none, and the page is written from what is stored.
"""

from __future__ import annotations

import argparse
import subprocess
import textwrap
from collections.abc import Set as AbstractSet
from pathlib import Path

from weft.papers import PAPERS
from weft.papers.claims import VERDICTS, describe
from weft.papers.outcome_texts import VERDICT_TEXTS, deviation_text, number_text
from weft.papers.outcomes import ClaimOutcome, StoredPaper, find_claims, store, stored, studies_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "papers" / "index.md"
COMMAND = "make claims"
SOURCES = ("src/**.py", "src/**.toml", "src/**.csv", "cpp")
WIDTH = 120
BEGIN = "<!-- tools/remake_claims.py: tables -->\n"
END = "<!-- end of tools/remake_claims.py: tables -->\n"


def page(text: str) -> str:
    """Replace the tables of docs/papers/index.md by those of what is stored."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{tables()}{END}{after}"


def tables() -> str:
    """Write how many claims came out how, and a table for each paper."""
    found = stored()
    outcomes = [one for entry in found.values() for one in entry.outcomes.values()]
    counts = {name: sum(one.verdict == name for one in outcomes) for name in VERDICTS}
    summary = ", ".join(f"{counts[name]} {VERDICT_TEXTS[name]}" for name in VERDICTS)
    sections = (_section(paper, entry) for paper, entry in found.items())
    return f"\nOf {len(outcomes)} claims: {summary}.\n{''.join(sections)}\n"


def _section(paper: str, entry: StoredPaper) -> str:
    rows = "".join(_row(one) for one in entry.outcomes.values())
    head = "| claim | paper | here | deviation | verdict | why |\n|---|---|---|---|---|---|\n"
    cost = sum(entry.cpu_seconds.get(study.claim_ids[0], 0.0) for study in studies_of(paper))
    commits = ", ".join(dict.fromkeys(f"`{one[:12]}`" for one in entry.commits.values()))
    made = f"Made by `{COMMAND}` of commit {commits} in {cost:.0f} CPU seconds."
    about = textwrap.fill(f"[The page]({paper}.md) of {PAPERS[paper]} {made}", WIDTH)
    return f"\n## {describe(paper)['title']}\n\n{about}\n\n{head}{rows}"


def _row(one: ClaimOutcome) -> str:
    cells = (
        f"`{one.claim_id}`: {one.claim}",
        number_text(one.paper_value, one.unit, at_most=one.at_most),
        f"**{number_text(one.ours, one.unit)}**",
        deviation_text(one.deviation),
        VERDICT_TEXTS[one.verdict],
        one.why,
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"


def remake(paper: str, wanted: AbstractSet[str], made_by: str) -> None:
    """Run every study of a paper that a wanted claim needs, store it, and print what it costs."""
    total = 0.0
    for study in studies_of(paper):
        if wanted and not wanted & set(study.claim_ids):
            continue
        outcomes, cpu_seconds = study.remake()
        store(outcomes, cpu_seconds, made_by, COMMAND)
        total += cpu_seconds
        print(f"claims: {', '.join(study.claim_ids)}: {cpu_seconds:.1f} CPU seconds", flush=True)
    print(f"claims: {paper}: {total:.1f} CPU seconds in all", flush=True)


def commit() -> str:
    """Which commit the sources are of."""

    def git(*words: str) -> str:
        asked = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
        return asked.stdout.strip()

    changed = " with uncommitted changes" if git("status", "--porcelain", "--", *SOURCES) else ""
    return git("rev-parse", "HEAD") + changed


def main() -> None:
    """Remake, store and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(PAPERS)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"some of {names}; all if none is given")
    parser.add_argument("--claim", action="append", default=[], help="only the study of this claim")
    parser.add_argument("--page", action="store_true", help="only write the tables of the page")
    asked = parser.parse_args()
    made_by = commit()
    wanted = set(asked.claim)
    for paper in () if asked.page else asked.papers or PAPERS:
        if not wanted or wanted & set(find_claims(paper)):
            remake(paper, wanted, made_by)
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"claims: wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
