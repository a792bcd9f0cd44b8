"""Who does the work: backends, commands, doors elsewhere and secrets, from what is written to a capsule's settings."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict

import orjson
import pytest

from sidecar import config
from sidecar.cli.main import build_parser
from sidecar.config.hosts import parse_url
from sidecar.errors import InputError
from sidecar.model import CommandSettings, ForwardSettings, InboxSettings, Secret, Settings
from sidecar.shapes import FaultsError, read


def built(text: str, environ: dict[str, str] | None = None, command: str | None = None) -> config.Config:
    """Build a configuration of a file's text."""
    flags = config.Flags(command=command)
    return config.build(text.encode(), "/srv/c.yaml", flags, environ or {}, cwd="/here")


def refused(text: str, environ: dict[str, str] | None = None, command: str | None = None) -> list[str]:
    """Return the problems of a configuration that is refused, one a line."""
    with pytest.raises(InputError) as caught:
        built(text, environ, command)
    return [str(problem) for problem in caught.value.problems]


def settings(found: config.Config, capsule_id: str) -> Settings:
    """Return what holds for a capsule below the default root."""
    return found.settings_for(capsule_id, f"/srv/capsules/{capsule_id}")


# Settings of a capsule


def test_the_inbox_is_everyones_backend_by_default() -> None:
    """With the defaults of the design."""
    found = settings(built("{}"), "hello")
    assert found == Settings()
    assert (found.backend, found.command, found.forward) == ("inbox", None, None)
    assert found.inbox == InboxSettings(lease=30.0, attempts=3)
    assert (found.on_restart, found.stop_grace) == ("fail", 3.0)


def test_a_general_command_is_every_capsules() -> None:
    """But of those that say otherwise."""
    found = built(
        "{backend: command, command: {argv: [agent.sh, '{dir}'], timeout: 5m, output: 1KiB, env: [KEY]}, "
        "tasks: {on_restart: rerun}, limits: {stop_grace: 1s}, inbox: {lease: 1m, attempts: 1}, "
        "capsules: {other: {backend: inbox}}}"
    )
    hello, other = settings(found, "hello"), settings(found, "other")
    assert hello.command == CommandSettings(("agent.sh", "{dir}"), "text", 300.0, 1024, ("KEY",))
    assert (hello.backend, hello.on_restart, hello.stop_grace) == ("command", "rerun", 1.0)
    assert (other.backend, other.command) == ("inbox", None)
    assert other.inbox == hello.inbox == InboxSettings(60.0, 1)


def test_a_capsules_own_command_covers_the_general_one_key_by_key() -> None:
    """What it leaves out, or says null for, is as the general block says."""
    found = built("""
      command: {argv: [general], protocol: jsonl, timeout: 5m, env: [KEY]}
      capsules:
        a: {backend: command}
        b: {backend: command, command: {argv: [own], timeout: 1s, output: 1MiB}}
        c: {backend: command, command: {argv: null, protocol: text, env: []}}
    """)
    general = CommandSettings(("general",), "jsonl", 300.0, 16 << 20, ("KEY",))
    assert settings(found, "a").command == general
    assert settings(found, "b").command == CommandSettings(("own",), "jsonl", 1.0, 1 << 20, ("KEY",))
    assert settings(found, "c").command == CommandSettings(("general",), "text", 300.0, 16 << 20, ())
    assert (settings(found, "d").backend, settings(found, "d").command) == ("inbox", None)


def test_a_door_elsewhere_is_one_capsules() -> None:
    """By its URL or by looking for it, with a token that does not show."""
    found = built(
        """
      capsules:
        a: {backend: forward, forward: {url: "http://localhost:52222", token: {env: THERE}, planes: forward}}
        b: {backend: forward, forward: {discover: true}}
    """,
        {"THERE": "hunter2"},
    )
    a, b = settings(found, "a"), settings(found, "b")
    assert a.backend == b.backend == "forward"
    assert a.forward == ForwardSettings("http://localhost:52222", token=Secret("hunter2"), planes="forward")
    assert b.forward == ForwardSettings(discover=True)
    assert a.command is b.command is None
    assert "hunter2" not in f"{a!r} {a} {found!r} {found}"


def test_a_command_that_is_tied_to_a_directory_is_run_nowhere_else() -> None:
    """A namesake gets what is said for all."""
    found = built("capsules: {a: {path: /srv/capsules/a, backend: command, command: {argv: [x]}}}")
    assert found.settings_for("a", "/srv/capsules/a").backend == "command"
    assert found.settings_for("a", "/srv/capsules/b").backend == "inbox"


def test_capsules_without_settings_of_their_own_share_one_object() -> None:
    """Thousands of capsules cost no more than one; each workspace has its own."""
    found = built("""
      roots: [{path: /a}, {path: /b, workspace: work}, {path: /c}]
      backend: command
      command: {argv: [agent.sh]}
      capsules: {own: {concurrency: 2}, tied: {path: /a/elsewhere, backend: inbox}}
    """)
    shared = found.settings_for("x", "/a/x")
    assert found.settings_for("y", "/a/y") is shared
    assert found.settings_for("z", "/c/z") is shared
    assert found.settings_for("tied", "/a/tied") is shared
    assert found.settings_for("x", "/elsewhere") is shared
    assert found.settings_for("x", "/b/x") is found.settings_for("y", "/b/y") is not shared
    assert found.settings_for("x", "/b/x").command is not None
    own = found.settings_for("own", "/a/own")
    assert own is not shared
    assert own.inbox is shared.inbox


@pytest.mark.parametrize(
    ("text", "untied"),
    [
        ("capsules: {a: {backend: command, command: {argv: [x]}}}", {"a"}),
        ("{command: {argv: [x]}, capsules: {a: {backend: command}}}", {"a"}),
        ("{backend: command, command: {argv: [x]}, capsules: {a: {command: {protocol: jsonl}}}}", {"a"}),
        ("{backend: command, command: {argv: [x]}, capsules: {a: {concurrency: 2}}}", set()),
        ("capsules: {a: {path: a, backend: command, command: {argv: [x]}}}", set()),
        ("capsules: {a: {disabled: true, backend: command, command: {argv: [x]}}}", set()),
        ("capsules: {a: {command: {argv: [x]}}}", set()),
        ("capsules: {a: {backend: inbox}, b: {backend: forward, forward: {discover: true}}}", set()),
    ],
)
def test_a_command_of_a_capsules_own_without_its_directory_is_untied(text: str, untied: set[str]) -> None:
    """What is said for all is meant for all; what is said by an id must say where, once there are namesakes."""
    assert built(text).untied_commands == untied


# The command line


def test_the_flag_makes_a_program_the_backend_of_all() -> None:
    """Split as a shell would, in the text protocol; what the file says otherwise is warned about."""
    found = built(
        "{command: {protocol: jsonl, argv: [x], timeout: 5m}, "
        "capsules: {a: {backend: forward, forward: {discover: true}}, b: {command: {argv: [y]}}}}",
        {"SIDECAR_BACKEND": "inbox", "SIDECAR_COMMAND__PROTOCOL": "jsonl", "SIDECAR_COMMAND__OUTPUT": "1KiB"},
        command="python3 'my agent.py' --say \"it's {dir}\"",
    )
    command = CommandSettings(("python3", "my agent.py", "--say", "it's {dir}"), "text", 300.0, 1024)
    for capsule_id in ("a", "b", "c"):
        assert settings(found, capsule_id).backend == "command"
        assert settings(found, capsule_id).command == command
        assert settings(found, capsule_id).forward is None
    assert found.untied_commands == set()
    assert [str(warning) for warning in found.warnings] == [
        "/srv/c.yaml:1:78: W-CFG-010 capsules.a.backend: is not used: --command is for all"
    ]


def test_the_flag_needs_no_file() -> None:
    """`sidecar run --root DIR --command ./agent.sh`."""
    found = config.load(None, config.Flags(roots=("/caps",), command="./agent.sh"), {}, cwd="/")
    assert found.settings_for("x", "/caps/x").command == CommandSettings(("./agent.sh",))
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("agent.sh 'x", "cannot be split as a shell would: no closing quotation"),
        ("", "is empty; write the program and its arguments, such as [python3, agent.py]"),
        ("'' x", "names no program: its first word is blank"),
    ],
)
def test_a_flag_that_names_no_program_is_refused(command: str, problem: str) -> None:
    """The place is the command line."""
    assert refused("{}", command=command) == [f"command line: E-CFG-004 --command: {problem}"]


def test_only_run_takes_the_flag() -> None:
    """And does not mistake it for the name of the subcommand."""
    arguments = build_parser().parse_args(["run", "--command", "a b"])
    assert (arguments.command, arguments.backend_command) == ("run", "a b")
    assert build_parser().parse_args(["run"]).backend_command is None
    with pytest.raises(SystemExit):
        build_parser().parse_args(["check", "--command", "a b"])


# The environment


def test_single_values_of_backends_come_from_the_environment() -> None:
    """Those of blocks below a capsule's id too; lists do not."""
    found = built(
        "{capsules: {a: {command: {argv: [x]}}}}",
        {
            "SIDECAR_INBOX__LEASE": "1m",
            "SIDECAR_COMMAND__TIMEOUT": "5m",
            "SIDECAR_TASKS__ON_RESTART": "rerun",
            "SIDECAR_CAPSULES__a__BACKEND": "command",
            "SIDECAR_CAPSULES__a__COMMAND__PROTOCOL": "jsonl",
            "SIDECAR_CAPSULES__b__c__BACKEND": "forward",
            "SIDECAR_CAPSULES__b__c__FORWARD__URL": "http://localhost:52222",
            "SIDECAR_COMMAND__ARGV": "rm -rf /",
            "SIDECAR_CAPSULES__a__COMMAND__ENV": "KEY",
        },
    )
    assert found.inbox.lease == 60.0
    assert settings(found, "a").command == CommandSettings(("x",), "jsonl", 300.0)
    assert settings(found, "b__c").forward == ForwardSettings("http://localhost:52222")
    assert [str(warning) for warning in found.warnings] == [
        (
            "environment: W-CFG-009 SIDECAR_CAPSULES__a__COMMAND__ENV: is ignored: "
            "capsules.a.command.env takes a list; set it in the file"
        ),
        (
            "environment: W-CFG-009 SIDECAR_COMMAND__ARGV: is ignored: "
            "command.argv takes a list; set it in the file, or use --command"
        ),
    ]


def test_the_environment_says_where_a_secret_is_and_never_what_it_is() -> None:
    """`__ENV` and `__FILE` take the place of what the file says; the bare name is ignored with the way to do it."""
    environ = {"A": "one", "B": "two", "SIDECAR_AUTH__WORKER_TOKEN__ENV": "B"}
    assert built("auth: {worker_token: {env: A}}", environ).auth.worker_token == Secret("two")
    found = built("auth: {worker_token: {env: A}}", {"A": "one", "SIDECAR_AUTH__WORKER_TOKEN": "hunter2"})
    assert found.auth.worker_token == Secret("one")
    assert [str(warning) for warning in found.warnings] == [
        (
            "environment: W-CFG-009 SIDECAR_AUTH__WORKER_TOKEN: is ignored: auth.worker_token is a secret, which is "
            "said where to find: set SIDECAR_AUTH__WORKER_TOKEN__ENV or SIDECAR_AUTH__WORKER_TOKEN__FILE"
        )
    ]
    environ["SIDECAR_AUTH__WORKER_TOKEN__ENV"] = "C"
    assert refused("{}", environ) == [
        "environment: E-CFG-004 SIDECAR_AUTH__WORKER_TOKEN__ENV: the environment variable C is not set"
    ]
    environ["SIDECAR_AUTH__WORKER_TOKEN__FILE"] = "/x"
    assert refused("{}", environ) == [
        (
            "environment: E-CFG-004 SIDECAR_AUTH__WORKER_TOKEN__FILE: "
            "must be either {env: NAME} or {file: PATH}, with nothing else in it"
        )
    ]


# Secrets


def test_a_secret_is_shown_by_no_way_of_printing() -> None:
    """Neither as text nor in a document, and not in what holds it."""
    held = ForwardSettings("http://localhost", token=Secret("hunter2"))
    shown = f"{held} {held!r} {held.token} {held.token!r} {asdict(held)} {held.token!s:>20}"
    assert "hunter2" not in shown
    assert "Secret(hidden)" in shown
    for dump in (json.dumps, orjson.dumps, pickle.dumps):
        with pytest.raises(TypeError):
            dump(held.token)
    with pytest.raises(TypeError):
        orjson.dumps(held)
    assert copy.deepcopy(held) == copy.copy(held) == held
    assert held.token is not None
    assert held.token.reveal() == "hunter2"


def test_secrets_are_equal_where_their_texts_are() -> None:
    """A reload notices another one, and only then."""
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    text = "auth: {worker_token: {env: T}}"
    assert built(text, {"T": "a"}) == built(text, {"T": "a"})
    assert built(text, {"T": "a"}) != built(text, {"T": "b"})


def test_the_white_space_around_a_secret_is_not_of_it() -> None:
    """Files end in a line break."""
    assert built("auth: {worker_token: {env: T}}", {"T": " a\r\n"}).auth.worker_token == Secret("a")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "the environment variable T is empty"),
        ("\n", "the environment variable T is empty"),
        ("hunter2 hunter3", "the environment variable T holds more than one word of visible ASCII"),
        ("h\u00fcnter2", "the environment variable T holds more than one word of visible ASCII"),
        ("hunter\x002", "the environment variable T holds more than one word of visible ASCII"),
    ],
)
def test_a_secret_that_no_header_can_carry_is_refused_without_being_shown(value: str, problem: str) -> None:
    """The place is that of the key."""
    (line,) = refused("{card: full,\nauth: {worker_token: {env: T}}}", {"T": value})
    assert line.startswith(f"/srv/c.yaml:2:22: E-CFG-004 auth.worker_token: {problem}")
    assert "hunter" not in line
    assert "nter2" not in line


@pytest.mark.parametrize(
    "literal", ["hunter2", "[hunter2]", "{hunter2: hunter2}", "{env: [hunter2]}", "{file: {a: hunter2}}"]
)
def test_a_literal_secret_is_refused_without_being_shown(literal: str) -> None:
    """With the two ways that there are."""
    (line,) = refused(f"auth: {{worker_token: {literal}}}")
    assert "{env: NAME} or {file: PATH}" in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "literal", ["0123456", "0x123456", "123456", "1:23:45", "true", "12345.6", "2026-01-02"]
)
def test_a_literal_that_yaml_reads_as_something_else_is_not_shown_either(literal: str) -> None:
    """Other keys get their spelling repeated, with what YAML made of it."""
    (line,) = refused(f"auth: {{worker_token: {literal}}}")
    assert "a secret is never written here" in line
    assert literal not in line.replace("auth.worker_token", "")


def test_an_error_in_code_does_not_show_its_input_either() -> None:
    """Whoever reads a block in code gets no literal back in a traceback."""
    with pytest.raises(FaultsError) as caught:
        read(config.Auth, {"worker_token": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert config.Auth(worker_token=Secret("x")).worker_token == Secret("x")


# URLs


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://localhost:52222", "http://localhost:52222"),
        ("HTTPS://Example.Org/A?b=%20c", "https://example.org/A?b=%20c"),
        ("http://[::1]:52222/", "http://[::1]:52222/"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://agents.example?x=1", "http://agents.example?x=1"),
    ],
)
def test_a_url_has_a_scheme_and_a_host(written: str, url: str) -> None:
    """Both in lower case; what follows stays."""
    assert parse_url(written) == url


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("localhost:52222", "no URL"),
        ("ftp://localhost", "no URL"),
        ("http:/localhost", "no URL"),
        ("http://localhost/a b", "no URL"),
        ("http://localhost/\u00fc", "no URL"),
        ("http://localhost\n", "no URL|host name"),
        ("", "no URL"),
        ("http://", "names no host"),
        ("http:///path", "names no host"),
        ("http://:80", "neither a host name nor an address"),
        ("http://::1:80", "in brackets"),
        ("http://localhost:0", "no port"),
        ("http://localhost:http", "neither a host name nor an address"),
        ("http://localhost/#a", "no fragment"),
        ("http://op:pw@localhost", "no credentials"),
        ("ftp://op@localhost", "no credentials"),
        ("http://op:pw@", "no credentials"),
        ("http://a\\@b", "no credentials"),
    ],
)
def test_what_is_no_url_to_connect_to_is_refused(written: str, message: str) -> None:
    """Credentials are not repeated in the message."""
    with pytest.raises(ValueError, match=message) as caught:
        parse_url(written)
    assert "pw" not in str(caught.value)
