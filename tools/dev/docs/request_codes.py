"""The page of the request codes that are served, from the tables of handlers as they stand in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from engine.protocol.remoting.codes import KINDS, RequestCode, RequestKind
from store.compat import NEWEST, OLDEST
from tools.dev.docs.places import ROOT
from tools.dev.docs.tables import code, table

BROKER = ("engine/protocol/broker", "engine/protocol/clients", "engine/remoting/processors", "engine/remoting/sockets")
FRONT = ("engine/front/sends/sends.py", "engine/front/pulls/pulls.py")
NAME_SERVER = ("engine/protocol/naming",)
DECIDED_ELSEWHERE = {  # by a comparison, not in a table
    RequestCode.GET_LOG_DIGESTS: (OLDEST, NEWEST),
}
TABLES = ("handlers", "later", "codes", "PULL_CODES")
HEAD = """# Request codes

This page lists the request codes of RocketMQ's remoting that a Slipstream broker or name server answers. Any other
code is answered with 3, REQUEST_CODE_NOT_SUPPORTED, as RocketMQ does. 4.9 and 5 are values of `compat`. The kind of a
request decides who may send it: [security](../security.md).

"""


def page() -> str:
    """Return the whole page as Markdown."""
    parts = [HEAD]
    for title, served in (("A broker", at_brokers()), ("A name server", at_name_servers())):
        rows = [
            (str(int(one)), code(one.name), _yes(OLDEST in lines), _yes(NEWEST in lines), KINDS[one].name.lower())
            for one, lines in sorted(served.items())
        ]
        parts.append(f"## {title}\n\n{table(('code', 'name', OLDEST, NEWEST, 'kind'), rows)}\n")
    kinds = [(kind.name.lower(), kind.value) for kind in RequestKind if kind is not RequestKind.PUSH]
    return "".join(parts) + f"## Kinds\n\n{table(('kind', 'what it does, and who may send it'), kinds)}"


def at_brokers() -> dict[RequestCode, tuple[str, ...]]:
    """Return what a broker serves, and with which values of `compat`."""
    return _served(*BROKER, *FRONT) | DECIDED_ELSEWHERE


def at_name_servers() -> dict[RequestCode, tuple[str, ...]]:
    """Return what a name server serves: there is one for both lines."""
    return dict.fromkeys(_served(*NAME_SERVER), (OLDEST, NEWEST))


def _yes(is_served: bool) -> str:
    return "yes" if is_served else ""


def _served(*places: str) -> dict[RequestCode, tuple[str, ...]]:
    served: dict[RequestCode, tuple[str, ...]] = {}
    for place in places:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for name, lines in _handled(ast.parse(file.read_text()), (OLDEST, NEWEST)):
                one = RequestCode[name]
                served[one] = max(served.get(one, ()), lines, key=len)
    return served


def _handled(node: ast.AST, lines: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Codes in assignments to tables of handlers; what stands below an `if` is of the newest line alone."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(_table_of(target) in TABLES for target in targets):
            for part in [*targets, *([node.value] if node.value else [])]:
                yield from ((name, lines) for name in _codes_in(part))
    for child in ast.iter_child_nodes(node):
        yield from _handled(child, (NEWEST,) if isinstance(node, ast.If) else lines)


def _table_of(target: ast.AST) -> str:
    target = target.value if isinstance(target, ast.Subscript) else target
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def _codes_in(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "RequestCode":
            yield part.attr
