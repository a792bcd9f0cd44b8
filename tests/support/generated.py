"""The files that are made of the command line's parser: completion for three shells, and the manual page.

`make pages` writes them anew after a change of the command line.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter, _SubParsersAction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import shtab
from build_manpages.manpage import Manpage

from sidecar import __version__
from sidecar.cli.main import build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELL: Final = Path(__file__).parents[2] / "sidecar" / "cli" / "shell"
COMPLETION: Final = {"bash": "sidecar.bash", "zsh": "_sidecar", "fish": "sidecar.fish"}
PAGE: Final = "sidecar.1"
WIDTH: Final = 72
"""Of usage lines, so that a page of 80 columns leaves them as they are."""
_COMMAND: Final = re.compile(r"(?<=^\.SH COMMAND )[^\n]*\n(?:(?!\.)[^\n]*\n)+", re.MULTILINE)
"""What a command's part of the page begins with: its usage and its description."""
_COMPLETE: Final = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}


def _parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to walk a parser
        if isinstance(action, _SubParsersAction):
            for sub in action.choices.values():
                yield from _parsers(sub)


def completion(shell: str) -> str:
    """Return the completion of one shell."""
    parser = build_parser()
    for each in _parsers(parser):
        for action in each._actions:  # noqa: SLF001 - as above
            if isinstance(action.metavar, str) and action.metavar in _COMPLETE:
                action.complete = _COMPLETE[action.metavar]  # type: ignore[attr-defined]  # where shtab looks for it
    text: str = shtab.complete(parser, shell)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def manual() -> str:
    """Return the manual page, in roff, the same on every day and for every width of a terminal."""
    parser = build_parser()
    for each in _parsers(parser):
        each.formatter_class = partial(RawDescriptionHelpFormatter, width=WIDTH)
    data = {"project_name": "sidecar", "description": "a front door for agent capsules"}
    page = str(Manpage(parser, format="pretty", _data=data))
    body, epilog = page.partition("\n")[2].split(".SH COMMENTS\n")
    # prose is filled, but the lines of a usage, or of a list such as "bash: …", stay lines
    body = _COMMAND.sub(lambda found: re.sub(r"(?<=.)\n(?= |[a-z]+: )", "\n.br\n", found[0]), body)
    head = f'.TH SIDECAR "1" "" "sidecar {__version__}" "User Commands"'
    return f"{head}\n{body}.SH EXIT STATUS AND ENVIRONMENT\n.nf\n{epilog.strip()}\n.fi\n"


def files() -> dict[Path, str]:
    """Return every generated file with what it is to hold."""
    texts = {SHELL / name: completion(shell) for shell, name in COMPLETION.items()}
    return {**texts, SHELL / PAGE: manual()}


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
