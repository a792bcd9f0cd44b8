"""A real browser without a window: Debian's Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # of the browser, which refuses to run as root otherwise; it sees our own pages only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
PATIENCE = 30.0


class PageError(AssertionError):
    """The script that a test ran in the page threw."""


@dataclass
class Tab:
    """One tab: `problems` are errors and warnings of its console, what its policy blocked included."""

    socket: aiohttp.ClientWebSocketResponse
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    async def listen(self) -> None:
        """Take in what the browser says, until it ends."""
        async for message in self.socket:
            said = json.loads(message.data)
            if "id" in said:
                waiter = self._waiting.pop(said["id"], None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(said)
            else:
                self._heard(said["method"], said["params"])

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        waiter: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiter
        await self.socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            said = await waiter
        if "error" in said:
            raise PageError(f"{method}: {said['error']['message']}")
        result: dict[str, Any] = said["result"]
        return result

    async def run(self, script: str) -> Any:
        """Evaluate an expression in the page, wait for it if it is a promise, and return its value."""
        done = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return done["result"].get("value")

    async def wait(self, script: str, *, within: float = PATIENCE) -> Any:
        """Return the first true value of an expression."""
        try:
            return await until(lambda: self.run(script), within=within, what=script)
        except AssertionError as error:
            text = await self.run("document.querySelector('main').innerText.slice(0, 2000)")
            raise AssertionError(f"{error}\nthe page says:\n{text}\nproblems: {self.problems}") from None

    async def sees(self, text: str, *, within: float = PATIENCE) -> None:
        """Wait until the page shows a text."""
        await self.wait(f"document.body.innerText.includes({json.dumps(text)})", within=within)

    async def open(self, url: str) -> None:
        """Go to an address, from an empty page, so that a fragment too is a new document."""
        await self.send("Page.navigate", url="about:blank")
        await self.send("Page.navigate", url=url)
        await self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def click(self, name: str, role: str = "button") -> None:
        """Click on the visible element that a screen reader would call by this name, as a mouse does."""
        script = _FIND % (json.dumps(role), json.dumps(name))
        found = await self.wait(script)
        while found != (now := await self.wait(f"new Promise(requestAnimationFrame).then(() => {script})")):
            found = now  # what comes in meanwhile moves it
        for kind in ("mousePressed", "mouseReleased"):
            await self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=found["x"],
                y=found["y"],
                button="left",
                clickCount=1,
            )

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def press(self, key: str, *, code: int = 0, modifiers: int = 0) -> None:
        """Press a key: its name, its key code, and 2 for the control key."""
        more = {"text": "\r"} if key == "Enter" and not modifiers else {}
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                modifiers=modifiers,
                **(more if kind == "keyDown" else {}),
            )

    async def theme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        await self.send(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": name},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )

    async def resize(self, width: int, height: int) -> None:
        """Have a window of this size."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def picture(self) -> bytes:
        """Return what is seen as a PNG file."""
        shot = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


_FIND = """(([role, name]) => {
  const tags = {button: "button", link: "a[href]", textbox: "input:not([type=search]), textarea", searchbox: "[type=search]",
    tab: "[role=tab]"};
  const label = (one) => one.getAttribute("aria-label") || [...(one.labels ?? [])].map((l) => l.innerText).join(" ").trim() ||
    one.innerText.trim();
  const all = [...document.querySelectorAll(tags[role])].filter((one) => one.checkVisibility() && !one.disabled);
  const found = all.find((one) => label(one) === name) ?? all.find((one) => label(one).startsWith(name));
  if (!found) return null;
  found.scrollIntoView({block: "center"});
  const box = found.getBoundingClientRect();
  return {x: box.x + box.width / 2, y: box.y + box.height / 2};
})([%s, %s])"""


@asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """Start a browser with a profile of its own and one tab; end both."""
    assert CHROMIUM is not None, "the tests of the page need Debian's chromium"
    profile = await asyncio.to_thread(tempfile.mkdtemp, prefix="sidecar-browser-")
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        where = Path(profile) / "DevToolsActivePort"
        await until(lambda: where.exists() and "\n" in where.read_text(), within=PATIENCE, what="the browser")
        port = where.read_text().split("\n")[0]
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                targets = await answer.json(content_type=None)
            target = next(one for one in targets if one["type"] == "page")
            async with http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                listening = asyncio.get_running_loop().create_task(tab.listen(), name="listen to the browser")
                try:
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await tab.send(f"{domain}.enable")
                    yield tab
                finally:
                    with suppress(ConnectionError):
                        await socket.send_json({"id": 0, "method": "Browser.close"})
                    listening.cancel()
                    await asyncio.wait((listening,))
    finally:
        with suppress(ProcessLookupError):
            if process.returncode is None:
                try:
                    async with asyncio.timeout(10):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()
        await asyncio.to_thread(shutil.rmtree, profile, ignore_errors=True)
