"""What the source says of the words of arrays: how they are named in an index, and what kernels are called with."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Set

from tests.harness.trees import Nodes, spelled

FullName = Callable[[ast.expr], str]

COMPILED = {"kernel", "bare_kernel", "inlined"}
# Numbers beside words in an index: lengths, and how far ahead a kernel looks. A broker's id is a key of a dict.
NO_WORDS = re.compile(r"\w+_(WORDS|MAX)|AHEAD|MASTER_ID")


def faults(modules: Mapping[str, Nodes]) -> Iterator[tuple[str, ast.expr]]:
    """What is wrong in which of these modules. Kernels take members as numbers, but where Python calls them numba
    takes 0.1 ms to find that out."""

    def everywhere(names_in: Callable[[Nodes], Iterator[str]]) -> set[str]:
        return {f"{module}.{name}" for module, nodes in modules.items() for name in names_in(nodes)}

    numbers, members, kernels = everywhere(_numbers), everywhere(_members), everywhere(_kernels)
    for module, nodes in modules.items():
        full_name = _full_names(nodes, module)
        for fault in (
            *_words_named(nodes, full_name, numbers),
            *_bare_words(nodes),
            *_calls_with(nodes, full_name, kernels, members),
        ):
            yield module, fault


def _full_names(nodes: Nodes, module: str) -> FullName:
    """How a module's names are called from everywhere: `ring.HEAD` is ipc.ring.HEAD."""
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in nodes.of(ast.ImportFrom)
        for alias in node.names
    }

    def full_name(node: ast.expr) -> str:
        head, dot, rest = spelled(node).partition(".")
        return imported.get(head, f"{module}.{head}") + dot + rest

    return full_name


def _numbers(nodes: Nodes) -> Iterator[str]:
    """Names of a module's plain numbers: `A = 3`, `A, B = 0, 1` and `A, B, C = range(3)`."""
    for node in nodes.tree.body:
        if not isinstance(node, ast.Assign):
            continue
        names = [name for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        is_range = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "range"
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(names)
        for name, value in zip(names, values, strict=False):
            is_number = is_range or (isinstance(value, ast.Constant) and type(value.value) is int)
            if is_number and not NO_WORDS.fullmatch(name.id):
                yield name.id


def _members(nodes: Nodes) -> Iterator[str]:
    """The members of a module's enumerations of numbers: `Word.FIRST`."""
    for node in nodes.tree.body:
        if isinstance(node, ast.ClassDef) and "IntEnum" in map(ast.unparse, node.bases):
            yield from (f"{node.name}.{name}" for name in _assigned(node))


def _assigned(node: ast.ClassDef) -> Iterator[str]:
    targets = (target for line in node.body if isinstance(line, ast.Assign) for target in line.targets)
    return (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _kernels(nodes: Nodes) -> Iterator[str]:
    """The names of what numba compiles."""
    return (function.name for function in _compiled(nodes))


def _compiled(nodes: Nodes) -> Iterator[ast.FunctionDef]:
    for node in nodes.of(ast.FunctionDef):
        if not COMPILED.isdisjoint(map(spelled, node.decorator_list)):
            yield node


def _words_named(nodes: Nodes, full_name: FullName, names: Set[str]) -> Iterator[ast.Subscript]:
    """Where the index of an array is made with one of these names: `array[NAME]`, `[row, NAME]`, `[at + NAME]`."""
    for node in nodes.of(ast.Subscript):
        if not names.isdisjoint(map(full_name, _summands(node.slice))):
            yield node


def _summands(index: ast.expr) -> Iterator[ast.expr]:
    """What an index is made of; a slice is one piece."""
    match index:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (*_summands(left), *_summands(right))
        case ast.Tuple(elts=columns):
            yield from (part for column in columns for part in _summands(column))
        case _:
            yield index


def _bare_words(nodes: Nodes) -> Iterator[ast.Subscript]:
    """In kernels `[2]`, `[slot, 0]` and `[at + 2]`; `[0]` is the first row, `[k + 1]` the next; bytes are no words."""
    for function in _compiled(nodes):
        data = {of.arg for of in function.args.args if of.annotation and ast.unparse(of.annotation) == "Bytes"}
        for node in (part for part in ast.walk(function) if isinstance(part, ast.Subscript)):
            array = spelled(node.value)
            if _is_bare(node.slice) and array not in data and not array.isupper() and not array.endswith(".shape"):
                yield node


def _is_bare(index: ast.expr) -> bool:
    match index:
        case ast.Constant(value=int(number)):
            return number > 0
        case ast.Tuple(elts=[*_, ast.Constant(value=int())]):
            return True
        case ast.BinOp(op=ast.Add(), right=ast.Constant(value=int(number))):
            return number > 1
    return False


def _calls_from_python(nodes: Nodes) -> Iterator[ast.Call]:
    """Every call that the interpreter makes."""
    compiled = {node for function in _compiled(nodes) for node in ast.walk(function)}
    return (node for node in nodes.of(ast.Call) if node not in compiled)


def _calls_with(nodes: Nodes, full_name: FullName, functions: Set[str], names: Set[str]) -> Iterator[ast.Call]:
    """Where the interpreter calls one of these functions with one of these names."""
    for node in _calls_from_python(nodes):
        if full_name(node.func) in functions and not names.isdisjoint(map(full_name, node.args)):
            yield node
