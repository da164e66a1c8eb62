"""Make the pictures of README.md and GUIDE.md: screenshots of the page of the demo.

    python3 -m tests.builders.make_pictures

No test compares the pictures with new screenshots, because screenshots depend on fonts.
"""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path

from tests.builders.browser import Browser, browser
from tests.harness import ROOT, answer

# The columns are name, first and last element, width, and the element to click first.
PICTURES: dict[str, tuple[str, str, int, str | None]] = {
    "page": ("header", "#findings tr:nth-child(7)", 980, None),
    "flame": ("#flame", "#flame", 1100, "input[value=scopes]"),
    "roofline": (".roofline", ".roofline", 900, None),
}


def shot(tab: Browser, first: str, last: str) -> bytes:
    clip = tab.value(
        f"(() => {{ const [a, b] = ['{first}', '{last}'].map((element) =>"
        " document.querySelector(element).getBoundingClientRect());"
        " return {x: 0, y: a.top + scrollY, width: innerWidth, height: b.bottom - a.top + 8,"
        " scale: 1}; })()"
    )
    data: str = tab.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    return base64.b64decode(data)


def main() -> None:
    with browser() as tab, tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "step.html")
        # The path is relative, so the picture shows no path of this machine.
        os.chdir(ROOT)
        answer("tests/data/demo", "page", "--out", str(page))
        for name, (first, last, width, clicked) in PICTURES.items():
            tab.ask(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            tab.open(page)
            if clicked:
                tab.click(clicked)
            (ROOT / "tests" / "data" / f"{name}.png").write_bytes(shot(tab, first, last))


if __name__ == "__main__":
    main()
