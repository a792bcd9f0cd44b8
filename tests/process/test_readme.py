"""What README and docs show was really run: every console block is run again, and prints what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import agents
from tests.support.a2a_clients import beside_its_packages
from tests.support.installed import from_pypi
from tests.support.spawned import environment, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spawned import Spawned

PROJECT = Path(__file__).parents[2]
PAGES = (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run: [^\n]+|needs node) -->\n)?```(?P<kind>console|sh|shell|bash)\n(?P<text>.*?)```",
    re.DOTALL,
)
PORTS = {"greeter": 24000, "hello": 24001, "observer": 24002, "planner": 24003, "reports": 24004}
ANYTHING = "…"
CLIENTS = {"1": "1.0", "03": "0.3"}
"""The official clients of the page about A2A: by the name of their environment, the version that they speak."""


@dataclass(slots=True)
class Step:
    """One command of a block and the output that it is said to print; `…` stands for anything."""

    command: str
    output: list[str] = field(default_factory=list)


def steps(page: Path, mark: str | None = None) -> list[Step]:
    """Return the commands of a page in their order, of the blocks with this mark alone."""
    found: list[Step] = []
    for block in BLOCK.finditer(page.read_text()):
        if block["mark"] != mark:
            continue
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:]))
            else:
                assert found, f"{page.name}: output without a command: {line}"
                found[-1].output.append(line)
    return found


def as_pattern(output: list[str]) -> re.Pattern[str]:
    """Make a pattern of the output that a page shows; white space at the ends and column widths do not count."""
    text = "\n".join(output).strip()
    parts = [re.sub(r"(\\\s)+", r"\\s+", re.escape(part)) for part in text.split(ANYTHING)]
    return re.compile(".*".join(parts), re.DOTALL)


@pytest.fixture
def example(tmp_path: Path) -> Iterator[tuple[Spawned, dict[str, str]]]:
    """The example as `make run` serves it, on a state of its own, and its ports as the page writes them."""
    with running(["--config", str(PROJECT / "config.example.yaml")], state=tmp_path / "state") as sidecar:
        ports = {str(shown): str(sidecar.port(name)) for name, shown in PORTS.items()}
        yield sidecar, {**ports, "127.0.0.1:7410": sidecar.desk.removeprefix("http://")}


def replaced(text: str, by: dict[str, str]) -> str:
    """Write the ports of this run where the page has its own."""
    return re.sub("|".join(map(re.escape, by)), lambda found: by[found[0]], text)


@pytest.mark.parametrize("page", [p for p in PAGES if steps(p)], ids=lambda p: p.name)
def test_the_commands_of_a_page_print_what_it_shows(
    page: Path, example: tuple[Spawned, dict[str, str]], tmp_path: Path
) -> None:
    """Each command runs in the project's directory beside the running example, and its output matches."""
    text = page.read_text()
    programs = {f"a2a-{name}/bin/python": version for name, version in CLIENTS.items()}
    by = {name: str(agents.environment(version)) for name, version in programs.items() if name in text}
    if (client := "everruns/bin/python") in text:
        by[client] = str(from_pypi("everruns", agents.EVERRUNS))
    if (client := "moi/bin/python") in text:
        by[client] = str(from_pypi("moi", agents.MOI))
    perform(steps(page), example, tmp_path, by)


@pytest.mark.machine
def test_the_commands_for_node_print_what_the_page_shows(
    example: tuple[Spawned, dict[str, str]], tmp_path: Path
) -> None:
    """The same for what needs node."""
    page = PROJECT / "docs" / "a2a.md"
    scripts = {
        f"js-{name}/a2a_{name}.mjs": str(
            beside_its_packages(version, PROJECT / "examples" / "clients" / f"a2a_{name}.mjs")
        )
        for name, version in CLIENTS.items()
    }
    perform(steps(page, "needs node"), example, tmp_path, scripts)


def perform(
    commands: list[Step], example: tuple[Spawned, dict[str, str]], home: Path, by: dict[str, str]
) -> None:
    """Run commands, with programs of the tests in the place of those that a page names, and compare what they print."""
    sidecar, ports = example
    assert commands
    env = environment(SIDECAR_STATE=str(sidecar.state), HOME=str(home))
    env.pop("PYTHONWARNINGS")
    programs = {".venv/bin/sidecar": f"{shlex.quote(sys.executable)} -m sidecar", **by}
    for step in commands:
        command = replaced(replaced(step.command, ports), programs)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=PROJECT,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        printed = done.stdout.strip()
        pattern = as_pattern([replaced(line, ports) for line in step.output])
        assert pattern.fullmatch(printed), f"$ {step.command}\nprinted {printed!r} {done.stderr!r}"


def test_pages_link_to_what_exists() -> None:
    """Every relative link of a page leads to a file of the project."""
    pages = (*PAGES, PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md")
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    ]
    assert links
    for page, link in links:
        assert (page.parent / link).exists(), f"{page.name}: {link}"
