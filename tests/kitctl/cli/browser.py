"""A headless Chromium that a test drives by its DevTools protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import websocket

from tools import setup

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_TIMEOUT: Final = 60.0  # seconds
ANSWER_TIMEOUT: Final = 60.0


def program() -> str:
    """The path of a browser; installed if this user may."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and setup.apt_install("chromium"):
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("no Chromium here; install Debian's package chromium")
    return found


class Tab:
    """One page.

    Attributes:
        complaints: errors and warnings of its console, and what its policy has refused.
        requests: the addresses that it asked for, but for files and data.
    """

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=ANSWER_TIMEOUT, suppress_origin=True)
        self._number = 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while (message := json.loads(self._socket.recv())).get("id") != self._number:
            self._event(message)
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def open(self, path: Path, *, width: int, dark: bool) -> None:
        """Show a file as on a screen of that width."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + START_TIMEOUT
        while self.value("document.readyState + location.href") != f"complete{path.as_uri()}":
            assert time.monotonic() < deadline

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _event(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" | "Page.javascriptDialogOpening":
                self.complaints.append(str(params))
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                if not params["request"]["url"].startswith(("file:", "data:")):
                    self.requests.append(params["request"]["url"])


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A tab of a new browser, whose profile is in the folder."""
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run")
    command = [program(), *options, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield Tab(_address(folder / "profile" / "DevToolsActivePort"))
        finally:
            process.kill()


def _address(ready: Path) -> str:
    from urllib.request import urlopen  # noqa: PLC0415 - where it is used

    deadline = time.monotonic() + START_TIMEOUT
    while not (ready.exists() and ready.read_text().count("\n")):
        assert time.monotonic() < deadline, "the browser did not start"
        time.sleep(0.05)
    port = ready.read_text().split("\n")[0]
    with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=ANSWER_TIMEOUT) as answer:
        return str(next(one for one in json.load(answer) if one["type"] == "page")["webSocketDebuggerUrl"])
