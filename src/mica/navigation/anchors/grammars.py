"""Tables for tree-sitter: the syntax nodes that are definitions in each language, and the suffixes of its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Kinds = Mapping[str, str]


class Grammar(NamedTuple):
    """A tree-sitter grammar: its Python module, and `kinds`, which maps node types to kinds of definitions.

    Nodes of the kinds "wrapper" and "attribute" are not definitions themselves, but their lines belong to one. A
    wrapper contains the definition, as `export` does. An attribute precedes the definition, as a decorator does.
    """

    module: str
    kinds: Kinds
    function: str = "language"  # the function of the module that returns the language
    names: tuple[str, ...] = ("name",)  # fields of a node that may hold its name; the first that exists is used
    with_body: frozenset[str] = frozenset()  # nodes that are definitions only with a body: `struct x {…}`
    with_function: Mapping[str, frozenset[str]] = {}  # nodes that are definitions only with these types of values


_JS_VALUES = frozenset({"arrow_function", "function_expression", "generator_function", "class"})
_JS_KINDS = {
    "export_statement": "wrapper",
    "lexical_declaration": "wrapper",
    "variable_declaration": "wrapper",
    "decorator": "attribute",
    "function_declaration": "function",
    "generator_function_declaration": "function",
    "class_declaration": "class",
    "method_definition": "method",
    "variable_declarator": "function",
    "assignment_expression": "function",
    "pair": "function",
}
_JS_WITH_FUNCTION = dict.fromkeys(
    ("variable_declarator", "assignment_expression", "pair", "field_definition", "public_field_definition"), _JS_VALUES
)
_JS_NAMES = ("name", "property", "key", "left")
_TS_KINDS = {
    **_JS_KINDS,
    "abstract_class_declaration": "class",
    "interface_declaration": "interface",
    "type_alias_declaration": "type",
    "enum_declaration": "enum",
    "internal_module": "module",
    "module": "module",
    "function_signature": "function",
    "method_signature": "method",
    "abstract_method_signature": "method",
    "public_field_definition": "method",
}
_C_KINDS = {
    "function_definition": "function",
    "struct_specifier": "class",
    "union_specifier": "class",
    "enum_specifier": "enum",
    "type_definition": "type",
    "preproc_function_def": "macro",
}
_C_BODIES = frozenset({"struct_specifier", "union_specifier", "enum_specifier", "class_specifier"})

GRAMMARS: dict[str, Grammar] = {
    "python": Grammar(
        "tree_sitter_python",
        {"decorated_definition": "wrapper", "function_definition": "function", "class_definition": "class"},
    ),
    "javascript": Grammar(
        "tree_sitter_javascript",
        {**_JS_KINDS, "field_definition": "method"},
        names=_JS_NAMES,
        with_function=_JS_WITH_FUNCTION,
    ),
    "typescript": Grammar(
        "tree_sitter_typescript",
        _TS_KINDS,
        function="language_typescript",
        names=_JS_NAMES,
        with_function=_JS_WITH_FUNCTION,
    ),
    "tsx": Grammar(
        "tree_sitter_typescript",
        _TS_KINDS,
        function="language_tsx",
        names=_JS_NAMES,
        with_function=_JS_WITH_FUNCTION,
    ),
    "go": Grammar(
        "tree_sitter_go",
        {
            "type_declaration": "wrapper",
            "function_declaration": "function",
            "method_declaration": "method",
            "type_spec": "type",
            "type_alias": "type",
        },
    ),
    "rust": Grammar(
        "tree_sitter_rust",
        {
            "attribute_item": "attribute",
            "function_item": "function",
            "function_signature_item": "function",
            "struct_item": "class",
            "enum_item": "enum",
            "union_item": "class",
            "trait_item": "interface",
            "impl_item": "implementation",
            "mod_item": "module",
            "type_item": "type",
            "macro_definition": "macro",
        },
        names=("name", "type"),
    ),
    "java": Grammar(
        "tree_sitter_java",
        {
            "class_declaration": "class",
            "interface_declaration": "interface",
            "enum_declaration": "enum",
            "record_declaration": "class",
            "annotation_type_declaration": "interface",
            "method_declaration": "method",
            "constructor_declaration": "method",
        },
    ),
    "c": Grammar("tree_sitter_c", _C_KINDS, names=("name", "declarator"), with_body=_C_BODIES),
    "cpp": Grammar(
        "tree_sitter_cpp",
        {
            **_C_KINDS,
            "template_declaration": "wrapper",
            "class_specifier": "class",
            "namespace_definition": "module",
            "concept_definition": "type",
            "alias_declaration": "type",
        },
        names=("name", "declarator"),
        with_body=_C_BODIES,
    ),
    "ruby": Grammar(
        "tree_sitter_ruby",
        {"method": "method", "singleton_method": "method", "class": "class", "module": "module"},
    ),
    "csharp": Grammar(
        "tree_sitter_c_sharp",
        {
            "namespace_declaration": "module",
            "class_declaration": "class",
            "interface_declaration": "interface",
            "struct_declaration": "class",
            "record_declaration": "class",
            "enum_declaration": "enum",
            "delegate_declaration": "type",
            "method_declaration": "method",
            "constructor_declaration": "method",
            "property_declaration": "property",
        },
    ),
    "php": Grammar(
        "tree_sitter_php",
        {
            "namespace_definition": "module",
            "class_declaration": "class",
            "interface_declaration": "interface",
            "trait_declaration": "class",
            "enum_declaration": "enum",
            "function_definition": "function",
            "method_declaration": "method",
        },
        function="language_php",
        with_body=frozenset({"namespace_definition"}),
    ),
}

LANGUAGES: dict[str, str] = {
    suffix: name
    for name, suffixes in {
        "python": ".py .pyi .pyw",
        "javascript": ".js .jsx .mjs .cjs",
        "typescript": ".ts .mts .cts",
        "tsx": ".tsx",
        "go": ".go",
        "rust": ".rs",
        "java": ".java",
        "c": ".c",
        "cpp": ".h .hh .hpp .hxx .cc .cpp .cxx .cu .ino",
        "ruby": ".rb .rake .gemspec",
        "csharp": ".cs",
        "php": ".php .phtml",
    }.items()
    for suffix in suffixes.split()
}
