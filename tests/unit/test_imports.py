"""Packages import only what lies below them, and importing Weft is cheap.

The order is the architecture: what makes schedules and what consumes them do not know each other.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "weft"

# Lowest first. Members of one level do not import one another, except along a chain, which is a tuple.
LEVELS: tuple[tuple[str | tuple[str, ...], ...], ...] = (
    (
        (
            *("errors", "limits", "units", "files", "columns", "collective_names", "user_script"),
            *("svg", "notebook_display"),
        ),
    ),
    ("topology",),
    ("schedule",),
    (("bounds", "algorithms"), "verification", ("simulation", "export"), "packets", "sweeps"),
    ("planning", "checked_simulation"),
    ("training", ("_runtime", "runtime", "bench", "lab")),  # the first is the extension that is for Linux
    ("torch", "papers", ("reporting", "studio"), "probing", "soak"),
    (("cli", "__main__"),),
)
EVERYWHERE = {"_core"}  # the portable extension: no Python in it that could import anything
TORCH_PACKAGE = "weft.torch"
LAZY_TORCH_PACKAGES = ("weft.runtime.", "weft.bench.")  # its engine, and a peer; inside functions only


def importable() -> dict[str, set[str]]:
    """Return, for each package, the packages it may import."""
    allowed: dict[str, set[str]] = {}
    for level in LEVELS:
        below = set(allowed) | EVERYWHERE
        for member in level:
            chain = (member,) if isinstance(member, str) else member
            for index, name in enumerate(chain):
                allowed[name] = below | set(chain[:index]) | {name}
    return allowed


ALLOWED = importable()


def imported_modules(node: ast.AST, package: str) -> list[str]:
    """Return the absolute names one statement imports; `from weft import units` imports weft.units."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parents = package.split(".")
        base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
    return [f"weft.{alias.name}" for alias in node.names] if base == "weft" else [base]


def violations(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Yield every import of one module that the order forbids."""
    package = module if is_package else module.rpartition(".")[0]
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lazy = {id(inner) for function in functions for inner in ast.walk(function)}
    may_import = ALLOWED[module.split(".")[1]]
    for node in ast.walk(tree):
        for name in imported_modules(node, package):
            parts = name.split(".")
            where = f"{module}:{getattr(node, 'lineno', 0)} imports {name}"
            if parts[0] == "torch":
                inside = f"{module}.".startswith(f"{TORCH_PACKAGE}.")
                lazily = module.startswith(LAZY_TORCH_PACKAGES) and id(node) in lazy
                if not inside and not lazily:
                    yield f"{where}: only {TORCH_PACKAGE} may"
            elif parts[0] == "weft":
                if len(parts) == 1 or (parts[1] not in ALLOWED and parts[1] not in EVERYWHERE):
                    yield f"{where}: from the root of weft, import what defines it instead"
                elif parts[1] not in may_import:
                    yield f"{where}, which does not lie below it"


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(("weft", *(parts[:-1] if parts[-1] == "__init__" else parts)))
        if name != "weft":  # the root offers everything, lazily: see the tests of what it loads
            yield name, path


def test_every_package_has_a_place_in_the_order() -> None:
    assert {name.split(".")[1] for name, _ in modules()} <= set(ALLOWED)


def test_packages_import_only_what_lies_below_them() -> None:
    found = [
        violation
        for name, path in modules()
        if name.split(".")[1] in ALLOWED
        for violation in violations(path.read_text("utf-8"), name, is_package=path.stem == "__init__")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("weft.topology.graph", "from weft.schedule import ir"),
        ("weft.topology.graph", "from ..schedule import ir"),
        ("weft.topology.graph", "from .. import schedule"),
        ("weft.topology.graph", "def later():\n    import weft.schedule.ir"),
        ("weft.verification.semantics", "import weft.algorithms.ring"),
        ("weft.planning.chooser", "import weft.training.policies"),
        ("weft.planning.chooser", "import weft.runtime.executor"),
        ("weft.training.job", "from weft import _runtime"),
        ("weft.units", "import weft"),
        ("weft.schedule.ir", "from weft import load_topology"),
        ("weft.runtime.engines", "import torch"),
        ("weft.simulation.simulator", "def later():\n    from torch import nn"),
    ],
)
def test_the_check_finds_a_forbidden_import(module: str, source: str) -> None:
    assert len(list(violations(source, module))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("weft.units", "from weft import _core, limits"),
        ("weft.topology.graph", "from . import routing"),
        ("weft.topology.graph", "from ..errors import TopologyError"),
        ("weft.lab.cluster", "import weft.planning.chooser, weft.runtime.executor"),
        ("weft.torch.dear", "import torch.distributed"),
        ("weft.runtime.engines", "def later():\n    import torch"),
        ("weft.bench.peers.gloo", "def later():\n    from torch import distributed"),
        ("weft.cli.compare", "from weft.reporting import report"),
    ],
)
def test_the_check_lets_a_permitted_import_pass(module: str, source: str) -> None:
    assert list(violations(source, module)) == []


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules a fresh interpreter holds after running code."""
    code += "\nimport sys\nprint()\nprint(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_importing_weft_loads_nothing_heavy() -> None:
    assert not loaded_by("import weft") & {"torch", "scipy", "networkx", "click", "rich"}


def test_joining_a_job_loads_no_reader_of_topologies_and_no_planner() -> None:
    code = "import weft, sys; weft.init\n"
    code += "print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split())
    assert "weft.topology.graph" in loaded
    unneeded = {"weft.topology.load", "weft.topology.toml_file", "weft.topology.gpu_boxes", "html.entities"}
    assert not loaded & {*unneeded, "weft.planning", "weft.simulation", "weft.verification"}


def test_an_algorithm_that_balances_loads_no_solver_where_ranks_are_alike() -> None:
    code = "import weft\nfrom weft.algorithms import registry\n"
    code += "registry.find('flexreduce').build(weft.load_topology('torus:4x4'), 'all_reduce')"
    assert not loaded_by(code) & {"scipy"}


def test_asking_for_help_loads_nothing_heavy() -> None:
    ask = "import sys\nfrom weft.cli import main\nsys.argv = ['weft', '--help']\n"
    ask += "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code, done.code\n"
    assert not loaded_by(ask) & {"torch", "scipy", "networkx"}
