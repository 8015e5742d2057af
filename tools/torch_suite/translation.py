"""Torch's tests of gloo as tests of another backend: its name is put in the place of gloo's.

The tests ask for the backend's name in many places: in decorators that skip, in bodies that choose a model,
in lists of backends that a profiler knows, in groups that they make beside the default one. A name that only
some of these places know would leave tests out, or would have them run on gloo and pass. So the tests are
translated as they are loaded: ``"gloo"`` becomes ``"weft"``, ``"cpu:gloo"`` becomes ``"cpu:weft"``, and
``Backend.GLOO`` becomes ``Backend.WEFT``. Nothing else of a test changes, and lines keep their numbers. What
the tests say of gloo is then said of Weft, and a group that they make is Weft's; `refuse_gloo` sees to it
that no group of gloo can be made.

Torch itself is not translated: what it refuses to backends of other names, it refuses here too.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

GLOO: Final = "gloo"

TESTS: Final = "torch.testing._internal.distributed.distributed_test"
"""The module of tests that is run."""

TABLES: Final = "torch.testing._internal.common_distributed"
"""The module with the tables that they look backends up in, and with what starts their ranks."""

MODULES: Final = (TABLES, TESTS)

_NAMES: Final = re.compile(r"gloo|gloo:\w*|cpu:gloo(,\w+:\w+)*|\w+:\w+,cpu:gloo")
"""Texts that name the backend, and no other texts that contain the word."""


class Translation(ast.NodeTransformer):
    """Puts a backend's name in the place of gloo's."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self.places = 0

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Translate a text, if it is a name."""
        if isinstance(node.value, str) and _NAMES.fullmatch(node.value):
            self.places += 1
            value = node.value.replace(GLOO, self._backend)
            return ast.copy_location(ast.Constant(value, node.kind), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Translate ``Backend.GLOO`` and ``dist.Backend.GLOO``."""
        self.generic_visit(node)
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", None)
        if node.attr == GLOO.upper() and owner == "Backend":
            self.places += 1
            return ast.copy_location(ast.Attribute(node.value, self._backend.upper(), node.ctx), node)
        return node


def translated(source: str | bytes, backend: str) -> ast.Module:
    """A module's tree with a backend's name in the place of gloo's.

    Examples
    --------
    >>> ast.unparse(translated('skip_if(BACKEND != "gloo", "Only gloo supports timeouts")', "weft"))
    "skip_if(BACKEND != 'weft', 'Only gloo supports timeouts')"
    """
    tree: ast.Module = Translation(backend).visit(ast.parse(source))
    return tree


class _Loader(SourceFileLoader):
    """Loads a translated module, and never from a cache of the original."""

    def __init__(self, name: str, path: str, backend: str) -> None:
        super().__init__(name, path)
        self._backend = backend

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = translated(self.get_data(path), self._backend)
        return compile(tree, path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the modules that are to be translated."""

    def __init__(self, names: Iterable[str], backend: str) -> None:
        self._names, self._backend = frozenset(names), backend

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            return None
        loader = _Loader(fullname, found.origin, self._backend)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


def translate(backend: str, modules: Iterable[str] = MODULES) -> None:
    """Have modules translated when they are imported, from here on.

    Raises
    ------
    RuntimeError
        If one of them has been imported before: it would stay as it is.
    """
    names = tuple(modules)
    early = [name for name in names if name in sys.modules]
    if early:
        msg = f"{', '.join(early)}: imported before the translation to {backend}"
        raise RuntimeError(msg)
    sys.meta_path.insert(0, _Finder(names, backend))


class Census:
    """Counts the groups that a process makes of a registered backend."""

    def __init__(self) -> None:
        self.groups = 0

    def watch(self, backend: str) -> None:
        """Count what torch makes of a backend from here on."""
        from torch.distributed import Backend

        plugin = Backend._plugins[backend.upper()]
        Backend._plugins[backend.upper()] = plugin._replace(creator_fn=self._counting(plugin.creator_fn))

    def _counting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def count_and_make(*arguments: Any, **named: Any) -> Any:
            self.groups += 1
            return make(*arguments, **named)

        return count_and_make


def refuse_gloo() -> None:
    """Let no group of gloo be made in this process: a test that would need one fails and says so."""
    from torch.distributed import distributed_c10d as c10d

    class Refused(c10d.ProcessGroupGloo):
        """A class, since torch asks whether a group is an instance of it."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            del arguments, named
            msg = "a test that judges another backend has asked for a group of gloo"
            raise RuntimeError(msg)

    cast("Any", c10d).ProcessGroupGloo = Refused
