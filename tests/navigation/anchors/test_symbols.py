"""Symbols: the definitions of a file, in common languages and in files without code."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.navigation.anchors import symbols as module
from mica.navigation.anchors.grammars import GRAMMARS, LANGUAGES
from mica.navigation.anchors.symbols import (
    PARSED_BYTES_MAX,
    TEXT_MAX,
    Symbol,
    find_by_patterns,
    find_enclosing,
    find_symbols,
    method_for,
)

Expected = list[tuple[str, str, int, int]]

SOURCES: dict[str, tuple[str, Expected]] = {
    "a.py": (
        """\
import x
@one
@two(
  1)
class A(B):
    @property
    def f(self):
        def g():
            pass
        return 1

async def top(a,
        b):
    return a
""",
        [
            ("A", "class", 2, 10),
            ("A.f", "method", 6, 10),
            ("A.f.g", "function", 8, 9),
            ("top", "function", 12, 14),
        ],
    ),
    "a.js": (
        """\
export default class Foo {
  go() {
  }
}
export const f = (x) => {
  return x;
};
const a = 1, g = function () {};
module.exports.h = function () {
};
""",
        [
            ("Foo", "class", 1, 4),
            ("Foo.go", "method", 2, 3),
            ("f", "function", 5, 7),
            ("g", "function", 8, 8),
            ("module.exports.h", "function", 9, 10),
        ],
    ),
    "a.ts": (
        """\
export class Foo<T> {
  @Hook()
  go(a: string): void {
  }
  arrow = async () => { 1 }
}
interface I { m(): void }
export type T = { a: string };
enum E { A }
""",
        [
            ("Foo", "class", 1, 6),
            ("Foo.go", "method", 2, 4),
            ("Foo.arrow", "method", 5, 5),
            ("I", "interface", 7, 7),
            ("I.m", "method", 7, 7),
            ("T", "type", 8, 8),
            ("E", "enum", 9, 9),
        ],
    ),
    "a.tsx": (
        """\
export function Page({ title }: Props) {
  return <h1 className='x'>{title}</h1>;
}
const Row = () => (
  <tr />
);
""",
        [
            ("Page", "function", 1, 3),
            ("Row", "function", 4, 6),
        ],
    ),
    "a.go": (
        """\
package x

func (s *Server[T]) Serve(a int) error {
	return nil
}

type Foo struct {
	a int
}

type (
	B int
	C interface{ M() }
)

func main() {}
""",
        [
            ("Server.Serve", "method", 3, 5),
            ("Foo", "type", 7, 9),
            ("B", "type", 12, 12),
            ("C", "type", 13, 13),
            ("main", "function", 16, 16),
        ],
    ),
    "a.rs": (
        """\
#[derive(Debug)]
pub struct A<T> {
    x: T,
}

impl<T> A<T> {
    #[inline]
    pub fn new() -> Self {
        A
    }
}

mod tests {
    #[test]
    fn works() {}
}
""",
        [
            ("A", "class", 1, 4),
            ("A", "implementation", 6, 11),
            ("A.new", "method", 7, 10),
            ("tests", "module", 13, 16),
            ("tests.works", "function", 14, 15),
        ],
    ),
    "A.java": (
        """\
package a;
@Service
public class A<T> {
  @Override
  public String x(int a) {
    return null;
  }
  A() {}
  interface B { void c(); }
  record R(int a) {}
}
""",
        [
            ("A", "class", 2, 11),
            ("A.x", "method", 4, 7),
            ("A.A", "method", 8, 8),
            ("A.B", "interface", 9, 9),
            ("A.B.c", "method", 9, 9),
            ("A.R", "class", 10, 10),
        ],
    ),
    "a.c": (
        """\
struct s { int a; };
struct s *other;
static int *f(int (*cb)(int), struct s *x)
{
  return 0;
}
#define MAX(a, b) 1
""",
        [
            ("s", "class", 1, 1),
            ("f", "function", 3, 6),
            ("MAX", "macro", 7, 7),
        ],
    ),
    "a.cpp": (
        """\
namespace n {
template <typename T>
class A : B {
 public:
  int m() const { return 1; }
};
void A::z() {
}
}
""",
        [
            ("n", "module", 1, 9),
            ("n.A", "class", 2, 6),
            ("n.A.m", "method", 5, 5),
            ("n.A.z", "function", 7, 8),
        ],
    ),
    "a.rb": (
        """\
module M
  class A < B
    def x?(a)
      1
    end

    def self.y; end
  end
end
""",
        [
            ("M", "module", 1, 9),
            ("M.A", "class", 2, 8),
            ("M.A.x?", "method", 3, 5),
            ("M.A.y", "method", 7, 7),
        ],
    ),
    "A.cs": (
        """\
namespace N {
  [Attr]
  public class A<T> : B {
    public int P { get; set; }
    [Fact]
    public async Task<int> M() {
      return 1;
    }
  }
}
""",
        [
            ("N", "module", 1, 10),
            ("N.A", "class", 2, 9),
            ("N.A.P", "property", 4, 4),
            ("N.A.M", "method", 5, 8),
        ],
    ),
    "a.php": (
        """\
<?php
namespace App;
class A extends B {
  public function x(): int {
    return 1;
  }
}
function top() {}
""",
        [
            ("A", "class", 3, 7),
            ("A.x", "method", 4, 6),
            ("top", "function", 8, 8),
        ],
    ),
    "a.md": (
        """\
# Title

## One
text
```sh
# no heading
```
## Two
### Three
""",
        [
            ("Title", "section", 1, 9),
            ("Title / One", "section", 3, 7),
            ("Title / Two", "section", 8, 9),
            ("Title / Two / Three", "section", 9, 9),
        ],
    ),
    "a.sh": (
        """\
set -e
build() {
  make
}
function clean {
  rm x
}
build
""",
        [
            ("build", "function", 2, 4),
            ("clean", "function", 5, 7),
        ],
    ),
}


@pytest.mark.parametrize("path", SOURCES)
def test_definitions_are_found_with_their_lines(path: str) -> None:
    """keeps: K-06. Qualified names and whole ranges, decorators and attributes included."""
    text, expected = SOURCES[path]

    assert [tuple(symbol) for symbol in find_symbols(path, text)] == expected


@pytest.mark.parametrize("path", [path for path in SOURCES if path not in ("a.md", "a.sh")])
def test_languages_with_an_installed_grammar_are_parsed(path: str) -> None:
    assert method_for(path) == "tree-sitter"


@pytest.mark.parametrize("suffix", LANGUAGES)
def test_every_grammar_of_the_table_loads(suffix: str) -> None:
    """All node kinds of the table exist in the grammar."""
    from tree_sitter import Language

    grammar = GRAMMARS[LANGUAGES[suffix]]
    language = Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    names = {language.node_kind_for_id(number) for number in range(language.node_kind_count)}

    assert not set(grammar.kinds) - names
    assert find_symbols(f"empty{suffix}", "") == []


@pytest.mark.parametrize("path", SOURCES)
def test_patterns_find_most_definitions_without_a_parser(path: str) -> None:
    """Without `mica[code]`, the outer definitions are still found, on the same lines."""
    text, expected = SOURCES[path]
    found = {(name.split(".")[-1], start) for name, _, start, _ in find_by_patterns(Path(path).suffix, text)}
    outer = [
        (name.split(".")[-1], text.split("\n")[start - 1].lstrip().startswith(("@", "#[", "[", "template")), start)
        for name, kind, start, end in expected
        if end > start and kind != "macro"
    ]

    there = sum(
        (name, start) in found or (decorated and name in {one for one, _ in found}) for name, decorated, start in outer
    )

    assert there >= 0.7 * len(outer), (found, outer)


def test_without_tree_sitter_patterns_are_used_and_reported() -> None:
    """Symbols are found without the extra `mica[code]`."""
    code = (
        "import sys\n"
        "sys.modules['tree_sitter'] = None\n"
        "from mica.navigation.anchors.symbols import find_symbols, method_for\n"
        "text = 'class A:\\n    def f(self):\\n        pass\\n'\n"
        "print(method_for('a.py'), [tuple(one) for one in find_symbols('a.py', text)])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "patterns [('A', 'class', 1, 3), ('A.f', 'method', 2, 3)]"


def test_the_parser_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, mica, mica.navigation.anchors.anchor; "
        "print([name for name in sys.modules if 'tree_sitter' in name])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"


def test_the_innermost_symbol_encloses_a_range() -> None:
    symbols = [Symbol("A", "class", 1, 9), Symbol("A.f", "method", 2, 5), Symbol("A.g", "method", 6, 9)]

    assert find_enclosing(symbols, 3, 5) == symbols[1]
    assert find_enclosing(symbols, 5, 6) == symbols[0]
    assert find_enclosing(symbols, 9, 10) is None


HOSTILE = {
    "deep generics": "a<" * 60_000,
    "deep generics with ends": "a<b<c>," * 60_000,
    "deep brackets": "([{" * 60_000,
    "deep blocks": "function f(){\n" * 20_000,
    "prose": 'The quick (brown) fox said: "jump over <b>it\n' * 3_000,
    "words": "a b c d e f\n" * 5_000,
    "quotes": "\"\n'\n" * 3_000,
    "one long line": "x = 1; " * 20_000,
    "nul": "def f():\n    return '\0'\n",
    "surrogates": "def f\udc80():\n    pass\n",
    "marks": "def \u202ef\u2028g():\n    pass\n",
    "carriage returns": "def f():\r    pass\r",
}


@pytest.mark.parametrize("suffix", {name: suffix for suffix, name in LANGUAGES.items()}.values())
def test_hostile_text_neither_raises_nor_hangs_nor_crashes(suffix: str) -> None:
    """keeps: A-40. Deep nesting that would overflow the stack is not parsed, and parsing has a time limit."""
    for text in HOSTILE.values():
        total = text.count("\n") + 1
        assert all(1 <= one.start <= one.end <= total for one in find_symbols(f"a{suffix}", text))


def test_large_files_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: A-40. Above one limit patterns are used; above a second one there are no symbols."""
    text = "def f():\n    pass\n" * (PARSED_BYTES_MAX // 10)
    called: list[str] = []
    monkeypatch.setattr(module, "_load", called.append)

    assert find_symbols("a.py", text)[0] == Symbol("f", "function", 1, 2)
    assert find_symbols("a.py", "x" * (TEXT_MAX + 1)) == []
    assert not called


@given(st.text(max_size=300), st.sampled_from([*LANGUAGES, ".md", ".sh", ""]))
def test_symbols_are_within_the_text(text: str, suffix: str) -> None:
    total = max(1, text.count("\n") + 1)

    for symbol in find_symbols(f"file{suffix}", text):
        assert 1 <= symbol.start <= symbol.end <= total
        assert symbol.name
