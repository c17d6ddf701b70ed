"""The part of docs/interop.md that says what clients of both lines see of our broker and of the real ones."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop.clients import (
    CLIENTS,
    REAL_OF,
    SCENES,
    Cell,
    CellResult,
    cells,
    differences,
    other_forms,
    recorded,
    run_cell,
    with_lite_pulls,
)

DIFFERENCE_LENGTH = 160
HEAD = """## Clients

`tests/interop/clients.py` runs RocketMQ's own clients, 4.9.7 and 5.3.3, unmodified, at a Slipstream broker and name
server and at real ones. `tests/interop/java/Scenes.java` plays the same scenes with each and prints what the client
sees: statuses, queues, offsets, messages with all their properties, errors with their words. Moments, hosts and
identities are left out. "equal": line by line what the same client says of the real broker of that line.

"Requests and answers" is the traffic meanwhile, recorded by a proxy. For every answer and every push of the
Slipstream broker, code, remark, fields and their order, flag, version, form of header and fields of the body are
among those that a real broker of that line has given to that request, to either client. Only the values of the fields
that hold moments, hosts and offsets are not compared (`tests/interop/recorder.py` names them).

"""
Results = Mapping[Cell, CellResult]


def run_all(jobs: int, results: Path, scenes: Sequence[str] = SCENES) -> Results:
    """Every cell, unless its result is there already."""

    def one(cell: Cell) -> CellResult:
        path = results / f"client-{cell.name}.json"
        if not path.exists():
            with tempfile.TemporaryDirectory(prefix="clients-") as directory:
                run_cell(Path(directory), cell, scenes).write(path)
        result = CellResult.read(path)
        print(f"{cell.name}: {sum(map(len, result.seen.values()))} lines", flush=True)
        return result

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        return dict(zip(cells(), pool.map(one, cells()), strict=True))


def section(results: Results) -> tuple[str, int]:
    """The section, and how many scenes and codes are not as they should be."""
    columns = [Cell(client, kind) for client in CLIENTS for kind in REAL_OF]
    heads = [f"{cell.client} at {cell.kind}" for cell in columns]
    lines = [f"| scene | {' | '.join(heads)} |", "| --- |" + " --- |" * len(columns)]
    wrong = 0
    verdicts = {cell: _verdicts(results, cell) for cell in columns}
    for scene in SCENES:
        texts = [verdicts[cell][scene] for cell in columns]
        wrong += sum(bool(text) for text in texts)
        lines.append(f"| {scene} | " + " | ".join(_cell(text) for text in texts) + " |")
    forms = []
    for cell in columns:
        others = other_forms(_real(results, cell), results[cell])
        wrong += sum(map(len, others.values()))
        every = sum(map(len, results[cell].forms.values()))
        codes = ", ".join(map(str, sorted(results[cell].forms)))
        forms.append(
            f"- {cell.client} at {cell.kind}: {every - sum(map(len, others.values()))} of {every} forms of"
            f" answers and pushes are a real {REAL_OF[cell.kind]}'s (request codes {codes})."
        )
        forms += [f"  - not a real one's: {text[:400]}" for texts in others.values() for text in texts]
    return HEAD + "\n".join([*lines, "", "Requests and answers:", "", *forms]) + "\n", wrong


def _real(results: Results, cell: Cell) -> CellResult:
    """What its client sees at the real broker of the line; what that says to any client, now and when recorded."""
    real = Cell(cell.client, REAL_OF[cell.kind])
    result = results[real]
    for said in (recorded(real), *(results[real._replace(client=client)] for client in CLIENTS)):
        result = result.joined(said)
    return with_lite_pulls(cell, result)


def _verdicts(results: Results, cell: Cell) -> dict[str, str]:
    real = _real(results, cell)
    return dict.fromkeys(SCENES, "") | differences(real.seen, results[cell].seen)


def _cell(text: str) -> str:
    return f"**other**: {text.replace('|', '/')[:DIFFERENCE_LENGTH]}" if text else "equal"


def main() -> None:
    """Record what real brokers do, where it is not recorded: python -m tests.interop.clients_ledger."""
    with tempfile.TemporaryDirectory(prefix="clients-") as directory:
        for cell in cells():
            if cell.kind not in REAL_OF and not cell.recorded.exists():
                first, second = (run_cell(Path(directory) / f"{cell.name}-{turn}", cell) for turn in range(2))
                unstable = {scene: text for scene, text in differences(first.seen, second.seen).items() if text}
                assert not unstable, f"{cell.name} is not the same twice: {json.dumps(unstable)}"
                first.joined(second).write(cell.recorded)


if __name__ == "__main__":
    main()
