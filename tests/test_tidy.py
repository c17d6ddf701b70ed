"""The rules of the tree, checked on its source. A rule that does not fit a place is changed here, with its reason."""

from __future__ import annotations

import ast
import gc
import io
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from store import names
from store.message import properties
from tests.harness import words_of_arrays
from tests.harness.trees import Nodes, nodes_of, spelled

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ipc", "store", "engine", "spark_bridge", "tools")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MODULES = [*SOURCES, *sorted(ROOT.glob("*.py"))]

MAY_IMPORT = {
    "ipc": set(),
    "store": {"ipc"},
    "engine": {"store", "ipc"},
    "spark_bridge": {"store", "ipc"},
    "tools": {"engine", "spark_bridge", "store", "ipc"},
}
# The rooms of each package, ground first: whoever stands right of `<` may import what stands left of it; rooms beside
# each other (`|`) do not. A name is a folder or, at the top of its package, a module; `.` is all modules there without
# a name.
ROOMS = (
    ("ipc", "arrays | errors | module_names < machine < compiled < ."),
    ("store", "names < compat | epochs | errors < files | message < columns | notes | index | tables < queues"
     " < recovery < reading < upkeep | put | manifest < verify < repair"),
    ("engine", "protocol.remoting < errors < protocol.access | protocol.ha | protocol.tables | protocol.store"
     " < protocol.naming | protocol.broker | protocol.clients | protocol.sending | protocol.pulling | protocol.services"
     " < settings < shared_memory.clients < shared_memory < shared_memory.region_directory < net | rings | role"
     " < monitoring | keeping | producer | replication | writer < monitoring.live"
     " < remoting.loop | remoting.sockets < remoting.links | remoting.files | remoting.peers < remoting.processors"
     " < remoting.processors.admin < remoting < services | clients < clients.sending | clients.local"
     " < clients.consuming < clients.integrations"
     " < front.frames < front.connections < front.sends | front.pulls < front"
     " < children | warm | role_change | store_opening | reload < supervisor"),
    ("spark_bridge", "registry < options | worker_process < split | user_errors | catalogue | java_home | spark_home"
     " < replica < records.formats < records < columnar < plan < stream | tables | sink < flight < flight.remote"
     " < batch < source < preferred_hosts < parquet_reads < driver | kernels < scanning < sql | lake < ."),
    ("tools", "common | dev.packaging < admin | kernels | log | run | show | dev.bench.bed < demo | doctor"
     " | replica | debug | top | dev.bench.bed.members < dev.bench.works.reads | dev.bench.works"
     " < dev.bench | dev.cluster | web.state"
     " < web.views < web < . < dev.docs | dev.carried"),
)  # fmt: skip
HANDS_ON = ("engine/producer/__init__.py", "spark_bridge/__init__.py")  # public faces: other rooms' import nothing
SINK, SINK_MAY_IMPORT = "spark_bridge/sink/", "engine.producer"  # a write is a producer's; readers need no engine
# What name servers and brokers are asked takes frames, which are pure, and for who names a tls.properties its contexts.
REPLICAS, REPLICAS_MAY_IMPORT = "spark_bridge/replica/", ("engine.protocol.remoting.", "engine.net.tls.")
# The tables, names and forms of bytes that need no file.
PROTOCOL_MAY_IMPORT = (
    "engine.protocol", "store.compat", "store.epochs", "store.errors", "store.message", "store.names",
    "store.tables.fastjson", "store.tables.tables", "store.tables.config_texts", "store.tables.entry_texts",
    "store.tables.java_fields", "store.tables.json_steps", "store.tables.offset_texts", "store.tables.steps",
    "ipc.arrays", "ipc.host_port",
)  # fmt: skip
# What is decided for every frame is compiled, so that the loops over sockets and the objects on which faults are played
# in virtual time share it. Kernels here see words and bytes that are handed in; what sleeps or wakes lies elsewhere.
PROTOCOL_KERNELS_MAY_IMPORT = (
    "ipc.compiled.kernels",
    "ipc.compiled.atomics.load_acquire",
    "ipc.compiled.memory.load_be",
)
PROTOCOL_MAY_NOT_IMPORT = set("asyncio ctypes multiprocessing os select signal socket subprocess time".split())
VERSIONS, VERSION_NAMES = ("4.9", "5"), re.compile(r"(^|_)(five|4_9|of_5)($|_)")
NAMES_STAND_IN, PROPERTIES_STAND_IN = "store/names.py", "store/message/properties.py"
FILE_NAMES = {value for name, value in vars(names).items() if name.isupper()}
WORDS, PATH_CALLS = {"index", "config", "lock", "abort", "checkpoint"}, {"Path", "joinpath", "with_name", "join"}
TOPIC_TYPES = ("engine/protocol/tables/topic_attributes.py", "DELAY")  # a type of topic is called as a property is
NAMELESS = {"found", "_found", "Found", "told", "_told", "_tell"}  # what was found, what is said?
FUNCTION_LINES_MAX = 65  # below its arguments: a screen
MODULES_MAX = 20  # in a folder: as many as are found at a glance
ARGUMENTS_MAX = 8  # words that belong together are one NamedTuple
# Except where users, or a format, name each argument: options of commands, the public interface, a record's fields.
MANY_ARGUMENTS = set(
    "cat.cat commands.updateTopic consume.consume export.export find.find flight.serve init.init lake.load"
    " namesrv.serve send.send"
    " producer.send producer.send_async producer.send_half registration.register scanning.scan tables.lake"
    " record.encode".split()
)
EQUAL_LINES_MAX, LINE_LENGTH = 6, 110
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError|placeholder)\b")
# Nobody imports these: the command line finds them by name, people run or import them, Spark looks for them.
ENTRIES = re.compile(
    r"(tools/.*|spark_bridge/flight/client|pyspark_slipstream|slipstream|.*/__init__|engine/warm"
    r"|engine/shared_memory/counter_map)\.py"
)


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """The rules share a worker, in which each file is parsed once. Collections of garbage would look through all the
    trees again and again, also in the tests that come after these."""
    gc.disable()
    yield
    for kept in (nodes_in, imports_of, calls):
        kept.cache_clear()
    gc.enable()


@cache
def nodes_in(path: Path) -> Nodes:
    return nodes_of(path.read_text())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def imports_of(path: Path) -> list[str]:
    """Every module that a file imports, also inside functions: `from a import b` is a.b."""
    nodes = nodes_in(path)
    for node in nodes.of(ast.ImportFrom):
        assert node.level == 0, f"{name_of(path)}:{node.lineno}: import by the full name"
    names = [alias.name for node in nodes.of(ast.Import) for alias in node.names]
    return names + [f"{node.module}.{alias.name}" for node in nodes.of(ast.ImportFrom) for alias in node.names]


@cache
def calls(path: Path) -> list[tuple[str, int]]:
    return [(spelled(node.func), node.lineno) for node in nodes_in(path).of(ast.Call)]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_downwards(package: str) -> None:
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == package
        for name in imports_of(path)
        if name.partition(".")[0] in set(PACKAGES) - MAY_IMPORT[package] - {package}
        and not (name_of(path).startswith(SINK) and name.startswith(SINK_MAY_IMPORT))
        and not (name_of(path).startswith(REPLICAS) and name.startswith(REPLICAS_MAY_IMPORT))
    ]
    assert not wrong


def test_nobody_imports_tests() -> None:
    assert not [name_of(path) for path in SOURCES if any(name.startswith("tests") for name in imports_of(path))]


def floors_of(order: str) -> dict[str, int]:
    """A package's rooms, and how high each lies."""
    return {room: height for height, floor in enumerate(order.split(" < ")) for room in floor.split(" | ")}


def room_of(module: str, floors: dict[str, int]) -> str:
    """The room of a module without its package: the longest name of a room that it begins with."""
    parts = module.split(".")
    return next((name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in floors), ".")


@pytest.mark.parametrize(("package", "order"), ROOMS, ids=PACKAGES)
def test_rooms_import_rooms_below_them(package: str, order: str) -> None:
    floors, wrong = floors_of(order), []
    for path in sorted((ROOT / package).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / package).with_suffix("").parts).removesuffix(".__init__")
        own = room_of(module, floors)
        for name in imports_of(path):
            other = room_of(name.removeprefix(f"{package}."), floors)
            if name.startswith(f"{package}.") and other != own and floors[other] >= floors[own]:
                wrong.append(f"{name_of(path)} ({own}) imports {name} ({other})")
    assert not wrong


@pytest.mark.parametrize(("package", "order"), ROOMS, ids=PACKAGES)
def test_every_folder_is_a_room_that_says_what_it_is_for(package: str, order: str) -> None:
    floors = floors_of(order)
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    rooms = {".".join(folder.relative_to(ROOT / package).parts): folder for folder in folders - {ROOT / package}}
    groups = {room.rpartition(".")[0] for room in rooms} - {""}
    assert set(rooms) - groups <= set(floors), "a folder without a place in ROOMS"
    for folder in folders:
        first, *others = nodes_in(folder / "__init__.py").tree.body
        assert isinstance(first, ast.Expr), folder
        assert not others or name_of(folder / "__init__.py") in HANDS_ON, f"{folder}: a room's face imports nothing"


def test_a_folder_is_seen_at_a_glance() -> None:
    modules = Counter(name_of(path.parent) for path in SOURCES if path.stem != "__init__")
    assert not {folder: count for folder, count in modules.items() if count > MODULES_MAX}


def test_tests_lie_in_the_rooms_of_what_they_test() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in TESTS}
    mirrors = [folder for folder in folders if folder.parts and folder.parts[0] in PACKAGES]
    assert not [str(folder) for folder in mirrors if not (ROOT / folder).is_dir()]


def test_protocol_does_no_input_or_output() -> None:
    wrong = []
    for path in sorted((ROOT / "engine" / "protocol").rglob("*.py")):
        for name in imports_of(path):
            ours = name.partition(".")[0] in PACKAGES
            allowed = not ours or name.startswith(PROTOCOL_MAY_IMPORT)
            allowed |= path.stem.endswith("_kernel") and name.startswith(PROTOCOL_KERNELS_MAY_IMPORT)
            if not allowed or name.partition(".")[0] in PROTOCOL_MAY_NOT_IMPORT:
                wrong.append(f"{name_of(path)} imports {name}")
    assert not wrong


def test_a_module_says_what_it_is() -> None:
    texts = {path: ast.get_docstring(nodes_in(path).tree) or "" for path in [*MODULES, *TESTS]}
    sentence = (".", ":", "?")
    wrong = [path for path, text in texts.items() if not text.partition("\n")[0].rstrip().endswith(sentence)]
    assert not wrong, "the first line of a docstring is a sentence"


def test_a_function_fits_on_a_screen() -> None:
    wrong = []
    for path in [*MODULES, *TESTS]:
        for node in nodes_in(path).of(ast.FunctionDef, ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
            if lines > FUNCTION_LINES_MAX:
                wrong.append(f"{name_of(path)}:{node.lineno}: {node.name} has {lines} lines")
    assert not wrong


def test_functions_take_few_arguments() -> None:
    wrong, seen = [], set()
    for path in SOURCES:
        for node in nodes_in(path).of(ast.FunctionDef, ast.AsyncFunctionDef):
            given, name = node.args, f"{path.stem}.{node.name}"
            named = [one.arg for one in (*given.posonlyargs, *given.args)]
            count = len(named) + len(given.kwonlyargs) - (named[:1] in (["self"], ["cls"]))
            if count + (given.vararg is not None) + (given.kwarg is not None) <= ARGUMENTS_MAX:
                continue
            seen.add(name)
            if name not in MANY_ARGUMENTS:
                wrong.append(f"{name_of(path)}:{node.lineno}: {node.name} takes {count} arguments")
    assert not wrong
    assert seen == MANY_ARGUMENTS, "a name that stands here in vain"


def test_every_module_is_imported_or_run() -> None:
    imported = {name for path in MODULES for name in imports_of(path)}
    dead = []
    for path in MODULES:
        module = name_of(path).removesuffix(".py").replace("/", ".")
        used = any(name == module or name.startswith(module + ".") for name in imported)
        if not used and not ENTRIES.fullmatch(name_of(path)):
            dead.append(name_of(path))
    assert not dead


ARCHITECTURE_BYTES_MAX = 13_000
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(path for part in ("docs", "tests", *PACKAGES) for path in (ROOT / part).rglob("*.md")),
]
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NAMED_IN_BACKTICKS = re.compile(rf"`((?:(?:{'|'.join(PACKAGES)}|tests|docs)/[\w./-]+|[\w./-]+\.(?:py|md))(?:::\w+)?)`")
NAMED_IN_DOCSTRING = re.compile(rf"\b((?:(?:{'|'.join(PACKAGES)}|tests|docs)/[\w./-]+|[\w/-]*)\w\.(?:py|md))\b")
OTHER_FILES = {"X_kernel.py"}  # a form of name


@cache
def tree_names() -> frozenset[str]:
    """Every path of the tree, and every shorter end of it."""
    parts = [path.relative_to(ROOT).parts for path in [*MODULES, *TESTS, *DOCUMENTS]]
    return frozenset("/".join(part[start:]) for part in parts for start in range(len(part)))


def is_there(name: str) -> bool:
    return (ROOT / name).exists() or name in tree_names() | OTHER_FILES


def test_documents_name_files_that_are_there() -> None:
    wrong = []
    for document in DOCUMENTS:
        names = NAMED_IN_BACKTICKS.findall(BLOCK.sub("", document.read_text()))
        wrong += [f"{name_of(document)}: {name}" for name in names if not is_there(name.partition("::")[0])]
    assert not wrong


def test_docstrings_name_files_that_are_there() -> None:
    wrong = []
    for path in [*MODULES, *TESTS]:
        for node in nodes_in(path).of(ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
            names = NAMED_IN_DOCSTRING.findall(ast.get_docstring(node) or "")
            wrong += [f"{name_of(path)}: {name}" for name in names if not is_there(name)]
    assert not wrong


def test_the_architecture_is_read_at_one_sitting() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= ARCHITECTURE_BYTES_MAX


def test_shared_memory_is_never_packed_into() -> None:
    assert not [name_of(path) for path in (ROOT / "ipc").rglob("*.py") if any("pack_into" in c for c, _ in calls(path))]


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    sleeping = {"time.sleep", "sleep", "asyncio.sleep"}
    assert not [f"{name_of(path)}:{line}" for path in TESTS for call, line in calls(path) if call in sleeping]


def test_nobody_waits_for_descriptors_by_a_call_that_refuses_high_numbers() -> None:
    everything = [*SOURCES, *TESTS]
    assert not [f"{name_of(path)}:{line}" for path in everything for c, line in calls(path) if c == "select.select"]


NAMING = (
    ast.Name, ast.Attribute, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias, ast.ExceptHandler,
)  # fmt: skip


def given_names(nodes: Nodes) -> Iterator[tuple[int, str]]:
    """(line, name) of all that a module names: aliases, classes, functions, parameters, variables."""
    for node in nodes.of(*NAMING):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name


def test_a_name_says_what_a_thing_is() -> None:
    wrong = [
        f"{name_of(path)}:{line}: {name}"
        for path in [*SOURCES, *(ROOT / "tests" / "harness").rglob("*.py")]
        for line, name in given_names(nodes_in(path))
        if name in NAMELESS
    ]
    assert not wrong
    for text in ("found = 1", "def f(told): pass", "self._told = 1", "[found for found in x]", "import a as found"):
        assert any(name in NAMELESS for _line, name in given_names(nodes_of(text))), text


VERSIONED = (ast.Name, ast.arg, ast.Attribute, ast.FunctionDef, ast.keyword, ast.Constant)


def asks_for_a_version(node: ast.AST) -> bool:
    """A release line by its name or a variable of that meaning: what differs is a field of `Line`."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name):
            return bool(VERSION_NAMES.search(name))
        case ast.keyword(arg=str(name)):
            return bool(VERSION_NAMES.search(name))
        case ast.Constant(value=str(text)):
            return text in VERSIONS
    return False


def test_only_one_table_knows_the_release_lines() -> None:
    others = [path for path in SOURCES if not name_of(path).startswith(("store/compat.py", "tools/dev/bench/"))]
    wrong = [
        f"{name_of(path)}:{getattr(node, 'lineno', '?')}"
        for path in others
        for node in nodes_in(path).of(*VERSIONED)
        if asks_for_a_version(node)
    ]
    assert not wrong
    table = nodes_in(ROOT / "store" / "compat.py")
    assert {found.value for found in table.of(ast.Constant)} >= set(VERSIONS)
    for text in ("if five: pass", "compat == '5'", "f(is_five=1)", "def of_4_9(): pass", "{'4.9': 407}"):
        assert any(map(asks_for_a_version, nodes_of(text).of(*VERSIONED))), text


def literals_of(nodes: Nodes) -> Iterator[tuple[int, str, bool]]:
    """(line, text, whether a path is made of it) of every text and bytes literal that is no docstring."""
    prose = {node.value for node in nodes.of(ast.Expr)}
    divisions = [node for node in nodes.of(ast.BinOp) if isinstance(node.op, ast.Div)]
    in_paths: set[ast.AST] = {side for node in divisions for side in (node.left, node.right)}
    for node in nodes.of(ast.Call):
        if spelled(node.func).rpartition(".")[2] in PATH_CALLS:
            in_paths.update(node.args)
    for node in nodes.of(ast.Constant):
        if node not in prose and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield node.lineno, text, node in in_paths


def spelled_file_names(nodes: Nodes) -> list[int]:
    """Lines that spell the name of a file or a directory of a store; a word that means more only as part of a path."""
    return [
        line
        for line, text, in_path in literals_of(nodes)
        if not FILE_NAMES.isdisjoint(text.split("/")) and (in_path or "/" in text or text not in WORDS)
    ]


def spelled_properties(nodes: Nodes) -> list[tuple[int, str]]:
    """Lines that spell a property's name, alone or within a property string."""
    known = {properties.INNER_PREFIX, *properties.RESERVED_NAMES}
    return [
        (line, name)
        for line, text, _in_path in literals_of(nodes)
        for name in re.split("[\1\2]", text)
        if name in known
    ]


def test_a_file_of_a_store_is_named_once() -> None:
    others = [path for path in SOURCES if name_of(path) != NAMES_STAND_IN]
    assert not [f"{name_of(path)}:{line}" for path in others for line in spelled_file_names(nodes_in(path))]
    for text in ("root / 'index'", "Path(root, 'config')", "f('consumequeue')", "r / 'config/x'", "x = 'topics.json'"):
        assert spelled_file_names(nodes_of(text)), text
    for text in ("log('index')", "x = 'the checkpoint is old'", "f('to slipstream.leases')"):
        assert not spelled_file_names(nodes_of(text)), text


def test_a_property_is_named_once() -> None:
    others = [path for path in SOURCES if name_of(path) != PROPERTIES_STAND_IN]
    wrong = [(name_of(path), line, name) for path in others for line, name in spelled_properties(nodes_in(path))]
    assert not [each for each in wrong if (each[0], each[2]) != TOPIC_TYPES]
    for text in ("f(b'__CRC32#\\1')", "{'KEYS': 1}", "x = 'a\\1b\\2INNER_NUM\\x011'", "f('INNER_')"):
        assert spelled_properties(nodes_of(text)), text


def test_words_of_arrays_are_members_of_enumerations() -> None:
    """No constants of a module, and no bare numbers in kernels, which the interpreter hands no members but numbers."""
    modules = {name_of(path).removesuffix(".py").replace("/", "."): nodes_in(path) for path in SOURCES}
    assert not [f"{module}:{node.lineno}: {ast.unparse(node)}" for module, node in words_of_arrays.faults(modules)]


def test_no_error_passes_in_silence() -> None:
    wrong = []
    for path in [*MODULES, *TESTS]:
        for node in nodes_in(path).of(ast.ExceptHandler):
            silent = all(isinstance(statement, ast.Pass) for statement in node.body)
            if node.type is None or (silent and ast.unparse(node.type) in ("Exception", "BaseException")):
                wrong.append(f"{name_of(path)}:{node.lineno}")
    assert not wrong


def test_nothing_is_left_for_later() -> None:
    wrong = []
    for path in MODULES:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if UNFINISHED.search(line):
                wrong.append(f"{name_of(path)}:{number}: {line.strip()}")
    assert not wrong


def test_nothing_is_written_twice() -> None:
    """No six equal lines in two places. Imports, blank lines and where a statement is wrapped do not count."""
    seen: dict[tuple[str, ...], str] = {}
    wrong = []
    for path in SOURCES:
        lines = list(filled_lines(path))
        for start in range(len(lines) - EQUAL_LINES_MAX + 1):
            window = tuple(line for _number, line in lines[start : start + EQUAL_LINES_MAX])
            where = f"{name_of(path)}:{lines[start][0]}"
            if window in seen:
                wrong.append(f"{where} and {seen[window]}")
            seen.setdefault(window, where)
    assert not wrong


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of a source's lines, each statement that is wrapped filled up to LINE_LENGTH."""
    imports = {node.lineno for node in nodes_in(path).of(ast.Import, ast.ImportFrom)}
    words: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.string.strip():
            words += [(token.start[0], word) for word in token.string.split()]
        if token.type in (tokenize.NEWLINE, tokenize.COMMENT) and words:
            if words[0][0] not in imports:
                text = " ".join(word for _number, word in words)
                lines = [text] if len(text) <= LINE_LENGTH else textwrap.wrap(text, LINE_LENGTH)
                yield from ((words[0][0], line) for line in lines)
            words = []


def test_the_lock_names_versions_only() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert not [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+", line)]


def test_contributing_names_every_make_target() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets is not None
    commands = "setup run quick test peers lint bench fuzz simulate reads interop differential fastjson kills"
    commands += (
        " lake-kills drill promotion history queues peer-suite histories python-histories spark-versions screenshots"
    )
    commands += " image-check unit-check wheel-pythons wheel-arm wheel cluster-demo yarn site man clean"
    assert targets[1].split() == commands.split()
    named = set(re.findall(r"^\| `make ([a-z-]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert named == set(targets[1].split())
