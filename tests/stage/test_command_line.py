"""The commands that need no running sidecar: what they print, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.cli.main import main

GOOD = 'name: {name}\nversion: "1"\n'
COMMANDS = ("run", "check", "card", "init", "list", "send", "tasks", "share", "reload", "health", "schema")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty directory, with nothing about the sidecar in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("SIDECAR_"):
            monkeypatch.delenv(name)


def capsule(directory: str, text: str = GOOD) -> None:
    """Write a manifest."""
    place = Path(directory)
    place.mkdir(parents=True)
    (place / "murmur.yaml").write_text(text.format(name=place.name))


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, since it is no answer; 2 as for any bad input."""
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(f"\n    {command} " in shown.err for command in COMMANDS)


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_the_version_is_asked_for_in_either_way(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` is what people try first."""
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("sidecar ")


@pytest.mark.parametrize(
    ("words", "usage"),
    [([], "sidecar"), (["check"], "sidecar check"), (["tasks", "list"], "sidecar tasks list")],
)
def test_help_is_a_command_too(words: list[str], usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of everything, of a command, and of one below it: the same as `--help` there."""
    for said in (["help", *words], [*words, "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(said)
        assert not ended.value.code
        assert capsys.readouterr().out.startswith(f"usage: {usage} [-h]")


def test_help_of_no_command_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands are listed."""
    with pytest.raises(SystemExit) as ended:
        main(["help", "nope"])
    assert ended.value.code == 2
    assert "'check'" in capsys.readouterr().err


def test_what_init_writes_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    """`check` has nothing to say about it, not even a warning; the second time nothing is overwritten."""
    assert main(["init", "new"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote new/config.yaml",
        "wrote new/capsules/hello/murmur.yaml",
        "next: sidecar run --config new/config.yaml",
    ]
    assert main(["check", "--strict", "--config", "new/config.yaml"]) == 0
    assert capsys.readouterr().out == "1 capsule, 0 artifacts, 0 errors, 0 warnings\n"
    assert "examples" not in Path("new/config.yaml").read_text()
    assert main(["init", "new"]) == 2
    assert "is there already: nothing was written" in capsys.readouterr().err


def test_commands_that_print_data_take_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Those too that print nothing else."""
    assert main(["init", "new", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written == {"written": ["new/config.yaml", "new/capsules/hello/murmur.yaml"]}
    for words in (["card", "new/capsules/hello"], ["schema", "config"], ["schema", "manifest"]):
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    """Check what is refused; return the lines of its output, and what was said beside it."""
    assert main(["check", *words]) == 2
    shown = capsys.readouterr()
    return shown.out.splitlines(), shown.err


def test_a_bad_configuration_is_part_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """As lines and as JSON, both on standard output; that no manifest was looked at is said."""
    Path("c.yaml").write_text("card: ful\nwatch: {settle: 40}\n")
    lines, beside = checked(capsys, "--config", "c.yaml")
    assert [line.partition(": ")[0] for line in lines[:2]] == ["c.yaml:1:7", "c.yaml:2:17"]
    assert lines[2:] == ["0 capsules, 0 artifacts, 2 errors, 0 warnings"]
    assert beside.startswith(
        "sidecar: the configuration is refused: 2 errors; the manifests were not looked at: mend it, or say"
    )
    lines, _ = checked(capsys, "--config", "c.yaml", "--json")
    document = json.loads("\n".join(lines))
    assert [problem["key"] for problem in document["problems"]] == ["card", "watch.settle"]
    assert (document["errors"], document["manifests_checked"]) == (2, False)


def test_manifests_are_checked_beside_a_bad_configuration_where_they_are_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By `--root`, which replaces the roots of the file anyway."""
    capsule("capsules/a", "name: a\n")
    Path("c.yaml").write_text("card: ful\n")
    lines, beside = checked(capsys, "--config", "c.yaml", "--root", "capsules")
    assert lines[0].startswith("c.yaml:1:7: E-CFG-004 card: ")
    assert "/capsules/a/murmur.yaml:1:1: E-MAN-001 version: is missing" in lines[1]
    assert lines[2:] == ["1 capsule, 0 artifacts, 2 errors, 0 warnings"]
    assert "not looked at" not in beside
    lines, _ = checked(capsys, "--config", "c.yaml", "--root", "capsules", "--json")
    document = json.loads("\n".join(lines))
    assert (document["capsules"], document["manifests_checked"]) == (1, True)


def test_no_configuration_at_all_is_a_problem_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that reads the JSON learns of it."""
    lines, beside = checked(capsys, "--json")
    (problem,) = json.loads("\n".join(lines))["problems"]
    assert problem["message"].startswith("no configuration: name its file with --config FILE")
    assert "no configuration" in beside
    lines, _ = checked(capsys, "--config", "gone.yaml")
    assert lines[0].startswith("gone.yaml: E-CFG-001 cannot be read: No such file or directory")


def test_the_json_of_a_good_tree_says_that_it_was_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """So that no zero is mistaken for a clean tree."""
    capsule("capsules/a")
    assert main(["check", "--root", "capsules", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["capsules"], document["manifests_checked"], document["problems"]) == (1, True, [])


def test_an_export_of_the_state_is_found_by_check(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start refuses it, so does the check; the state is where the environment says."""
    capsule("capsules/a", GOOD + "exports: {{files: {{root: out, mode: read-only}}}}\n")
    monkeypatch.setenv("SIDECAR_STATE", "capsules/a/out/state")
    Path("capsules/a/out/state").mkdir(parents=True)
    lines, _ = checked(capsys, "--root", "capsules")
    assert "which is the sidecar's own" in lines[0]


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("gone", "there is no gone: name a directory with a murmur.yaml"),
        (
            "capsules/a/murmur.yaml",
            "capsules/a/murmur.yaml is the manifest itself: name its directory, capsules/a",
        ),
        ("capsules/file", "capsules/file is no directory: name one with a murmur.yaml"),
        ("capsules", "/capsules holds no murmur.yaml itself, but capsules: name one of them, such as "),
        ("capsules/empty", "/capsules/empty holds no murmur.yaml: name a directory that does"),
    ],
)
def test_a_card_of_no_capsule_says_what_to_name(
    directory: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and 2."""
    capsule("capsules/a")
    Path("capsules/file").touch()
    Path("capsules/empty").mkdir()
    assert main(["card", directory]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize("directory", ["capsules/a", "capsules/../capsules/a/", "./capsules/a/."])
def test_a_card_is_printed_however_the_directory_is_written(
    directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dots and slashes lead to the same capsule."""
    capsule("capsules/a")
    assert main(["card", directory]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "a"


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [
        "check --root .",
        "check --root . --json",
        "card a",
        "init new",
        "schema config",
        "version",
        "--version",
        "help",
        "--help",
        "help check",
    ],
)
def test_output_that_nobody_takes_is_one_plain_line(words: str, buffered: str) -> None:
    """Whether it is noticed while printing or at the end, and whoever prints."""
    capsule("a")
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "sidecar", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": buffered},
            check=False,
        )
    assert ended.stderr.decode().splitlines()[-1] == (
        "sidecar: cannot write the output: No space left on device"
    )
    assert b"Traceback" not in ended.stderr
    assert b"Exception ignored" not in ended.stderr
    assert ended.returncode == 1


def test_a_reader_that_goes_away_is_no_error_of_ours() -> None:
    """Nothing is said, and the status is 1."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "sidecar", "schema", "config"],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_closed_output_is_written_to_by_nobody() -> None:
    """A command that was started without one still does its work."""
    ended = subprocess.run(
        ["/bin/sh", "-c", f"exec '{sys.executable}' -m sidecar version >&-"],
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
