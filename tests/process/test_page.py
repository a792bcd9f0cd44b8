"""The page in a real browser: sign in, look, send, watch, answer, cancel."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import axe, spawned
from tests.support.browser import Tab, browser
from tests.support.crashing import free_port
from tests.support.nginx import proxy
from tests.support.spawned import Spawned, replace_capsule, running, write_capsule
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.machine

TIMED_OUT = 28
"""What curl exits with where a stream has said nothing for as long as it may take."""
DOCUMENT = Path(__file__).parents[2] / "docs" / "page.md"

ASKING = """
import json, sys
def say(**line):
    print(json.dumps(line), flush=True)
first = json.loads(sys.stdin.readline())
say(type="thinking", text="about " + first["text"])
say(type="tool", name="grep", content="three lines", exit_code=1, is_error=True)
say(type="input-required", prompt="Which colour?")
answer = json.loads(sys.stdin.readline())
say(type="turn")
say(type="text", text="It is ")
say(type="text", text=answer["text"] + ".")
say(type="completed")
"""
ENDLESS = "#!/bin/sh\necho begun\nexec sleep 600\n"
MARKUP = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
HOSTILE = MARKUP + "\"'`&lt;\u202eevil\u2066\u200b\x1b[31m"
LOUD = f"""
import sys
sys.stdout.write({MARKUP!r} * 100 + "\\x1b[31m \\u202e\\n")
line = "<b>" * 20_000 + "\\n"
for _ in range(100 * 1024 * 1024 // len(line)):
    sys.stdout.write(line)
print("the very end")
"""
CONFIG = """
roots: [{{path: {root}}}]
tasks: {{concurrency: 4}}
capsules:
  asking: {{backend: command, command: {{argv: [python3, agent.py], protocol: jsonl}}}}
  endless: {{backend: command, command: {{argv: [./agent.sh]}}}}
  loud: {{backend: command, command: {{argv: [python3, agent.py], output: 256MiB}}}}
"""
KEPT = """(async () => {
  const { Transcript } = await import('./page/transcript.js');
  const { shown, shownLines } = await import('./page/dom.js');
  const many = new Transcript();
  for (let i = 0; i < 10_000; i++) many.note('x'.repeat(64));
  const long = new Transcript();
  for (let i = 0; i < 100; i++) long.add('text', { id: 't', text: 'y'.repeat(60_000), final: false }, 0, '');
  long.add('text', { id: 't', text: 'end', final: true }, 0, '');
  const all = new Transcript();
  for (let i = 0; i < 100; i++) all.add('artifact', { id: 't', artifact: { tool_name: 'n', content: 'z'.repeat(40_000) } }, 0, '');
  const sum = (one) => one.entries.reduce((total, { text }) => total + text.length, 0);
  return {
    many: { entries: many.entries.length, dropped: many.dropped, text: sum(many) },
    long: { entries: long.entries.length, size: sum(long), left: long.entries[0].left, end: long.entries[0].text.slice(-3) },
    all: { under: sum(all) <= 512 * 1024, sizes: sum(all) === all.size, newest: all.entries.at(-1).text[0] },
    shown: shown('a\\u202eb\\x1b\\u{e0041}\\nc\\u200dd'),
    lines: shownLines('a\\r\\n\\tb\\x00'),
  };
})()"""
FILES = "exports:\n  files:\n    root: out/\n    mode: read-only\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Capsules with agents that ask, never end, and say far too much; and one with an inbox and files."""
    path = tmp_path / "capsules"
    for name, script, text in (
        ("asking", "agent.py", ASKING),
        ("endless", "agent.sh", ENDLESS),
        ("loud", "agent.py", LOUD),
    ):
        write_capsule(path / name)
        (path / name / script).write_text(text)
        (path / name / script).chmod(0o755)
    more = f"artifacts:\n  - {{name: summarise, version: '1', runtime: tool}}\n{FILES}"
    write_capsule(path / "plain", more=more)
    (path / "plain" / "out").mkdir()
    (path / "plain" / "out" / "page.html").write_text(MARKUP)
    (path / "plain" / "out" / "bytes").write_bytes(bytes(range(256)))
    return path


@asynccontextmanager
async def opened(root: Path, tmp_path: Path) -> AsyncIterator[tuple[Spawned, Tab]]:
    """A sidecar with these capsules, and a browser that has signed in to its page; nothing may go wrong in it."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(root=root))
    with running(["--config", str(config)], state=tmp_path / "state") as sidecar:
        desk = sidecar.desk
        async with browser() as tab:
            await tab.theme("light")
            await tab.resize(1280, 900)
            await tab.open(link(sidecar))
            await tab.sees("serving", within=60)
            yield sidecar, tab
            assert wrong(tab) == []
            assert strangers(tab, desk) == []


def link(sidecar: Spawned) -> str:
    """Return a fresh link, as an operator gets it."""
    return spawned.sidecar("link", "--state", str(sidecar.state)).stdout.strip()


def wrong(tab: Tab) -> list[str]:
    """Return what the console complains of, but for the answer that tells a page that it has to sign in."""
    return [problem for problem in tab.problems if "401 (Unauthorized)" not in problem]


def strangers(tab: Tab, desk: str) -> list[str]:
    """Return what was asked of anybody but the desk."""
    own = (desk, "about:", f"blob:{desk}")
    return [url for url in tab.requests if not url.startswith(own)]


async def names(tab: Tab) -> list[str]:
    """Return the names in the list, from top to bottom."""
    found: list[str] = await tab.run("[...document.querySelectorAll('#table .name')].map((a) => a.innerText)")
    return found


async def test_an_operator_signs_in_finds_a_capsule_sends_watches_answers_and_cancels(
    root: Path, tmp_path: Path
) -> None:
    """The whole way, with the mouse, and back out again."""
    async with opened(root, tmp_path) as (sidecar, tab):
        assert "#link" not in await tab.run("location.href")
        await tab.wait("document.querySelectorAll('#table .name').length === 4")
        assert await names(tab) == ["asking", "endless", "loud", "plain"]
        await tab.click("Filter capsules", "searchbox")
        await tab.type("summarise")
        await tab.wait("document.querySelectorAll('#table .name').length === 1")
        assert await names(tab) == ["plain"]
        await tab.press("Escape", code=27)
        await tab.wait("document.querySelectorAll('#table .name').length === 4")
        await tab.click("Capsule")
        await until(lambda: _first(tab, "plain"), what="the other way round")

        await tab.click("asking", "link")
        await tab.click("Send a task", "textbox")
        await tab.type("paint")
        await tab.click("Send")
        await tab.sees("about paint")
        await tab.sees("grep")
        await tab.wait("document.querySelector('.question')?.innerText.includes('Which colour?')")
        await tab.click("Your answer", "textbox")
        await tab.type("blue")
        await tab.click("Answer")
        await tab.sees("It is blue.")
        await tab.wait("document.querySelector('.stream-head').innerText.includes('completed')")
        [task] = sidecar.api("/api/capsules/asking/tasks")["tasks"]
        assert (task["state"], task["owner"]) == ("completed", "operator")

        await tab.click("← All capsules", "link")
        await tab.click("endless", "link")
        await tab.click("Send a task", "textbox")
        await tab.type("go")
        await tab.press("Enter", code=13, modifiers=2)
        await tab.sees("begun")
        await tab.click("Cancel the task")
        await tab.wait("document.querySelector('.stream-head').innerText.includes('canceled')")
        await tab.click("Show the whole session")
        await tab.sees("Whole session")
        await tab.sees("begun")

        await tab.click("Sign out")
        await tab.sees("Open this page by a link")
        assert "endless" not in await tab.run("document.body.innerText")
        await tab.run("history.back()")
        await tab.open(sidecar.desk + "/")
        await tab.sees("sidecar link")


async def _first(tab: Tab, name: str) -> bool:
    return (await names(tab))[:1] == [name]


async def test_what_changes_on_disk_shows_without_a_reload(root: Path, tmp_path: Path) -> None:
    """A broken manifest shows its place while the last good one serves, and heals; capsules come and go."""
    async with opened(root, tmp_path) as (sidecar, tab):
        await tab.run("window.same = true")
        manifest = root / "plain" / "murmur.yaml"
        good = manifest.read_text()
        manifest.write_text(good.replace("task_acceptance: queue", "task_acceptance: sometimes"))
        await tab.sees("murmur.yaml:4:20")
        await tab.sees("1 needs a look")
        await tab.click("plain", "link")
        await tab.sees("Its last good manifest is served.")
        manifest.write_text(good.replace('version: "1"', 'version: "2"'))
        await tab.sees("version 2")
        await tab.wait("!document.body.innerText.includes('What is wrong')")
        await tab.click("← All capsules", "link")
        await tab.wait("!document.querySelector('.row-error')")
        write_capsule(root / "new")
        await tab.sees("new")
        replace_capsule(root / "new", version="7.7")
        await tab.sees("7.7")
        shutil.rmtree(root / "new")
        await tab.wait("!document.body.innerText.includes('7.7')")
        assert sidecar.capsules().keys() == {"asking", "endless", "loud", "plain"}
        assert await tab.run("window.same")


async def test_nothing_that_a_manifest_says_is_anything_but_text(root: Path, tmp_path: Path) -> None:
    """Names with markup, quotes, control and direction characters, and 10,000 characters of description."""
    name = json.dumps(HOSTILE)
    description = json.dumps((HOSTILE + " word ") * (10_000 // len(HOSTILE)))
    tool = json.dumps("t" * 5000 + MARKUP)
    write_capsule(root / "hostile")
    (root / "hostile" / "murmur.yaml").write_text(
        f"name: {name}\nversion: {json.dumps(MARKUP)}\ndescription: {description}\n"
        f"artifacts: [{{name: {tool}, version: '1', runtime: tool}}]\n{FILES}"
    )
    (root / "hostile" / "out").mkdir()
    (root / "hostile" / "out" / f"{MARKUP.replace('/', '_')}\u202e.txt").write_text(HOSTILE * 10_000)
    async with opened(root, tmp_path) as (sidecar, tab):
        row = await until(lambda: _named(sidecar, HOSTILE), what="the hostile capsule", within=30)
        assert row is not None
        await tab.sees("<img src=x onerror=")
        await tab.open(sidecar.desk + f"/#/capsules/{row['id']}")
        await tab.sees("<script>document.title=")
        text = await tab.run("document.getElementById('capsule-title').innerText")
        assert "\\u202e" in text or "…" in text
        for label in ("Files", "Cards", "Connect", "Activity"):
            await tab.click(label, "tab")
            await tab.wait("document.querySelector('#panel').innerText.length > 20")
            assert await tab.run("document.querySelectorAll('main img, main script').length") == 0
            assert (
                await tab.run("/[\\u202a-\\u202e\\u2066-\\u2069\\u001b]/.test(document.body.innerText)")
                is False
            )
            assert await tab.run("document.documentElement.scrollWidth <= innerWidth")
        assert await tab.run("document.title") != "taken"


def _named(sidecar: Spawned, name: str) -> dict[str, Any] | None:
    return next((row for row in sidecar.capsules().values() if row["name"] == name), None)


async def test_a_worker_that_streams_markup_and_a_hundred_mebibytes_leaves_the_page_well(
    root: Path, tmp_path: Path
) -> None:
    """The end of it is shown, what is kept of it is bounded, and the page answers."""
    async with opened(root, tmp_path) as (_, tab):
        await tab.click("loud", "link")
        await tab.click("Send a task", "textbox")
        await tab.type("speak")
        await tab.click("Send")
        await tab.wait("document.querySelector('.stream-head').innerText.includes('completed')", within=180)
        await tab.wait("document.querySelector('.log').innerText.includes('the very end')", within=180)
        assert await tab.run("document.querySelector('.log').textContent.length") < 1_000_000
        assert await tab.run("document.querySelectorAll('*').length") < 3000
        assert await tab.run("document.querySelectorAll('main img, main b').length") == 0
        assert await tab.run("document.title") == "loud · sidecar"
        await tab.click("Show the whole session")
        await tab.sees("Whole session")
        await tab.click("← All capsules", "link")
        await tab.wait("document.querySelectorAll('#table .name').length === 4")


async def test_everyone_can_use_it(root: Path, tmp_path: Path) -> None:
    """axe-core finds nothing: signing in, the list with an error in it, and each tab of a capsule, light and dark."""
    script = axe.source()
    write_capsule(root / "bad", acceptance="sometimes")
    async with opened(root, tmp_path) as (sidecar, tab):
        await tab.send("Page.setBypassCSP", enabled=True)  # axe writes markup of its own
        await tab.open(sidecar.desk + "/")
        await tab.sees("murmur.yaml:4:20")
        found: list[str] = []

        async def look(what: str) -> None:
            for theme in ("light", "dark"):
                await tab.theme(theme)
                found.extend(f"{what}, {theme}: {one}" for one in await axe.violations(tab, script))

        await look("list")
        await tab.resize(400, 800)
        await look("narrow list")
        await tab.resize(1280, 900)
        await tab.click("asking", "link")
        await tab.click("Send a task", "textbox")
        await tab.type("paint")
        await tab.click("Send")
        await tab.wait("document.querySelector('.question')?.innerText.includes('Which colour?')")
        await look("a question")
        await tab.click("← All capsules", "link")
        await tab.click("plain", "link")
        for label in ("Activity", "Files", "Cards", "Connect"):
            await tab.click(label, "tab")
            await tab.wait("document.querySelector('#panel').innerText.length > 20")
            await look(label)
        await tab.click("Files", "tab")
        await tab.click("page.html")
        await tab.sees("Download")
        await look("a file")
        await tab.click("← All capsules", "link")
        await tab.click("bad", "link")
        await tab.sees("What is wrong")
        await look("a refused capsule")
        await tab.click("Sign out")
        await tab.sees("sidecar link")
        await look("signing in")
        assert found == []
        await tab.run("document.querySelector('main').append(document.createElement('button'))")
        await look("a button without a name")
        assert {one.split(": ")[1] for one in found} == {"button-name"}


async def test_it_can_be_used_without_a_mouse(root: Path, tmp_path: Path) -> None:
    """`/` filters, Enter opens, arrows move along the tabs, control and Enter send."""
    async with opened(root, tmp_path) as (_, tab):
        await tab.run("document.getElementById('list-title').focus()")
        await tab.press("/", code=191)
        await tab.wait("document.activeElement.id === 'filter'")
        await tab.type("endl")
        await tab.wait("document.querySelectorAll('#table .name').length === 1")
        for _ in range(20):
            await tab.press("Tab", code=9)
            if await tab.run("document.activeElement.className") == "name":
                break
        await tab.press("Enter", code=13)
        await tab.wait("document.activeElement.id === 'capsule-title'")
        for _ in range(20):
            await tab.press("Tab", code=9)
            if await tab.run("document.activeElement.role") == "tab":
                break
        await tab.press("ArrowRight", code=39)
        await tab.wait("document.activeElement.id === 'tab-files'")
        await tab.sees("exports no files")
        await tab.press("Home", code=36)
        await tab.wait("document.activeElement.id === 'tab-activity'")
        await tab.wait("document.getElementById('message')?.checkVisibility()")
        await tab.run("document.getElementById('message').focus()")
        await tab.type("go")
        await tab.press("Enter", code=13, modifiers=2)
        await tab.sees("begun")
        assert await tab.run("document.getElementById('said').innerText") != ""


async def test_files_are_looked_at_as_text_and_snippets_are_copied(root: Path, tmp_path: Path) -> None:
    """A page in a workspace is shown as what it is written as; what is no text says so."""
    async with opened(root, tmp_path) as (sidecar, tab):
        await tab.send(
            "Browser.grantPermissions",
            origin=sidecar.desk,
            permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
        )
        await tab.click("plain", "link")
        await tab.click("Files", "tab")
        await tab.click("page.html")
        await tab.wait(f"document.querySelector('.preview pre')?.innerText === {json.dumps(MARKUP)}")
        await tab.click("bytes")
        await tab.sees("This is no text")
        await tab.click("Cards", "tab")
        await tab.sees("a2a 1.0")
        await tab.click("Connect", "tab")
        await tab.click("Copy the snippet “Fetch the card”")
        copied = await tab.wait("navigator.clipboard.readText()")
        assert copied == f"curl -s http://localhost:{sidecar.port('plain')}/.well-known/agent-card.json"


async def test_what_a_stream_says_is_kept_within_bounds(root: Path, tmp_path: Path) -> None:
    """However many frames, and however long each is: the newest of it, and how much is left out."""
    async with opened(root, tmp_path) as (_, tab):
        told = await tab.run(KEPT)
        assert told == {
            "many": {"entries": 400, "dropped": 9600, "text": 400 * 64},
            "long": {"entries": 1, "size": 65536, "left": 100 * 60_000 + 3 - 65536, "end": "end"},
            "all": {"under": True, "sizes": True, "newest": "z"},
            "shown": "a\\u202eb\\x1b\\u{e0041}\\x0ac\u200dd",
            "lines": "a\n\tb\\x00",
        }


async def test_an_open_desk_opens_without_a_link(root: Path, tmp_path: Path) -> None:
    """`desk.auth: none`: there is nothing to sign out of."""
    with running(
        ["--root", str(root)], state=tmp_path / "state", env={"SIDECAR_DESK__AUTH": "none"}
    ) as sidecar:
        async with browser() as tab:
            await tab.open(link(sidecar))
            await tab.wait("document.querySelectorAll('#table .name').length === 4")
            assert await tab.run("document.getElementById('sign-out').checkVisibility()") is False
            assert tab.problems == []


async def test_what_can_be_pasted_works(root: Path, tmp_path: Path) -> None:
    """Curl's commands answer, programs compile; for a capsule with all that there is."""
    async with opened(root, tmp_path) as (_, tab):
        await tab.click("plain", "link")
        await tab.click("Connect", "tab")
        await tab.sees("Ask the desk")
        told = await tab.run(
            "[...document.querySelectorAll('.snippet')].map((s) => [s.ariaLabel, s.querySelector('pre').innerText])"
        )
        pasted = dict(told)
        assert len(pasted) >= 10
        for title, text in pasted.items():
            if title.startswith(("Python", "Do its tasks")):
                compile(text, title, "exec")
            elif text.startswith("curl") and "STATE" not in text:
                command = text.replace("curl ", "curl --max-time 2 ", 1)
                done = await asyncio.to_thread(
                    subprocess.run, ["bash", "-c", command], capture_output=True, timeout=30, check=False
                )
                said = re.search(rb'"(name|jsonrpc|root)"|^(id|event): ', done.stdout)
                assert said or ("tream" in title and done.returncode == TIMED_OUT), f"{title}: {done}"


async def test_it_works_below_a_path_of_a_proxy(root: Path, tmp_path: Path) -> None:
    """With the nginx that docs/page.md shows: the link leads there, and everything that the page asks for."""
    port, desk = free_port(), free_port()
    public = f"http://127.0.0.1:{port}/desk"
    text = DOCUMENT.read_text()
    found = re.search(r"```nginx\n(.*?)```", text, re.DOTALL)
    assert found is not None
    server = found[1].replace("listen 8080", f"listen 127.0.0.1:{port}").replace("7410", str(desk))
    env = {"SIDECAR_DESK__PUBLIC_URL": public, "SIDECAR_DESK__PORT": str(desk)}
    with (
        running(["--root", str(root)], state=tmp_path / "state", env=env) as sidecar,
        proxy(tmp_path, server),
    ):
        async with browser() as tab:
            opening = link(sidecar)
            assert opening.startswith(f"{public}/#link=")
            await tab.open(opening)
            await tab.sees("Live")
            await tab.click("plain", "link")
            await tab.click("Files", "tab")
            await tab.click("page.html")
            await tab.wait(f"document.querySelector('.preview pre')?.innerText === {json.dumps(MARKUP)}")
            await tab.click("Activity", "tab")
            await tab.click("Send a task", "textbox")
            await tab.type("x")
            await tab.click("Send")
            await tab.wait("document.querySelector('.stream-head').innerText.includes('submitted')")
            assert wrong(tab) == []
            assert strangers(tab, public) == []


async def test_the_page_outlives_the_sidecar_and_asks_for_a_new_link(root: Path, tmp_path: Path) -> None:
    """Sessions are in memory only; the page says that it has lost the desk, and what to do once it is back."""
    async with opened(root, tmp_path) as (sidecar, tab):
        port = sidecar.desk.rpartition(":")[2]
        sidecar.signal(signal.SIGTERM)
        await tab.sees("Reconnecting")
        sidecar.wait()
        environ = {"SIDECAR_DESK__PORT": port}
        config = ["--config", str(tmp_path / "config.yaml")]
        with running(config, state=tmp_path / "state", env=environ) as again:
            await tab.sees("Open this page by a link")
            await tab.open(link(again))
            await tab.wait("document.querySelectorAll('#table .name').length === 4")
        tab.problems[:] = [problem for problem in tab.problems if "ERR_CONNECTION" not in problem]


async def test_thousands_of_capsules_are_a_page_at_a_time(tmp_path: Path) -> None:
    """3,000 of them: what is drawn is bounded, and each is found by its name and by its error."""
    root = tmp_path / "capsules"
    for number in range(3000):
        write_capsule(root / f"agent-{number:04}", acceptance="sometimes" if number % 1000 == 7 else "queue")
    arguments = ["--root", str(root)]
    with running(arguments, state=tmp_path / "state", within=120) as sidecar:
        async with browser() as tab:
            await tab.open(link(sidecar))
            await tab.sees("of 3,000", within=60)
            assert await tab.run("document.querySelectorAll('*').length") < 3000
            await tab.click("Next")
            await tab.sees("51\u2013100 of 3,000")
            await tab.click("Need a look")
            await tab.wait("document.querySelectorAll('#table .name').length === 3")
            await tab.click("Filter capsules", "searchbox")
            await tab.type("agent-2007 sometimes")
            await tab.wait("document.querySelectorAll('#table .name').length === 1")
            replace_capsule(root / "agent-2007")
            await tab.sees("No capsule matches.")
            assert wrong(tab) == []
