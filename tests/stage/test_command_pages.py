"""The manual page and the completions: they say what the command line does, and shells and man understand them."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support import generated
from tests.support.spawned import sidecar

BASH = """\
source {file}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
_shtab_sidecar "" "${{COMP_WORDS[COMP_CWORD]}}" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(*words: str) -> set[str]:
    """Return what bash offers for the last of these words."""
    script = BASH.format(
        file=generated.SHELL / "sidecar.bash", words=" ".join(f"'{word}'" for word in ("sidecar", *words))
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    return {word.strip() for word in done.stdout.split()}


def test_the_pages_are_those_of_the_command_line_as_it_is() -> None:
    """`make pages` writes them; whoever changes a command runs it."""
    stale = [
        path.name for path, text in generated.files().items() if not path.exists() or path.read_text() != text
    ]
    assert not stale, "run: make pages"


@pytest.mark.parametrize("shell", generated.COMPLETION)
def test_the_completion_for_a_shell_is_printed(shell: str) -> None:
    """What the command prints is the file that is installed."""
    done = sidecar("completion", shell)
    assert (done.returncode, done.stdout) == (0, (generated.SHELL / generated.COMPLETION[shell]).read_text())


def test_bash_completes_commands_verbs_and_options() -> None:
    """The words that can come next, and no others."""
    assert completed("che") == {"check"}
    assert {"list", "get", "cancel", "watch"} <= completed("tasks", "")
    assert {"--config", "--root", "--strict", "--json"} <= completed("check", "--")


@pytest.mark.machine
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_parse_their_completion(shell: str) -> None:
    """A syntax error there would show up at each start of somebody's shell."""
    path = generated.SHELL / generated.COMPLETION[shell]
    subprocess.run([shell, "-n", str(path)], check=True, timeout=30)


@pytest.mark.machine
def test_man_shows_the_page_without_a_warning() -> None:
    """Groff finds nothing to complain about, every command is there, and lines of usages and lists stay lines."""
    page = str(generated.SHELL / generated.PAGE)
    done = subprocess.run(
        ["man", "--warnings", "-l", page],
        env={**os.environ, "MANWIDTH": "80"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    lines = [line.strip() for line in done.stdout.splitlines()]
    for shell in generated.COMPLETION:
        assert any(line.startswith(f"{shell}: ") for line in lines)
    assert "usage: sidecar run [-h] [--config FILE] [--root DIR] [--state DIR]" in lines
    for command in ("sidecar run", "sidecar check", "sidecar send", "sidecar completion"):
        assert command in done.stdout
