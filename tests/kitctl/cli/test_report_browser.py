"""The page of ``kitctl report`` in a real browser: no error, no network, its policy, both widths, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitctl.cli.main import main
from tests.kitctl.cli.browser import tab
from tests.kitctl.cli.test_report import failed_job

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

INJECTED = """
(() => { const one = document.createElement("script"); one.textContent = "window.injected = true";
document.body.append(one);
const image = new Image(); image.src = "http://127.0.0.1:9/pixel"; document.body.append(image);
fetch("http://127.0.0.1:9/data").catch(() => null);
document.body.insertAdjacentHTML("beforeend", "<p onclick='window.injected = true' id='evil'>x</p>");
document.getElementById("evil").click(); })()
"""


def test_the_page_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")
    failed_job()
    path = tmp_path / "page.html"
    assert main(["report", "job", "-o", str(path)]) == 0
    backgrounds = set()
    with tab(tmp_path) as page:
        for width in (390, 1440):
            for dark in (False, True):
                page.open(path, width=width, dark=dark)
                assert page.value("innerWidth") == width
                fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
                assert page.value(fits), "nothing is wider than the screen"
                backgrounds.add(page.value("getComputedStyle(document.body).backgroundColor"))
                text = page.value("document.body.innerText")
                assert "onerror=alert(2)" in text
                assert page.value("document.querySelectorAll('svg text').length") > 10
        assert len(backgrounds) == 2, "light and dark differ"

        page.value("document.querySelector('.panel').scrollIntoView({behavior: 'instant', block: 'center'})")
        box = page.value(
            "(r => [r.left + r.width / 2, r.top + 20])(document.querySelector('.panel .area').getBoundingClientRect())"
        )
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        assert page.value("document.getElementById('readout').textContent") == "At 30s, step 210"
        assert page.value("document.querySelector('.value').textContent") == "0.0952"
        page.value("document.querySelector('.panel').focus()")
        page.call("Input.dispatchKeyEvent", type="keyDown", key="Home")
        assert page.value("document.getElementById('readout').textContent") == "At 0s"
        page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        assert page.value("document.querySelector('.value').textContent") == "0.0408"
        assert page.complaints == []
        assert page.requests == []

        page.value(INJECTED)
        assert page.value("window.injected") is None, "the policy forbids other scripts"
        assert len([one for one in page.complaints if "Content Security Policy" in one]) >= 4
