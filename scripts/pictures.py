"""Draws the pictures of README.md and docs/concepts.md. The same code draws the same bytes, so a test can
compare them.

python scripts/pictures.py        writes docs/pictures/*.svg
"""

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"

INK, QUIET, PAPER, LINE = "#1f2937", "#6b7280", "#ffffff", "#9ca3af"
RANKS = ("#bfdbfe", "#fde68a", "#bbf7d0", "#fbcfe8")  # a colour for each rank
SHARED = "#ddd6fe"  # what all ranks do together


class Drawing:
    """Shapes of an SVG. Coordinates are pixels; a place is that of the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = (width, height)
        self.title = title
        self.shapes: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, text: str = "", fill: str = PAPER) -> None:
        """A box with lines of text in its middle."""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" fill="{fill}" stroke="{LINE}"/>'
        )
        lines = text.split("\n") if text else []
        for number, line in enumerate(lines):
            self.text(x + w / 2, y + h / 2 + 5 + 17 * (number - (len(lines) - 1) / 2), line)

    def outline(self, x: float, y: float, w: float, h: float, stroke: str) -> None:
        """A frame around other shapes."""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="22" fill="none" '
            f'stroke="{stroke}" stroke-width="3"/>'
        )

    def text(self, x: float, y: float, text: str, anchor: str = "middle", fill: str = INK) -> None:
        """One line; ``anchor`` says whether x is its start, middle or end."""
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A line with a head at its end."""
        self.shapes.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{QUIET}" stroke-width="1.5" '
            'marker-end="url(#head)"/>'
        )

    def number(self, x: float, y: float, number: int) -> None:
        """A step that the page explains."""
        self.shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="11" fill="{INK}"/>')
        self.text(x, y + 5, str(number), fill=PAPER)

    def svg(self) -> str:
        """The file. It has a paper of its own, so it can be read on a dark page."""
        width, height = self.size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="14" role="img">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{QUIET}"/></marker></defs>'
        )
        paper = f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>'
        title = f"<title>{escape(self.title)}</title>"
        return "\n".join([head, title, marker, paper, *self.shapes, "</svg>", ""])


def data() -> Drawing:
    """Data parallelism: four parts, four ranks, one average."""
    d = Drawing(760, 400, "Each rank trains on its own part of the data; the gradients are averaged")
    left, width = 130, 140
    for y, label in ((47, "your data"), (147, "backward"), (247, "allreduce"), (347, "step")):
        d.text(16, y, label, "start", QUIET)
    for rank, colour in enumerate(RANKS):
        x = left + 155 * rank
        middle = x + width / 2
        d.box(x, 20, width, 44, f"part {rank}", colour)
        d.arrow(middle, 66, middle, 106)
        d.box(x, 110, width, 64, f"rank {rank}\nits own gradients", colour)
        d.arrow(middle, 176, middle, 216)
        d.arrow(middle, 266, middle, 306)
        d.box(x, 310, width, 64, f"rank {rank}\nthe same model", colour)
    d.box(left, 220, 605, 44, "the average of all gradients, the same bits on every rank", SHARED)
    return d


def tensor() -> Drawing:
    """The way of three gradients through a backward pass of two ranks; time goes to the right."""
    d = Drawing(760, 330, "Gradients travel while backward computes the next ones")
    for y, label in ((58, "rank 0"), (118, "rank 1"), (188, "order"), (250, "transfer")):
        d.text(16, y, label, "start", QUIET)
    lanes = ((36, RANKS[0], (90, 190, 290)), (96, RANKS[1], (90, 220, 330)))
    for y, colour, starts in lanes:
        ends = (*starts[1:], starts[-1] + 100)
        for layer, start, end in zip((3, 2, 1), starts, ends, strict=True):
            d.box(start, y, end - start - 4, 36, f"layer {layer}", colour)
        d.box(620, y, 118, 36, "step", colour)
    for x, layer in ((220, 3), (330, 2), (430, 1)):  # rank 1 is the later one
        d.arrow(x - 4, 134, x - 4, 162)
        d.box(x - 34, 166, 60, 36, f"layer {layer}", SHARED)
    d.box(230, 228, 150, 36, "layer 3", SHARED)
    d.box(400, 228, 190, 36, "layers 2 and 1", SHARED)
    d.arrow(222, 204, 236, 224)
    d.arrow(336, 204, 410, 224)
    d.arrow(436, 204, 450, 224)
    d.arrow(592, 238, 640, 136)
    d.arrow(592, 234, 632, 76)
    for x, y, number in ((190, 30, 1), (254, 166, 2), (400, 264, 3), (590, 264, 4), (738, 36, 5)):
        d.number(x, y, number)
    d.text(90, 24, "backward", "start", QUIET)
    d.arrow(90, 300, 738, 300)
    d.text(414, 320, "time", fill=QUIET)
    return d


def sets() -> Drawing:
    """Four ranks in two rows and two columns."""
    d = Drawing(560, 300, "Two process sets for rows, two for columns: every rank is in two sets")
    row, column = "#2563eb", "#d97706"
    for i in range(2):
        d.outline(170, 62 + 110 * i, 320, 84, row)
        d.text(158, 109 + 110 * i, f"rows[{i}]", "end", row)
        d.outline(190 + 150 * i, 42, 130, 234, column)
        d.text(255 + 150 * i, 30, f"columns[{i}]", fill=column)
    for rank, colour in enumerate(RANKS):
        d.box(210 + 150 * (rank % 2), 80 + 110 * (rank // 2), 90, 48, f"rank {rank}", colour)
    return d


# Rows of the table in docs/torch_distributed_reference.md: what, its times with hvd and gloo, gloo / hvd.
SPEED = (
    ("allreduce, 4 B", "5.51 us", "87.4 us", "15.9"),
    ("allreduce, 1 MiB", "45.8 us", "226 us", "4.9"),
    ("allreduce, 16 MiB", "878 us", "5.75 ms", "6.5"),
    ("training step, MLP", "47.7 ms", "69.7 ms", "1.46"),
    ("training step, CNN", "146 ms", "167 ms", "1.14"),
    ("training step, transformer", "377 ms", "400 ms", "1.06"),
    ("the same with FSDP2", "426 ms", "536 ms", "1.25"),
)


def seconds(time: str) -> float:
    number, unit = time.split()
    return float(number) * {"us": 1e-6, "ms": 1e-3}[unit]


def speed() -> Drawing:
    """Times beside those of gloo, whose bar is as long in every row."""
    d = Drawing(640, 50 + 30 * len(SPEED), "Times with horovod and with gloo, two ranks on two cores")
    left, width = 258, 290
    d.text(16, 24, "times as fast", "start", QUIET)
    d.text(left + 8, 24, "horovod", "start", "#2563eb")
    d.text(left + width + 8, 24, "gloo", "start", QUIET)
    for row, (label, own, gloo, ratio) in enumerate(SPEED):
        y = 36 + 30 * row
        d.text(58, y + 17, ratio, "end")
        d.text(70, y + 17, label, "start")
        d.box(left, y, width, 24, fill="#e5e7eb")
        d.box(left, y, width * seconds(own) / seconds(gloo), 24, fill="#93c5fd")
        d.text(left + 8, y + 17, own.replace("us", "µs"), "start")
        d.text(left + width + 8, y + 17, gloo.replace("us", "µs"), "start", QUIET)
    return d


# What a terminal showed: seconds since the training began, and some of the lines.
RECOVERY = (
    ("", "$ horovodrun -np 3 --min-np 1 --spares 1 --chaos kill:every=10s python examples/torch_elastic.py"),
    ("0.0", "[0]<stdout>:rank 0 of 3, pid 32272: epoch 0"),
    ("", "..."),
    ("7.0", "[0]<stdout>:epoch 6: accuracy 89.7%"),
    ("7.0", "horovodrun: --chaos: SIGKILL to rank 1"),
    ("7.2", "horovodrun: rank 1 (localhost) was killed by SIGKILL"),
    ("7.2", "horovodrun: generation 2: 3 ranks, of which rank 1 is new"),
    ("7.6", "[0]<stdout>:rank 0 of 3, pid 32272: epoch 6"),
    ("7.6", "[1]<stdout>:rank 1 of 3, pid 32295: epoch 6"),
    ("8.8", "[0]<stdout>:epoch 7: accuracy 91.9%"),
    ("", "..."),
    ("67.6", "[0]<stdout>:95.5% of the test images are recognised"),
    ("67.6", "[0]<stdout>:9 generations; the changes took 3.4 s, from commit to next step"),
    ("76.3", "horovodrun: --chaos: 6 faults in all"),
)
SHADES = (("$", "#93c5fd"), ("horovodrun: --chaos", "#fca5a5"), ("horovodrun:", "#fde68a"))


class Terminal(Drawing):
    """Lines of text, each behind its time."""

    def __init__(self, lines: Sequence[tuple[str, str]], title: str) -> None:
        super().__init__(24 + max(48 + 8 * len(text) for _, text in lines), 24 + 19 * len(lines), title)
        self._lines = lines

    def svg(self) -> str:
        """The file, dark as a terminal."""
        width, height = self.size
        shapes = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="Menlo, Consolas, monospace" font-size="13" role="img">',
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{width}" height="{height}" rx="10" fill="#111827"/>',
        ]
        for row, (time, text) in enumerate(self._lines):
            y = 26 + 19 * row
            colour = next((shade for begin, shade in SHADES if text.startswith(begin)), "#e5e7eb")
            shapes.append(f'<text x="46" y="{y}" text-anchor="end" fill="#9ca3af">{time}</text>')
            shapes.append(f'<text x="58" y="{y}" fill="{colour}" xml:space="preserve">{escape(text)}</text>')
        return "\n".join([*shapes, "</svg>", ""])


def recovery() -> Drawing:
    """A recording of an elastic job."""
    return Terminal(RECOVERY, "An elastic job loses a process and goes on")


PICTURES = {
    "data.svg": data,
    "tensor.svg": tensor,
    "sets.svg": sets,
    "speed.svg": speed,
    "recovery.svg": recovery,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw().svg(), encoding="utf-8")
    print(f"wrote {', '.join(PICTURES)} in {FOLDER}", file=sys.stderr)


if __name__ == "__main__":
    main()
