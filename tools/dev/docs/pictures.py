"""The pictures that explain, in the house style: `python -m tools.dev.docs.pictures` writes docs/pictures/*.svg."""

from __future__ import annotations

from collections.abc import Callable

from store.names import COMMIT_LOG
from tools.dev.docs.drawing import Picture
from tools.dev.docs.places import ROOT

FOLDER = ROOT / "docs" / "pictures"


def message() -> Picture:
    """The way of a message."""
    of = Picture(
        "The way of a message",
        "A producer encodes a record into its ring; the writer copies it into the mapped segment and publishes the"
        " log's end. Flusher, dispatcher and senders follow it: to disk, to queues and index, and by sendfile to the"
        " slave, whose report comes back as the confirmed offset. Consumers and Spark read the same bytes in place.",
        960,
        520,
    )
    of.text(24, 34, "On the master's host", "head")
    of.box(24, 54, 150, 56, ["Producer", "Python, same host"])
    of.box(24, 134, 150, 56, ["Front", "clients over TCP"])
    of.text(200, 66, "rings, one a producer", "small")
    for row, filled in ((72, (2, 3, 4)), (152, (1, 2))):
        of.cells(200, row, 22, [(20, "", "data" if cell in filled else "free") for cell in range(6)])
        of.arrow((174, row + 11), (198, row + 11), kind="data")
        of.arrow((320, row + 11), (364, 122), kind="data")
    of.box(366, 96, 110, 52, ["Writer", "one, compiled"], "ours")
    of.arrow((476, 122), (594, 122), (594, 226), kind="data")
    of.text(602, 170, "copied once", "small hot")
    of.text(24, 250, "segment, a mapped file", "small")
    widths = (70, 52, 84, 60, 74, 66, 48, 76)
    kinds = ("done",) * 4 + ("data",) * 4
    end = of.cells(190, 228, 38, [(width, "", kind) for width, kind in zip(widths, kinds, strict=True)])
    of.cells(end, 228, 38, [(210, "reserved, not yet written", "free")])
    of.flag(456, 214, 280, "flushed_offset", "middle", "good")
    of.flag(end, 214, 280, "max_physical_offset", "middle")
    _who_follows(of)
    return of


def _who_follows(of: Picture) -> None:
    workers = ((24, "Flusher", "fdatasync"), (190, "Dispatcher", "reads each record"), (360, "Sender", "sendfile"))
    for left, name, what in workers:
        of.box(left, 322, 140, 52, [name, what], "ours")
    of.box(530, 322, 150, 52, ["Pulls, by sendfile", "held until there is more"])
    of.box(700, 322, 230, 52, ["Spark, open_store()", "map the same file, read in place"])
    of.arrow((94, 320), (94, 292), (206, 292), (206, 270), kind="follow")
    for x in (260, 430, 605, 715):
        of.arrow((x, 320), (x, 270), kind="follow")
    of.box(24, 424, 140, 56, ["Disk", "and the checkpoint"])
    of.box(190, 424, 140, 56, ["Queues, index", "built from the log"])
    of.box(360, 412, 320, 84)
    of.text(502, 434, "Slave: the same files", "head")
    of.box(372, 444, 116, 40, ["Receiver"], "ours")
    of.cells(520, 448, 32, [(34, "", "done"), (34, "", "done"), (34, "", "data"), (34, "", "free")])
    of.arrow((488, 464), (518, 464), kind="data")
    of.arrow((94, 374), (94, 422), kind="data")
    of.arrow((260, 374), (260, 422), kind="data")
    of.arrow((430, 374), (430, 442), kind="data")
    of.arrow((680, 452), (720, 452), (720, 436), kind="plain")
    of.box(700, 394, 230, 40, ["report → confirm_offset"], "ours")
    of.arrow((930, 414), (944, 414), (944, 40), (99, 40), (99, 52), kind="follow")
    of.text(936, 32, "PUT_OK, once flushed_offset or confirm_offset has passed the message", "small edge", "end")
    of.text(700, 474, "thick: bytes move", "small hot")
    of.text(700, 492, "dashed: a position is followed", "small edge")


def segment() -> Picture:
    """Draw the bytes of a segment."""
    of = Picture(
        "The bytes of a segment",
        "A segment is a file named for the log offset of its first byte. Records follow each other; where the next one"
        " does not fit, a blank record of length and magic number stands for the rest. A record begins with its length,"
        " magic number and CRC, and names its own physical offset.",
        960,
        430,
    )
    of.text(24, 36, f"{COMMIT_LOG}/00000000000067108864", "code")
    of.text(936, 36, "64 MiB (mappedFileSizeCommitLog); the name is the first byte's offset in the log", "small", "end")
    cells = [(130, "record", "data"), (190, "record", "data"), (110, "record", "data")]
    x = of.cells(24, 70, 46, cells)
    x = of.cells(x, 70, 46, [(60, "…", "free"), (170, "record", "data")])
    x = of.cells(x, 70, 46, [(82, "blank", "ours"), (170, "not used", "free")])
    for at, words, anchor in (
        (24, "67,108,864", "start"), (154, "+ 312", "middle"), (344, "+ 1,020", "middle"),
        (684, "134,217,311", "middle"), (936, "134,217,728", "end"),
    ):  # fmt: skip
        of.text(at, 134, words, "code", anchor)
    of.text(936, 56, "the next record does not fit: it begins the next file", "small", "end")
    of.line((154, 142), (154, 158), (24, 182), (24, 204))
    of.line((344, 142), (344, 158), (936, 182), (936, 204))
    of.text(200, 192, "one record, 708 bytes", "head")
    fields = (
        (58, "length", "0", ""), (58, "magic", "4", "ours"), (58, "CRC", "8", ""), (58, "queue", "12", ""),
        (50, "flag", "16", ""),
        (98, "queue offset", "20", ""), (112, "physical offset", "28", "ours"), (150, "flags, times, hosts", "36", ""),
        (150, "body", "84", "data"), (56, "topic", "88+b", ""), (64, "prop.", "", ""),
    )  # fmt: skip
    x = 24.0
    for width, name, offset, kind in fields:
        of.box(x, 206, width, 44, [], kind, 0)
        of.text(x + width / 2, 233, name, "small" if width < 100 else "", "middle")
        of.text(x + 2, 266, offset, "code")
        x += width
    of.text(
        24,
        304,
        "It is a record only if its lengths add up and it names its own place: bytes in a body that look like",
    )
    of.text(
        24,
        324,
        "one are none. The magic number, 0xDAA320A7, is written last: until then nobody takes the bytes for a record.",
    )
    of.text(24, 360, "the blank", "head")
    of.cells(24, 372, 34, [(150, "length of the rest", ""), (150, "magic 0xCBD43194", "ours")])
    of.text(340, 394, "8 bytes; behind them nothing counts. A record always leaves room for one.", "small")
    return of


def ring() -> Picture:
    """Return how a ring's records become the log's."""
    of = Picture(
        "How a ring is committed",
        "Four steps. The producer encodes beyond the published tail and publishes. The writer copies beyond the log's"
        " end, where nobody looks. It writes one commit record with all new positions beside the current one. It stores"
        " the version, one word: that is the commit. Killed before, nothing happened; killed after, it is repeated.",
        960,
        512,
    )
    steps = (
        ("1  The producer encodes, then publishes", "ring", 3, "tail"),
        ("2  The writer copies beyond the log's end", "log", 0, ""),
        ("3  It notes what changes, beside what counts", "journal", 0, ""),
        ("4  One word makes the note count", "version", 0, ""),
    )
    for number, (title, what, _cells, _flag) in enumerate(steps):
        left, top = 24 + 468 * (number % 2), 24 + 216 * (number // 2)
        of.box(left, top, 444, 196, [], "", 10)
        of.text(left + 16, top + 28, title, "head")
        STEPS[what](of, left + 16, top)
    of.text(
        24,
        474,
        "Killed before step 4: the bytes lie where nobody reads; the records, still in their ring, are copied again.",
    )
    of.text(24, 494, "Killed after it: the next writer begins by repeating the last commit, which may be done twice.")
    return of


def _ring_step(of: Picture, x: float, y: float) -> None:
    of.cells(
        x, y + 78, 34, [(52, "", kind) for kind in ("free", "data", "data", "data", "data", "free", "free", "free")]
    )
    of.flag(x + 52, y + 66, y + 122, "head: taken", "middle", "good")
    of.flag(x + 260, y + 66, y + 122, "tail: published", "middle", "hot")
    of.text(x, y + 146, "Encoded in its final bytes, body's CRC and all; then the tail", "small")
    of.text(x, y + 163, "moves. A producer that dies half-way harms its own ring only.", "small")


def _log_step(of: Picture, x: float, y: float) -> None:
    done, data = [(90, "", "done"), (60, "", "done"), (70, "", "done")], [(60, "", "data"), (60, "", "data")]
    of.cells(x, y + 78, 34, [*done, *data, (72, "", "free")])
    of.flag(x + 220, y + 66, y + 122, "max_physical_offset", "middle")
    of.text(x, y + 146, "It fills in queue offset, physical offset, time and host, and", "small")
    of.text(x, y + 163, "the magic number last. Nobody reads above the published end.", "small")


def _journal_step(of: Picture, x: float, y: float) -> None:
    of.box(x, y + 52, 150, 66, ["commit record 0", "end, heads, queues"], "done")
    of.box(x + 262, y + 52, 150, 66, ["commit record 1", "the new positions"], "data")
    of.text(x + 206, y + 82, "version", "code", "middle")
    of.text(x + 206, y + 100, "42", "code", "middle")
    of.arrow((x + 184, y + 96), (x + 154, y + 96))
    of.text(x, y + 146, "Log end, ring heads, queue offsets and tallies of the batch,", "small")
    of.text(x, y + 163, "in the record that does not count now.", "small")


def _version_step(of: Picture, x: float, y: float) -> None:
    of.box(x, y + 52, 150, 66, ["commit record 0", "what was before"], "free")
    of.box(x + 262, y + 52, 150, 66, ["commit record 1", "end, heads, queues"], "done")
    of.text(x + 206, y + 82, "version", "code", "middle")
    of.text(x + 206, y + 100, "43", "code hot", "middle")
    of.arrow((x + 228, y + 96), (x + 258, y + 96), kind="data")
    of.text(x, y + 146, "Then it publishes: ring heads, queue offsets, and last", "small")
    of.text(x, y + 163, "max_physical_offset. Everybody who waits for it wakes.", "small")


STEPS: dict[str, Callable[[Picture, float, float], None]] = {
    "ring": _ring_step,
    "log": _log_step,
    "journal": _journal_step,
    "version": _version_step,
}


def recovery() -> Picture:
    """Return what a start decides about the log's end: `store.recovery.recovery.judge`."""
    of = Picture(
        "What recovery decides",
        "Records are walked up to the last sound one. If more of the log was on disk, it is bit rot and nothing is"
        " changed. So it is if a sound record lies behind it, unless a power cut or a copy may have kept some pages and"
        " lost others: then the log is cut at its first hole. Without one, zeros are the log's end, anything else is a"
        " torn tail that is cut.",
        960,
        540,
    )
    of.box(24, 62, 220, 62, ["Walk the records", "up to the last sound one"], "ours")
    of.diamond(400, 93, 240, 96, ["Was more of the", "log on disk?"])
    of.arrow((244, 93), (278, 93))
    of.box(680, 57, 256, 72, ["ROT", "BIT_ROT is raised, nothing changed:", "a replica has these records"], "wrong")
    of.arrow((520, 93), (678, 93))
    of.text(532, 84, "yes", "edge")
    of.diamond(400, 237, 240, 96, ["A sound record", "further behind?"])
    of.arrow((400, 141), (400, 187))
    of.text(408, 168, "no", "edge")
    of.diamond(808, 237, 240, 96, ["After a power cut,", "or is it a copy?"])
    of.arrow((520, 237), (686, 237))
    of.text(532, 228, "yes", "edge")
    of.arrow((808, 189), (808, 131))
    of.text(816, 166, "no", "edge")
    _ends(of)
    return of


def _ends(of: Picture) -> None:
    of.diamond(400, 381, 240, 96, ["Only zeros", "behind?"])
    of.arrow((400, 285), (400, 331))
    of.text(408, 312, "no", "edge")
    of.box(24, 350, 200, 62, ["END", "nothing to do"], "done")
    of.arrow((280, 381), (226, 381))
    of.text(244, 372, "yes", "edge")
    of.box(600, 350, 336, 62, ["TORN", "cut there, and zeroed on disk"], "data")
    of.arrow((520, 381), (598, 381))
    of.text(532, 372, "no", "edge")
    of.arrow((808, 285), (808, 348))
    of.text(800, 320, "yes: at the first hole", "edge", "end")
    for number, line in enumerate(
        (
            "On disk for sure is what the checkpoint and slipstream.mark say. Within one boot the page cache keeps all",
            "that processes wrote, in its order, however they were killed; a power cut keeps any pages, in none.",
            "Queues and index are then cut to that end, or built up to it: the log alone decides.",
        )
    ):
        of.text(24, 468 + 20 * number, line)


PICTURES: dict[str, Callable[[], Picture]] = {
    "message": message,
    "segment": segment,
    "ring": ring,
    "recovery": recovery,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg())
