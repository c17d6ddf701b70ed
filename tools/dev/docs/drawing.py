"""The house style of the pictures: boxes, arrows and cells as SVG, with text as text, for light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """
svg {
  --panel: #fbfbf9; --line: #5b6570; --text: #1f262d; --soft: #66707a; --box: #ffffff; --ours: #dfeaf2;
  --edge: #37699c; --data: #f6dfc4; --hot: #c05a12; --done: #cfe5d2; --good: #2f7d45; --bad: #b3261e; --wrong: #f6d5d2;
}
@media (prefers-color-scheme: dark) {
  svg {
    --panel: #1e2226; --line: #98a4af; --text: #e8ecf0; --soft: #a4aeb8; --box: #2a3036; --ours: #22394d;
    --edge: #7fb2e0; --data: #55391c; --hot: #f0a060; --done: #24472f; --good: #7ecb92; --bad: #f2a09a;
    --wrong: #572a28;
  }
}
text { font: 14px "DejaVu Sans", Verdana, system-ui, sans-serif; fill: var(--text); }
.small { font-size: 12px; fill: var(--soft); }
.code { font-family: "DejaVu Sans Mono", ui-monospace, monospace; font-size: 12px; }
.head { font-size: 15px; font-weight: bold; }
.edge { fill: var(--edge); }
.hot { fill: var(--hot); }
.good { fill: var(--good); }
rect, polygon { stroke: var(--line); fill: var(--box); }
.panel { fill: var(--panel); stroke: none; }
.k-ours { fill: var(--ours); stroke: var(--edge); }
.k-data { fill: var(--data); stroke: var(--hot); }
.k-done { fill: var(--done); stroke: var(--good); }
.k-wrong { fill: var(--wrong); stroke: var(--bad); }
.k-free { fill: none; stroke-dasharray: 4 3; }
path { fill: none; stroke: var(--line); stroke-width: 1.6; }
.a-data { stroke: var(--hot); stroke-width: 2.4; }
.a-follow { stroke: var(--edge); stroke-dasharray: 5 4; }
marker path { stroke: none; fill: var(--line); }
#m-data path { fill: var(--hot); stroke-width: 0; }
#m-follow path { fill: var(--edge); }
"""
MARKER = (
    '<marker id="m-{0}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{1}" markerHeight="{1}" orient="auto">'
    '<path d="M0 0 10 5 0 10z" stroke-dasharray="none"/></marker>'
)
LINE_HEIGHT = 18


class Picture:
    """One picture: what it shows is said for who does not see it, too."""

    def __init__(self, title: str, description: str, width: int, height: int) -> None:
        self._title, self._description, self._size = title, description, (width, height)
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """A line of text, its baseline at y."""
        kinds = f' class="{kind}"' if kind else ""
        at = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{kinds}{at}>{escape(words, quote=False)}</text>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        lines: Sequence[str] = (),
        kind: str = "",
        round_: int = 6,
    ) -> None:
        """A box with lines of text in its middle; the second and later ones are small."""
        kinds = f' class="k-{kind}"' if kind else ""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_}"{kinds}/>')
        top = y + height / 2 - (len(lines) - 1) * LINE_HEIGHT / 2 + 5
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + number * LINE_HEIGHT, line, "small" if number else "", "middle")

    def cells(self, x: float, y: float, height: float, cells: Sequence[tuple[float, str, str]]) -> float:
        """(width, text, kind) beside each other; where they end."""
        for width, words, kind in cells:
            self.box(x, y, width, height, [words] if words else [], kind, 0)
            x += width
        return x

    def diamond(self, x: float, y: float, width: float, height: float, lines: Sequence[str]) -> None:
        """A question, x and y its middle."""
        points = f"{x - width / 2:g},{y:g} {x:g},{y - height / 2:g} {x + width / 2:g},{y:g} {x:g},{y + height / 2:g}"
        self._parts.append(f'<polygon points="{points}" class="k-ours"/>')
        top = y - (len(lines) - 1) * LINE_HEIGHT / 2 + 5
        for number, line in enumerate(lines):
            self.text(x, top + number * LINE_HEIGHT, line, "", "middle")

    def arrow(self, *points: tuple[float, float], kind: str = "plain") -> None:
        """Through these points, with a head at the last: `data` moves bytes, `follow` only looks at a position."""
        way = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path d="{way}" class="a-{kind}" marker-end="url(#m-{kind})"/>')

    def line(self, *points: tuple[float, float]) -> None:
        """Through these points, without a head."""
        self._parts.append(f'<path d="{"M" + " L".join(f"{x:g} {y:g}" for x, y in points)}"/>')

    def flag(self, x: float, top: float, bottom: float, words: str, anchor: str = "start", kind: str = "edge") -> None:
        """A position: a thin line with its name on top."""
        self._parts.append(f'<path d="M{x:g} {top:g} L{x:g} {bottom:g}" class="a-follow"/>')
        self.text(
            x + (-4 if anchor == "end" else 4 if anchor == "start" else 0), top - 5, words, f"code {kind}", anchor
        )

    def svg(self) -> str:
        """Return the picture as an SVG file."""
        width, height = self._size
        markers = MARKER.format("plain", 7) + MARKER.format("data", 6) + MARKER.format("follow", 7)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
            f' aria-labelledby="title description">\n<title id="title">{escape(self._title)}</title>\n'
            f'<desc id="description">{escape(self._description)}</desc>\n<style>{STYLE}</style>\n'
            f"<defs>{markers}</defs>\n"
            f'<rect class="panel" width="{width}" height="{height}" rx="12"/>\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"
