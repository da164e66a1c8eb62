"""Make the pictures of README.md and GUIDE.md: screenshots of the page of the demo.

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

# For each picture: the first and the last element, the width, and the colour scheme of the page.
PICTURES: dict[str, tuple[str, str, int, str]] = {
    "page": ("#lead", "#budget", 1100, "light"),
    "page-dark": ("#lead", "#budget", 1100, "dark"),
    "flame": ("#flame", "#flame", 1100, "light"),
    "roofline": (".roofline", ".roofline", 900, "light"),
}


# Number of colours of a picture: 64 colours are enough for text and plain areas, and make the file
# a third as large.
N_COLOURS = 64
# JavaScript that removes the links and notes of the page, because the pictures show only figures.
WITHOUT = "document.querySelectorAll('nav, #notes').forEach((node) => node.remove())"


def shot(tab: Browser, first: str, last: str) -> bytes:
    clip = tab.value(
        f"(() => {{ const [a, b] = ['{first}', '{last}'].map((element) =>"
        " document.querySelector(element).getBoundingClientRect());"
        " return {x: 0, y: a.top + scrollY, width: innerWidth, height: b.bottom - a.top + 8,"
        " scale: 1}; })()"
    )
    data: str = tab.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    return base64.b64decode(data)


def pixels_of(png: bytes) -> tuple[int, int, list[bytes]]:
    """Return the width, the bytes per pixel and the rows of a screenshot, which is a PNG with RGB
    or RGBA."""
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
    """Return the value that a filter of PNG predicts from the neighbours."""
    if kind == 4:
        guess = left + up - corner
        return min((left, up, corner), key=lambda value: abs(guess - value))
    return (0, left, up, (left + up) // 2)[kind]


def with_few_colours(png: bytes) -> bytes:
    """Return a picture with only the most frequent colours; replace each other colour by the
    nearest frequent colour."""
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
        page = Path(folder, "step.html")
        # The path is relative, so the picture shows no path of this machine.
        os.chdir(ROOT)
        answer("tests/data/demo", "page", "--out", str(page))
        for name, (first, last, width, colours) in PICTURES.items():
            scheme = {"name": "prefers-color-scheme", "value": colours}
            tab.ask("Emulation.setEmulatedMedia", features=[scheme])
            tab.ask(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            tab.open(page)
            tab.value(WITHOUT)
            picture = with_few_colours(shot(tab, first, last))
            (ROOT / "tests" / "data" / f"{name}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
