"""A Dockerfile as instructions in stages, and a .dockerignore: to be carried out without a container engine.

What our own file uses is understood; anything else is refused by name, so that nothing is passed over in silence.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

KNOWN = set("ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK RUN STOPSIGNAL USER VOLUME WORKDIR".split())
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of Debian's images
FLAG = re.compile(r"--([a-z-]+)=(\S+)\s+")


class DockerfileRefused(ValueError):
    """The file says what is not understood here."""


@dataclass(frozen=True)
class Instruction:
    """One, with its flags taken off and its lines joined."""

    line: int
    word: str
    flags: Mapping[str, str]
    rest: str

    def words(self) -> list[str]:
        """Return the arguments, written in either form."""
        return json.loads(self.rest) if self.rest.startswith("[") else shlex.split(self.rest)

    def command(self) -> list[str]:
        """Return what it runs: by itself, or by a shell."""
        return json.loads(self.rest) if self.rest.startswith("[") else ["/bin/sh", "-c", self.rest]


@dataclass(frozen=True)
class Stage:
    """Instructions from one FROM to the next."""

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class Settings:
    """The settings that an image gives its containers."""

    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PLAIN_PATH})
    user: str = "0:0"
    directory: str = "/"
    entry: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    stop_signal: str = "SIGTERM"
    ports: list[int] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    health_times: dict[str, str] = field(default_factory=dict)

    def say(self, instruction: Instruction) -> bool:
        """Take in what an instruction says of containers; False for one that does something to files."""
        known = self.environment
        match instruction.word:
            case "ENV":
                pairs = (word.split("=", 1) for word in instruction.words())
                known |= {name: expanded(value, known) for name, value in pairs}
            case "USER":
                self.user = expanded(instruction.rest, known)
            case "ENTRYPOINT":
                self.entry, self.command = instruction.command(), []
            case "CMD":
                self.command = instruction.command()
            case "STOPSIGNAL":
                self.stop_signal = instruction.rest
            case "EXPOSE":
                self.ports += map(int, instruction.words())
            case "VOLUME":
                self.volumes += instruction.words()
            case "HEALTHCHECK":
                (_cmd, text) = instruction.rest.split(None, 1)
                self.health = json.loads(text) if text.startswith("[") else ["/bin/sh", "-c", text]
                self.health_times = dict(instruction.flags)
            case _:
                return False
        return True


def expanded(text: str, known: Mapping[str, str]) -> str:
    """Replace variables by their values; an unknown one is empty."""
    return VARIABLE.sub(lambda one: known.get(one[1] or one[2], ""), text)


def stages_of(text: str) -> list[Stage]:
    """Parse a Dockerfile into stages. Raises DockerfileRefused."""
    stages: list[Stage] = []
    for instruction in _instructions(text):
        if instruction.word == "FROM":
            match instruction.words():
                case [base, as_word, name] if as_word.upper() == "AS":
                    stages.append(Stage(name, base))
                case words:
                    raise DockerfileRefused(f"line {instruction.line}: FROM {words}: every stage has a name here")
        elif not stages:
            raise DockerfileRefused(f"line {instruction.line}: {instruction.word} before the first FROM")
        else:
            stages[-1].instructions.append(instruction)
    return stages


def chain_of(stages: list[Stage], target: str) -> list[Stage]:
    """The stages that a target is made of by FROM, its base first; what it copies from others is not in it."""
    by_name = {stage.name: stage for stage in stages}
    chain = [by_name[target]]
    while chain[0].base in by_name:
        chain.insert(0, by_name[chain[0].base])
    return chain


def settings_of(stages: list[Stage], target: str) -> Settings:
    """Return what containers of a target are started with."""
    settings = Settings()
    for stage in chain_of(stages, target):
        for instruction in stage.instructions:
            if instruction.word == "WORKDIR":
                settings.directory = str(PurePosixPath(settings.directory) / instruction.rest)
            else:
                settings.say(instruction)
    return settings


def _instructions(text: str) -> Iterator[Instruction]:
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#") or not (line.strip() or parts):
            continue
        begun = number if not parts else begun
        is_open = line.rstrip().endswith("\\")
        parts.append(line.rstrip().removesuffix("\\").strip())
        if not is_open:
            yield _instruction(begun, " ".join(parts))
            parts = []
    if parts:
        raise DockerfileRefused(f"line {begun}: it goes on behind the file's end")


def _instruction(line: int, text: str) -> Instruction:
    word, _blank, rest = text.partition(" ")
    if word not in KNOWN:
        raise DockerfileRefused(f"line {line}: {word} is not understood")
    flags, rest = dict[str, str](), rest.strip()
    while (flag := FLAG.match(rest)) is not None:
        flags[flag[1]] = flag[2]
        rest = rest[flag.end() :]
    return Instruction(line, word, flags, rest)


def kept(paths: Iterable[str], ignore: str) -> list[str]:
    """Return the paths that a .dockerignore leaves: the last line that matches a path or a folder above it decides."""
    lines = [line.strip() for line in ignore.splitlines() if line.strip() and not line.startswith("#")]
    rules = [(line.startswith("!"), _pattern(line.removeprefix("!").strip("/"))) for line in lines]

    def is_kept(path: str) -> bool:
        above = [path, *map(str, PurePosixPath(path).parents)][:-1]
        says = [keeps for keeps, pattern in rules if any(pattern.fullmatch(name) for name in above)]
        return says[-1] if says else True

    return [path for path in paths if is_kept(path)]


def _pattern(text: str) -> re.Pattern[str]:
    """`*` stays within a folder, `**` does not."""
    marks = {"*": "[^/]*", "?": "[^/]"}
    parts = ["".join(marks.get(one, re.escape(one)) for one in part) for part in text.split("/") if part != "**"]
    return re.compile(("(?:.*/)?" if text.startswith("**/") else "") + "/".join(parts), re.DOTALL)
