"""Make the pictures for README.md and GUIDE.md: screenshots of the demo's page.

    python3 -m tests.builders.make_pictures

No test compares the pictures with new screenshots, because screenshots depend on fonts.
"""

from __future__ import annotations

import base64
import os
import struct
import tempfile
import zlib
from collections import Counter
from pathlib import Path

from tests.builders.browser import Browser, browser
from tests.harness import ROOT, answer

# For each picture: its file, first and last element, width, and colour scheme.
PICTURES: dict[str, tuple[str, str, str, int, str]] = {
    "page": ("step", "#title", "#timeline", 1100, "light"),
    "page-dark": ("step", "#title", "#timeline", 1100, "dark"),
    "flame": ("step", "#flame", "#flame", 1100, "light"),
    "roofline": ("step", ".roofline", ".roofline", 900, "light"),
}
# Number of colours in a picture: 64 are enough for text and plain areas, and reduce the file to a
# third of its size.
N_COLOURS = 64
# Remove the page's links and notes, because the pictures should show only the charts and tables.
WITHOUT = "document.querySelectorAll('nav, #notes').forEach((node) => node.remove())"


def shot(tab: Browser, first: str, last: str) -> bytes:
    clip = tab.value(
        f"(() => {{ const [a, b] = ['{first}', '{last}'].map((element) =>"
        " document.querySelector(element).getBoundingClientRect());"
        " return {x: 0, y: a.top + scrollY - 8, width: innerWidth, height: b.bottom - a.top + 16,"
        " scale: 1}; })()"
    )
    data: str = tab.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    return base64.b64decode(data)


def pixels_of(png: bytes) -> tuple[int, int, list[bytes]]:
    """Decode an RGB or RGBA PNG; return its width, bytes per pixel and rows."""
    width, _, _, kind = struct.unpack(">IIBB", png[16:26])
    size = {2: 3, 6: 4}[kind]
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    data = zlib.decompress(data)
    rows: list[bytes] = []
    above = bytes(width * size)
    for start in range(0, len(data), width * size + 1):
        row = bytearray(data[start + 1 : start + 1 + width * size])
        for i, value in enumerate(row):
            left, corner = (row[i - size], above[i - size]) if i >= size else (0, 0)
            row[i] = (value + predicted(data[start], left, above[i], corner)) & 255
        above = bytes(row)
        rows.append(above)
    return width, size, rows


def predicted(kind: int, left: int, up: int, corner: int) -> int:
    """Return the value that a PNG filter predicts from the neighbouring pixels."""
    if kind == 4:
        guess = left + up - corner
        return min((left, up, corner), key=lambda value: abs(guess - value))
    return (0, left, up, (left + up) // 2)[kind]


def with_few_colours(png: bytes) -> bytes:
    """Reduce a picture to its most frequent colours; replace other colours with the nearest of
    them."""
    width, size, rows = pixels_of(png)
    pixels = [[row[i : i + 3] for i in range(0, len(row), size)] for row in rows]
    counted = Counter(pixel for row in pixels for pixel in row)
    palette = [colour for colour, _ in counted.most_common(N_COLOURS)]
    nearest = {
        colour: min(
            range(len(palette)),
            key=lambda i: sum((a - b) ** 2 for a, b in zip(palette[i], colour, strict=True)),
        )
        for colour in counted
    }
    data = b"".join(bytes([0, *map(nearest.__getitem__, row)]) for row in pixels)
    head = struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(data, 9))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in (*chunks, (b"IEND", b""))
    )


def main() -> None:
    with browser() as tab, tempfile.TemporaryDirectory() as folder:
        step = Path(folder, "step.html")
        # Pass a relative path, so that the picture shows no local path.
        os.chdir(ROOT)
        answer("tests/data/demo", "page", "--out", str(step))
        for name, (file, first, last, width, colours) in PICTURES.items():
            scheme = {"name": "prefers-color-scheme", "value": colours}
            tab.ask("Emulation.setEmulatedMedia", features=[scheme])
            tab.ask(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            tab.open(Path(folder, f"{file}.html"))
            tab.value(WITHOUT)
            picture = with_few_colours(shot(tab, first, last))
            (ROOT / "tests" / "data" / f"{name}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
