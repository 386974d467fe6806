"""Measure the layout of the source tree: a table, then one JSON line. Exits 1 when a figure misses its bar.

`--all` lists the details of every figure, even if its bar is met.
Shares are percentages. The bars are warnings, not goals: an empty test file or an artificial name
improves a figure and harms the code.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from mica.cli import cli
from mica.memory import Memory

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "mica"
TESTS = ROOT / "tests"
FUNCTION_LINES_MAX = 40
# `testing` and `teaching` are nouns.
NOUNS_IN_ING = {"testing", "teaching"}
# Deferred imports may be in memory.py, in commands, and around an optional package: where a store's engine is opened,
# and in the drivers of sources.
MAY_DEFER = ("memory.py", "cli/", "store/target.py", "sources/drivers/")
ENGINES = {"sqlite", "postgres", "reference", "remote"}

AT_MOST, AT_LEAST = "≤", "≥"
BARS: dict[str, tuple[str, float]] = {
    "memory_names": (AT_MOST, 32),
    "role_methods_max": (AT_MOST, 8),
    "everyday_commands": (AT_MOST, 16),
    "groups": (AT_MOST, 10),
    "class_names_reused": (AT_MOST, 3),
    "gerund_modules": (AT_MOST, 3),
    "deferred_imports": (AT_MOST, 0),
    "modules_with_own_test": (AT_LEAST, 70),
    "functions_40": (AT_LEAST, 98),
}

Trees = dict[Path, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse_sources() -> Trees:
    """Parse every source file; the keys are paths below the package."""
    return {
        path.relative_to(SOURCE): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))
    }


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def share(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def memory_names(trees: Trees) -> list[str]:
    """Return the public names of `Memory`: its attributes, inherited ones, and those that its methods set on `self`."""
    names = {name for name in dir(Memory) if not name.startswith("_")}
    for path in (path for path in trees if path.parts[0] in {"memory.py", "memory"}):
        for node in ast.walk(trees[path]):
            is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
            if is_own and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
    return sorted(name for name in names if not name.startswith("_"))


def role_methods(trees: Trees) -> dict[str, int]:
    """Count the members of each store protocol but `Store`, which holds the others; inherited ones count, too."""
    classes = {node.name: node for node in trees[Path("store/protocol.py")].body if isinstance(node, ast.ClassDef)}
    return {
        name: len(_members(node, classes))
        for name, node in classes.items()
        if name != "Store"
        and any("Protocol" in ast.unparse(base) or ast.unparse(base) in classes for base in node.bases)
    }


def _members(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Return the public methods and attributes of a class and of its bases in the same file."""
    names = {each.name for each in node.body if isinstance(each, Function)}
    names |= {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
    inherited = (_members(classes[name], classes) for base in node.bases if (name := ast.unparse(base)) in classes)
    return {name for name in names if not name.startswith("_")}.union(*inherited)


def commands() -> tuple[list[str], list[str]]:
    """Return the names of the visible top-level commands, and of the visible groups."""
    visible = {name: command for name, command in cli.commands.items() if not command.hidden}
    groups = [name for name, command in visible.items() if isinstance(command, click.Group)]
    return [name for name in visible if name not in groups], groups


def reused_class_names(trees: Trees) -> tuple[dict[str, list[str]], int]:
    """Return the names that several classes share, each with its files, and the number of all classes."""
    places: dict[str, list[str]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not _is_private_to_client(path, node.name):
                places.setdefault(node.name.lstrip("_"), []).append(path.as_posix())
    return {name: found for name, found in places.items() if len(found) > 1}, sum(map(len, places.values()))


def _is_private_to_client(path: Path, name: str) -> bool:
    return name.startswith("_") and path.parts[0] == "clients" and len(path.parts) > 2


def gerund_modules(trees: Trees) -> list[str]:
    stems = {path.as_posix(): path.parent.name if path.stem == "__init__" else path.stem for path in trees}
    return [path for path, stem in stems.items() if stem.endswith("ing") and stem not in NOUNS_IN_ING]


def deferred_imports(trees: Trees) -> list[str]:
    """Find imports of mica's own modules inside functions, outside the places where they are allowed."""
    return [
        f"{path}:{node.lineno}"
        for path, tree in trees.items()
        if not path.as_posix().startswith(MAY_DEFER)
        for function in functions(tree)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom | ast.Import | ast.Call) and _imports_mica(node)
    ]


def _imports_mica(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module=str(module)):
            return module.partition(".")[0] == "mica"
        case ast.Import(names=names):
            return any(each.name.partition(".")[0] == "mica" for each in names)
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"), args=[first, *_]
        ):
            return "mica." in ast.unparse(first)
        case _:
            return False


def modules_without_test(trees: Trees) -> tuple[list[str], int]:
    """Return the modules without a test file of their name, and the number of modules; contract suites do not count."""
    modules = [
        path
        for path in trees
        if path.stem not in {"__init__", "__main__"} and path.parts[:2] != ("testing", "contract")
    ]
    return [path.as_posix() for path in modules if not _has_own_test(path)], len(modules)


def _has_own_test(path: Path) -> bool:
    folders = [path.parent]
    if path.parts[0] == "store" and path.parent.name in ENGINES:  # one noun in several engines may share a test file
        folders.append(path.parent.parent)
    return any((TESTS / folder / f"test_{path.name}").is_file() for folder in folders)


def long_functions(trees: Trees) -> tuple[list[str], int]:
    every = [(path, node) for path, tree in trees.items() for node in functions(tree)]
    too_long = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in every
        if (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    return too_long, len(every)


def measure(trees: Trees) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Compute the figures, and for each the names or places that it counts."""
    names, roles = memory_names(trees), role_methods(trees)
    everyday, groups = commands()
    reused, classes = reused_class_names(trees)
    gerunds, deferred = gerund_modules(trees), deferred_imports(trees)
    untested, modules = modules_without_test(trees)
    too_long, all_functions = long_functions(trees)
    packages = Counter(path.parent.as_posix() for path in trees)
    largest, in_largest = packages.most_common(1)[0]
    figures = {
        "files": len(trees),
        "lines": sum(len((SOURCE / path).read_text(encoding="utf-8").splitlines()) for path in trees),
        "modules_per_package_max": in_largest,
        "memory_names": len(names),
        "role_methods_max": max(roles.values(), default=0),
        "everyday_commands": len(everyday),
        "groups": len(groups),
        "class_names_reused": share(sum(map(len, reused.values())), classes),
        "gerund_modules": len(gerunds),
        "deferred_imports": len(deferred),
        "modules_with_own_test": share(modules - len(untested), modules),
        "functions_40": share(all_functions - len(too_long), all_functions),
    }
    causes = {
        "modules_per_package_max": [largest],
        "memory_names": names,
        "role_methods_max": [f"{name} {count}" for name, count in roles.items()],
        "everyday_commands": everyday,
        "groups": groups,
        "class_names_reused": [f"{name}: {', '.join(places)}" for name, places in sorted(reused.items())],
        "gerund_modules": gerunds,
        "deferred_imports": deferred,
        "modules_with_own_test": untested,
        "functions_40": too_long,
    }
    return figures, causes


def is_met(name: str, value: float) -> bool:
    kind, bar = BARS.get(name, (AT_MOST, float("inf")))
    return value <= bar if kind == AT_MOST else value >= bar


def main() -> None:
    figures, causes = measure(parse_sources())
    shown = [name for name in causes if "--all" in sys.argv or not is_met(name, figures[name])]
    for name, value in figures.items():
        kind, bar = BARS.get(name, ("", ""))
        print(f"{name:26}{value:>10,} {kind:>2} {bar:<4}{'' if is_met(name, value) else '  missed'}")
    for name in shown:
        print(f"\n{name}:", *causes[name], sep="\n    ")
    print(json.dumps(figures))
    if missed := [name for name, value in figures.items() if not is_met(name, value)]:
        sys.exit(f"bars missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
