"""Drive a headless browser through its debugging protocol over two pipes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness import Json, bound

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROGRAM = next((found for name in NAMES if (found := shutil.which(name))), None)
# For each keyboard key, its code and the text that it types.
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), " ": (32, " ")}
KEYS |= {f"Arrow{to}": (37 + i, "") for i, to in enumerate(("Left", "Up", "Right", "Down"))}
KEYS |= {"Home": (36, ""), "End": (35, "")}
# The browser reads from file descriptor 3 and writes to 4.
AS_3_AND_4 = """
import os, sys
source, sink, *command = sys.argv[1:]
os.dup2(int(source), 3)
os.dup2(int(sink), 4)
os.execv(command[0], command)
"""


class Browser:
    """Represent a browser process with a single tab."""

    def __init__(self, folder: str, options: tuple[str, ...] = ()) -> None:
        assert PROGRAM
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Duplicate the pipes to descriptors from 10 on, so that 3 and 4 stay free for the browser.
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
        command = [
            *(sys.executable, "-c", AS_3_AND_4, *map(str, theirs), PROGRAM),
            *("--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"),
            # These options prevent network requests and allow root to run the browser.
            *("--disable-background-networking", "--disable-component-update", "--no-sandbox"),
            *("--disable-extensions", "--disable-sync", "--disable-dev-shm-usage"),
            *("--hide-scrollbars", f"--user-data-dir={folder}", *options, "about:blank"),
        ]
        with open(Path(folder, "log"), "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=theirs
            )
        for fd in (theirs_in, theirs_out, *theirs):
            os.close(fd)
        self._read = b""
        self._n_asked = 0
        self._session: str | None = None
        # The browser also sends messages that are not responses to a request.
        self.events: list[Json] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        (tab,) = (target["targetId"] for target in targets if target["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=tab, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        # Give the tab the focus, because a headless tab might not have the focus.
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._out, b'{"id":0,"method":"Browser.close"}\0')
        try:
            self.process.wait(timeout=bound(10))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._out)
        os.close(self._in)

    def _message(self, until: float) -> Json:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError("the browser says nothing")
            self._read += data
        message, _, self._read = self._read.partition(b"\0")
        reply: Json = json.loads(message)
        return reply

    def ask(self, method: str, **parameters: Any) -> Json:
        self._n_asked += 1
        asked: Json = {"id": self._n_asked, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        data = json.dumps(asked).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        until = time.monotonic() + bound(30)
        while True:
            message = self._message(until)
            if message.get("id") == self._n_asked:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                found: Json = message["result"]
                return found
            self.events.append(message)

    def seen(self, method: str) -> list[Json]:
        return [event["params"] for event in self.events if event.get("method") == method]

    def open(self, path: Path) -> float:
        """Open a file, wait until the page is drawn, and return the elapsed seconds."""
        self.events.clear()
        begun = time.monotonic()
        self.ask("Page.navigate", url=path.as_uri())
        while not self.value("document.body?.dataset.ready === 'true' && document.readyState"):
            time.sleep(0.01)
            if time.monotonic() > begun + bound(30):
                raise TimeoutError("the page isn't drawn")
        return time.monotonic() - begun

    def value(self, expression: str) -> Any:
        """Evaluate a JavaScript expression in the page."""
        reply = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in reply:
            raise AssertionError(f"{expression}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def middle(self, selector: str) -> tuple[float, float]:
        """Scroll to an element and return the coordinates of its centre."""
        box = self.value(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            " found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
            " return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        return box[0], box[1]

    def hover(self, selector: str) -> None:
        x, y = self.middle(selector)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        self.hover(selector)
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, *, shift: bool = False, times: int = 1) -> None:
        code, text = KEYS[key]
        facts: Json = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        facts["modifiers"] = 8 if shift else 0
        kind = "keyDown" if text else "rawKeyDown"
        for _ in range(times):
            self.ask("Input.dispatchKeyEvent", type=kind, text=text, **facts)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **facts)

    def type(self, text: str) -> None:
        self.ask("Input.insertText", text=text)

    def focus(self, selector: str) -> None:
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")


@contextlib.contextmanager
def browser(*options: str) -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = Browser(folder, options)
        try:
            yield started
        finally:
            started.close()
