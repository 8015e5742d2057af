"""One word for one thing: no two modules of Weft share a stem, and no two public classes a name."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import weft

TREE = Path(__file__).parents[2]
ROOT = TREE / "src" / "weft"
GLOSSARY = TREE / "docs" / "glossary.md"
MAPS = [
    TREE / "ARCHITECTURE.md",
    TREE / "CONTRIBUTING.md",
    *sorted((TREE / "docs" / "internals").glob("*.md")),
]

SHARED_STEMS = {
    "dear": "a paper, its policy in the model of training, and its optimizer for PyTorch",
    "flexreduce": "a paper and its algorithm",
    "multitree": "a paper and its algorithm",
}

SHARED_CLASSES = {
    "Effort": "each reproduction of a paper has one, with what can be made smaller in that paper",
}


def find_shared(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return every name that is used in more than one place, with the places."""
    places = defaultdict(list)
    for name, place in names:
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def stems() -> Iterable[tuple[str, str]]:
    """Yield stem and path of every module and package, but for those that are named after something else."""
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        stem = path.parent.name if path.stem == "__init__" else path.stem
        is_command = place.parts[0] == "cli" and "\ndef command(" in path.read_text("utf-8")
        is_part_of_paper = place.parts[0] == "papers" and len(place.parts) == 3 and path.stem != "__init__"
        if not (is_command or is_part_of_paper or stem.startswith("__")):
            yield stem, str(place)


def classes() -> Iterable[tuple[str, str]]:
    """Yield name and module of every public class."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, str(path.relative_to(ROOT))


def test_a_stem_is_used_once() -> None:
    shared = find_shared(stems())
    assert {stem: places for stem, places in shared.items() if stem not in SHARED_STEMS} == {}
    assert set(SHARED_STEMS) <= set(shared), "a stem on the list is no longer shared"


def test_a_public_class_name_is_used_once() -> None:
    shared = find_shared(classes())
    assert {name: places for name, places in shared.items() if name not in SHARED_CLASSES} == {}
    assert set(SHARED_CLASSES) <= set(shared), "a class on the list is no longer shared"


def test_the_check_finds_what_is_shared() -> None:
    assert find_shared([("a", "x"), ("b", "y"), ("a", "z")]) == {"a": ["x", "z"]}


def test_every_name_of_the_glossary_exists() -> None:
    names = re.findall(r"`(weft(?:\.\w+)+)` \|$", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    assert len(names) > 40
    missing = [name for name in names if not exists(name)]
    assert missing == []


def exists(name: str) -> bool:
    """Whether a dotted name leads somewhere."""
    found: object = weft
    for part in name.split(".")[1:]:
        try:
            found = getattr(found, part)
        except AttributeError:
            if not isinstance(found, ModuleType):
                return False
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except ModuleNotFoundError:
                return False
    return True


def test_every_file_that_the_map_names_exists() -> None:
    places = [path for path in TREE.iterdir() if not path.name.startswith((".", "build"))]
    files = [f"/{path.name}" for path in places]
    files += [f"/{path.relative_to(TREE)}" for folder in places for path in folder.rglob("*")]
    for page in MAPS:
        named = re.findall(r"[\w-][\w/-]*\.(?:py|cpp|hpp|md|toml|txt)\b", page.read_text("utf-8"))
        missing = {name for name in named if not any(file.endswith(f"/{name}") for file in files)}
        assert missing == set(), page.name


def test_every_folder_and_name_in_code_that_the_map_mentions_exists() -> None:
    sources = [*ROOT.rglob("*.py"), *(TREE / "cpp").rglob("*.[ch]pp"), *(TREE / "tests").rglob("*.py")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text("utf-8") for path in sources)))
    words |= {path.stem for path in sources}
    others = r"\.(?:py|pyi|cpp|hpp|md|toml|txt|yaml)$"  # files, which the test above looks for
    for page in MAPS:
        spans = re.findall(r"`([^`\n]+)`", page.read_text("utf-8"))
        folders = {span for span in spans if re.fullmatch(r"[\w/]+/", span)}
        roots = (TREE, ROOT, ROOT / "runtime", ROOT / "torch", ROOT / "algorithms")
        assert {name for name in folders if not any((root / name).is_dir() for root in roots)} == set()
        names = {span for span in spans if re.fullmatch(r"\w+(?:(?:\.|::)\w+)*(?:\(.*\))?", span)}
        names = {name for name in names if not re.search(others, name)}
        parts = {part for name in names for part in re.findall(r"\w+", name.partition("(")[0])}
        assert parts - words == set(), page.name


def test_the_two_halves_of_a_thing_name_each_other_by_paths_that_exist() -> None:
    named = re.compile(r"\b(?:src/weft|cpp)/[\w/]+\.(?:py|cpp|hpp)\b")
    sources = [*ROOT.rglob("*.py"), *(TREE / "cpp").rglob("*.[ch]pp")]
    stale = {
        f"{path.relative_to(TREE)} names {place}"
        for path in sources
        for place in named.findall(path.read_text("utf-8"))
        if not (TREE / place).is_file()
    }
    assert stale == set()
