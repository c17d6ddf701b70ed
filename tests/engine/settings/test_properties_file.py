"""java.util.Properties, as its own documentation and OpenJDK's loader have it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from engine.settings.properties_file import Entry, MalformedEscape, parse, with_values

# Each: what it shows, the file, the entries (line, key, value).
CASES = [
    ("plain", b"a=1\nb=2\n", [(1, "a", "1"), (2, "b", "2")]),
    ("no newline at the end", b"a=1", [(1, "a", "1")]),
    ("all line ends", b"a=1\r\nb=2\rc=3\n", [(1, "a", "1"), (2, "b", "2"), (3, "c", "3")]),
    ("comments and blank lines", b"# a=1\n! b=2\n \t# c=3\n\n  \nd=4", [(6, "d", "4")]),
    ("a comment sign inside is content", b"a#b=c#d!", [(1, "a#b", "c#d!")]),
    ("colon and space separate", b"a:1\nb 2", [(1, "a", "1"), (2, "b", "2")]),
    ("tab and form feed too", b"c\t3\nd\f4", [(1, "c", "3"), (2, "d", "4")]),
    ("spaces around the separator", b"  a \t = \t 1", [(1, "a", "1")]),
    ("only one separator is dropped", b"a = = 1\nb::2", [(1, "a", "= 1"), (2, "b", ":2")]),
    ("trailing spaces are the value's", b"brokerRole=SLAVE \t\n", [(1, "brokerRole", "SLAVE \t")]),
    ("no value", b"a\nb=\nc ", [(1, "a", ""), (2, "b", ""), (3, "c", "")]),
    ("no key", b"=v", [(1, "", "v")]),
    ("escaped separators belong to the key", rb"a\=b\:c\ d = 1", [(1, "a=b:c d", "1")]),
    ("escapes", rb"k=\t|\n|\r|\f|\\|\a|\"", [(1, "k", '\t|\n|\r|\f|\\|a|"')]),
    ("unicode escapes", rb"k=\u00fc\u4E2D\u0041", [(1, "k", "ü中A")]),
    ("two unicode escapes make one character", rb"k=\ud83d\ude80", [(1, "k", "\U0001f680")]),
    ("bytes are ISO-8859-1", "k=ü".encode("latin-1"), [(1, "k", "ü")]),
    ("a continued line", b"a=1,\\\n   2,\\\r\n\t3\nb=4", [(1, "a", "1,2,3"), (4, "b", "4")]),
    ("a continued key", b"ab\\\n  cd=1", [(1, "abcd", "1")]),
    ("two backslashes do not continue", b"a=1\\\\\nb=2", [(1, "a", "1\\"), (2, "b", "2")]),
    ("three do", b"a=1\\\\\\\n2", [(1, "a", "1\\2")]),
    ("a comment is not continued", b"# a\\\nb=1", [(2, "b", "1")]),
    ("a comment sign on a continuation is content", b"a=1\\\n  #2", [(1, "a", "1#2")]),
    ("a blank continuation ends the line", b"a=1\\\n\nb=2", [(1, "a", "1"), (3, "b", "2")]),
    ("a backslash at the very end is dropped", b"a=1\\", [(1, "a", "1")]),
    ("the same key twice is told twice", b"a=1\na=2", [(1, "a", "1"), (2, "a", "2")]),
]


@pytest.mark.parametrize(("why", "data", "expected"), CASES, ids=[case[0] for case in CASES])
def test_parse(why: str, data: bytes, expected: list[tuple[int, str, str]]) -> None:
    assert list(parse(data)) == [Entry(*entry) for entry in expected], why


@pytest.mark.parametrize("bad", [rb"k=\u12", rb"k=\u12g4", rb"\u=1", rb"k=\u"])
def test_a_short_unicode_escape_is_refused_with_its_line(bad: bytes) -> None:
    with pytest.raises(MalformedEscape) as caught:
        list(parse(b"first=1\n" + bad))
    assert caught.value.line == 2


JAVA_SOURCE = """
import java.io.*; import java.util.*;
public class Load { public static void main(String[] a) throws Exception {
  for (String name : a) { Properties p = new Properties(); p.load(new FileInputStream(name));
    for (String k : new TreeSet<>(p.stringPropertyNames())) System.out.println(hex(k) + "=" + hex(p.getProperty(k)));
    System.out.println("."); } }
  static String hex(String s) { StringBuilder b = new StringBuilder();
    for (char c : s.toCharArray()) b.append(String.format("%04x", (int) c));
    return b.toString(); } }
"""


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK: javac is not on the path")
def test_java_reads_the_same(tmp_path: Path) -> None:
    names = []
    for number, (_why, data, _expected) in enumerate(CASES):
        names.append(str(tmp_path / f"{number}.properties"))
        Path(names[-1]).write_bytes(data)
    source = tmp_path / "Load.java"
    source.write_text(JAVA_SOURCE)
    ran = subprocess.run(["java", str(source), *names], capture_output=True, text=True, timeout=120, check=True)

    def in_hex(text: str) -> str:
        return text.encode("utf-16-be").hex()

    for (why, data, _expected), told in zip(CASES, ran.stdout.split(".\n"), strict=False):
        last = {entry.key: entry.value for entry in parse(data)}
        assert told.splitlines() == sorted(f"{in_hex(key)}={in_hex(value)}" for key, value in last.items()), why


CHANGED = [
    ("its line, all else as it is", b"# mine\r\na = 1 \r\n\r\n\tb:2\r\n", b"# mine\r\na=7\r\n\r\n\tb:2\r\n"),
    ("the last one counts", b"a=1\nb=2\na 3\n#a=4", b"a=1\nb=2\na=7\n#a=4"),
    ("over several lines", b"b=\\\n 2\na=1\\\n  2\\\n\nc=3", b"b=\\\n 2\na=7\nc=3"),
    ("one more at the end", b"b=\xfc", b"b=\xfc\na=7\n"),
    ("behind one that would go on", b"b=2\\", b"b=2\\\n\na=7\n"),
    ("behind a mark", b"\xef\xbb\xbfa=1\rb=2\r", b"\xef\xbb\xbfa=7\rb=2\r"),
    ("escaped", b"\\u0061=1", b"a=7"),
    ("nothing there", b"", b"a=7\n"),
]


@pytest.mark.parametrize(("why", "before", "after"), CHANGED)
def test_a_value_is_changed_in_its_place(why: str, before: bytes, after: bytes) -> None:
    assert with_values(before, {"a": "7"}) == after, why
    values = {entry.key: entry.value for entry in parse(before)}
    assert {entry.key: entry.value for entry in parse(after)} == {**values, "a": "7"}, why
