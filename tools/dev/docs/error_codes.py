"""The page of all error codes, from the classes of the source: cause and next step are their docstrings'.

Read as text, not imported: a code that only Spark's part has is there without PySpark, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from ipc.module_names import PACKAGES
from tools.cli import EXIT_CODES
from tools.common.exit_codes import MEANINGS, ExitCode
from tools.dev.docs.places import ROOT

NOT_THE_USERS = ("tools/dev/bench/", "tools/dev/packaging/", "tools/dev/docs/")
NEXT = "Next:"
OF_THE_COMMANDS = {  # codes that no class has: tools/cli.py
    "USAGE": ("Wrong arguments of a command.", "`slipstream COMMAND --help` lists the arguments."),
    "IO": ("The system refused access to a file, a directory or a connection.", "do what the end of the line says."),
    "INTERRUPTED": ("Ctrl-C, or a signal that means the same.", "run the command again."),
}
HEAD = """# Error codes

A command prints an error as one line, `slipstream: CODE: what, where, why, what to do`. In Python, an error is an
exception with the attribute `code`. Codes are stable, so programs may match them; texts are for people and may change.
STORE is the store's directory, FILE a broker.properties. Words in italics are replaced by values.

"""


@dataclass
class Fault:
    """A class of errors: its code, where it is raised from, what it means."""

    name: str
    file: str
    bases: list[str]
    codes: list[str]
    cause: str
    next_step: str
    messages: list[str] = field(default_factory=list)


def faults() -> list[Fault]:
    """Return all classes of the source with an error code, their own or a base's."""
    classes = [fault for package in PACKAGES for fault in _classes_of(package)]
    while more := [(one, codes) for one in classes if not one.codes and (codes := _inherited(one, classes))]:
        for one, codes in more:
            one.codes = codes
    return [fault for fault in classes if fault.codes]


def _inherited(one: Fault, classes: list[Fault]) -> list[str]:
    """The codes of its base: the one in its own file, or the only one with that name."""
    for base in one.bases:
        named = [other for other in classes if other.name == base]
        here = [other for other in named if other.file == one.file]
        if len(named) == 1 or here:
            return (here or named)[0].codes
    return []


def _classes_of(package: str) -> Iterator[Fault]:
    for path in sorted((ROOT / package).rglob("*.py")):
        file = str(path.relative_to(ROOT))
        if not file.startswith(NOT_THE_USERS):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and node.bases:
                    yield _fault(node, file)


def _fault(node: ast.ClassDef, file: str) -> Fault:
    paragraphs = [" ".join(part.split()) for part in (ast.get_docstring(node) or "").split("\n\n")]
    next_step = next((part.removeprefix(NEXT).strip() for part in paragraphs if part.startswith(NEXT)), "")
    cause = " ".join(part for part in paragraphs if not part.startswith(NEXT))
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return Fault(node.name, file, bases, list(_codes_of(node)), cause, next_step, list(_messages_of(node)))


def _codes_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield what is assigned to `code` in the class's body, as a text of its own."""
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            (target,) = statement.targets
            pairs = [(target, statement.value)]
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                pairs = list(zip(target.elts, statement.value.elts, strict=True))
            for name, value in pairs:
                text = value.value if isinstance(value, ast.Constant) else None
                if isinstance(name, ast.Name) and name.id == "code" and isinstance(text, str):
                    yield text


def _messages_of(node: ast.ClassDef) -> Iterator[str]:
    """The texts that its `__init__` hands on, with the names of what is put in."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("__init__"):
            for argument in call.args:
                if isinstance(argument, ast.JoinedStr):
                    yield _template(argument)


def _template(text: ast.JoinedStr) -> str:
    parts = []
    for part in text.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value).replace("<", "&lt;"))
        elif isinstance(part, ast.FormattedValue):
            name = part.value.attr if isinstance(part.value, ast.Attribute) else ast.unparse(part.value)
            parts.append(f"<i>{name.replace('_', ' ')}</i>" if name.isidentifier() else "…")
    return " ".join("".join(parts).split())


def page() -> str:
    """Return the whole page as Markdown."""
    by_code: dict[str, list[Fault]] = {}
    for fault in faults():
        for code in fault.codes:
            by_code.setdefault(code, []).append(fault)
    sections = {code: _section(code, those) for code, those in by_code.items()}
    for code, (cause, next_step) in OF_THE_COMMANDS.items():
        sections[code] = f"{cause}\n\nNext: {next_step}\n\n{_exit(code)}"
    return HEAD + "".join(f"## {code}\n\n{sections[code]}\n" for code in sorted(sections))


def _section(code: str, those: list[Fault]) -> str:
    lines = []
    for fault in sorted(those, key=lambda one: not one.next_step):
        lines.append(f"{fault.cause}\n\n")
        lines += [f"> {message}\n\n" for message in fault.messages]
        lines += [f"Next: {fault.next_step}\n\n"] if fault.next_step else []
    names = ", ".join(f"`{fault.name}` (`{fault.file}`)" for fault in those)
    return "".join(lines) + f"{_exit(code)} Raised as {names}.\n"


def _exit(code: str) -> str:
    by_usage = {"USAGE": ExitCode.USAGE, "INTERRUPTED": ExitCode.INTERRUPTED}
    exit_code = by_usage.get(code) or EXIT_CODES.get(code, ExitCode.STORE)
    return f"Exit code of a command: {int(exit_code)} ({MEANINGS[ExitCode(exit_code)]})."
