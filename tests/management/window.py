"""A window of a real browser, Chromium, and what people do in it."""

import contextlib
import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

PEERS = Path(__file__).parents[2] / ".venv" / "peers"
AXE = PEERS / "node" / "node_modules" / "axe-core" / "axe.min.js"
SHOTS = os.environ.get("SHARDMQ_SCREENSHOTS", "")
"""A folder for pictures of the views; none are taken without."""

COLOURS = "{runOnly: {type: 'rule', values: ['color-contrast', 'link-in-text-block']}}"
"""Options of axe's, for its rules that look at colours."""

LISTEN_FOR_CLICK = """window.isClicked = false;
arguments[0].addEventListener('click', () => { window.isClicked = true }, {once: true, capture: true})"""
WAS_CLICKED = "return window.isClicked !== false"
"""Whether what was to be clicked was, or the page is another one since."""

SHOWN = "return [document.URL, document.activeElement.outerHTML.slice(0, 200), document.body.innerText]"
WIDTH = "return document.documentElement.clientWidth"
SCROLL_BAR = 20
OVERFLOW = """const found = [document.documentElement, document.querySelector('dialog[open]')];
return Math.max(...found.map((each) => each ? each.scrollWidth - each.clientWidth : 0))"""
"""How far something has to be scrolled sideways."""

WAIT_SECONDS = 30
LOAD_TRIES = 3
"""Of opening an address: Chromium loses a navigation now and then, and its driver waits for that one until it gives up.
"""
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


def chromium() -> tuple[str, str, str] | None:
    """Chromium, its driver, and where the libraries are that the machine lacks."""
    fetched = PEERS / "browser" / "usr"
    if (fetched / "lib/chromium/chromium").exists():
        return str(fetched / "lib/chromium/chromium"), str(fetched / "bin/chromedriver"), str(fetched / "lib")
    found = shutil.which("chromium"), shutil.which("chromedriver")
    return (found[0], found[1], "") if found[0] and found[1] else None


class Page:
    """A window of the browser, and what people do in it."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def until(self, what: Callable[[webdriver.Chrome], Any]) -> Any:
        waiting = WebDriverWait(self.driver, WAIT_SECONDS, 0.05, [StaleElementReferenceException])
        try:
            return waiting.until(what)
        except TimeoutException as fault:
            url, keyboard, text = self.driver.execute_script(SHOWN)
            where = f"{url}, with the keyboard on {keyboard}"
            pytest.fail(f"not within {WAIT_SECONDS} s: {fault.msg}\n{where}, shows:\n{text}")

    def open(self, place: str) -> None:
        self._get(f"{self.url}#/{place}")

    def load_anew(self, place: str = "") -> None:
        """Open a place of the page as in a new window: nothing of what was shown before is left."""
        self._get("about:blank")
        self._get(f"{self.url}#/{place}" if place else self.url)

    def _get(self, address: str) -> None:
        for left in reversed(range(LOAD_TRIES)):
            try:
                self.driver.get(address)
                return
            except TimeoutException:
                if not left:
                    raise

    def find(self, selector: str) -> WebElement:
        found = self.until(lambda driver: driver.find_elements(By.CSS_SELECTOR, selector))
        assert isinstance(found[0], WebElement)
        return found[0]

    def click(self, text: str, inside: str = "") -> None:
        """Click a button or link by its text, in what a selector finds; anew where it moved away from the mouse."""
        within = f"//{inside}" if inside else ""
        path = f"{within}//button[normalize-space()='{text}'] | {within}//a[normalize-space()='{text}']"

        def clicked(driver: webdriver.Chrome) -> bool:
            found = [each for each in driver.find_elements(By.XPATH, path) if each.is_displayed() and each.is_enabled()]
            if not found:
                return False
            driver.execute_script(LISTEN_FOR_CLICK, found[0])
            found[0].click()
            return bool(driver.execute_script(WAS_CLICKED))

        self.until(clicked)

    def text(self, selector: str = "#page") -> str:
        """What an element shows, by the browser's own account: WebDriver's takes longer than all else in a test."""
        script = "return Array.from(document.querySelectorAll(arguments[0]), (each) => each.innerText)"
        shown = self.until(lambda driver: driver.execute_script(script, selector))[0]
        assert isinstance(shown, str)
        return shown

    def sees(self, text: str) -> None:
        self.until(lambda _: text in self.text())

    def sees_soon(self, text: str) -> None:
        """See a text in answers that are asked for at once, as when somebody comes back to this window."""

        def seen(driver: webdriver.Chrome) -> bool:
            driver.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
            return text in self.text()

        WebDriverWait(self.driver, WAIT_SECONDS, 0.4, [StaleElementReferenceException]).until(seen)

    def fill(self, name: str, value: str, inside: str = "") -> None:
        """Have a field hold a value. The view may be drawn anew meanwhile: then it is filled again."""

        def filled(_: webdriver.Chrome) -> bool:
            field = self.find(f"{inside} [name='{name}']")
            field.clear()
            field.send_keys(value)
            return True

        self.until(filled)

    def log_in(self, user: str, password: str) -> None:
        self.log_out()
        self.fill("user", user)
        self.fill("password", password)
        self.click("Log in")
        self.find("nav a")

    def log_out(self) -> None:
        """Be somebody who has not logged in."""
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.load_anew()

    def lines(self, inside: str = "") -> list[str]:
        """The command lines that are shown."""
        self.until(lambda _: "Loading…" not in self.text())
        found = self.driver.find_elements(By.CSS_SELECTOR, f"{inside} .command code")
        return [each.get_attribute("textContent") or "" for each in found]

    @contextlib.contextmanager
    def as_wide_as(self, width: int) -> Iterator[None]:
        """Show the page so wide, on a telephone where that is narrow."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            self.until(lambda driver: abs(driver.execute_script(WIDTH) - width) <= SCROLL_BAR)
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def fits(self) -> None:
        """Wait until nothing in the page, or in its dialog, has to be scrolled sideways; a new width takes a moment."""
        self.until(lambda driver: driver.execute_script(OVERFLOW) <= 0)

    def shot(self, name: str) -> None:
        """Take a picture, where pictures are asked for, in few colours so that it is small."""
        if SHOTS:
            from PIL import Image

            shot = Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")
            shot.quantize(96).save(Path(SHOTS) / f"{name}.png", optimize=True)

    def violations(self, in_colours: bool = False) -> list[str]:
        """What axe finds wrong with the view for people who cannot see it, or have no mouse.

        Args:
            in_colours: by the rules for colours alone, where schemes differ.
        """
        if not self.driver.execute_script("return 'axe' in window"):
            self.driver.execute_script(AXE.read_text())
        options = COLOURS if in_colours else "{}"
        script = f"const done = arguments[0]; axe.run({options}).then((found) => done(found.violations))"
        found = self.driver.execute_async_script(script)
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def start_chromium(profile: Path) -> webdriver.Chrome:
    """A browser with a window.

    Args:
        profile: a folder for what it keeps.
    """
    place = chromium()
    assert place is not None
    binary, chromedriver, libraries = place
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    folders = sorted({str(each.parent) for each in Path(libraries).rglob("*.so*")}) if libraries else []
    paths = ":".join(folders)
    environment = {**os.environ, "LD_LIBRARY_PATH": paths} if paths else dict(os.environ)
    service = webdriver.ChromeService(chromedriver, env=environment)
    made = webdriver.Chrome(options, service)
    made.set_script_timeout(WAIT_SECONDS)
    made.set_page_load_timeout(WAIT_SECONDS)
    return made
