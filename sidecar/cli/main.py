"""The parser and the dispatch. Imports nothing heavy: each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from typing import TYPE_CHECKING, cast

from sidecar.cli.output import Watched, complain
from sidecar.errors import InputError, SidecarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

EPILOG = """\
exit status: 0 fine, 1 failed, 2 bad input

environment:
  SIDECAR_CONFIG, SIDECAR_STATE   like --config and --state
  SIDECAR_<PATH WITH __>          any single value of the configuration, e.g. SIDECAR_LISTEN__HOST=0.0.0.0
A flag wins over the environment, the environment over the file, the file over the default.
"""


def _config_flags(parser: argparse.ArgumentParser, *, state: bool = False) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="the configuration file (environment: SIDECAR_CONFIG)"
    )
    parser.add_argument(
        "--root",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory that holds capsules, or is one; may be repeated; replaces the roots of the file",
    )
    if state:
        _state_flag(parser)


def _state_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", help="the state directory (environment: SIDECAR_STATE)")


def _json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _always_json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, as it does in any case")


def _running_flags(parser: argparse.ArgumentParser, *, json_help: str | None = None) -> None:
    parser.add_argument("--config", metavar="FILE", help="the configuration of the running sidecar")
    _state_flag(parser)
    parser.add_argument("--json", action="store_true", help=json_help or "print JSON instead of text")


def _task_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    send = command(
        "send",
        "sending:send",
        "start a task and print its stream",
        "The reply goes to standard output, everything about it to standard error. Where standard input is a\n"
        "terminal, the task's questions are asked there. Exits with 0 when the task completed, else with 1.",
    )
    send.add_argument("capsule", metavar="ID", help="the capsule's id (sidecar list shows them)")
    send.add_argument("text", metavar="TEXT", nargs="+", help="the message; - reads it from standard input")
    send.add_argument("--task", metavar="TASK", help="answer this task, which waits for input")
    send.add_argument("--context", metavar="CONTEXT", help="the context that the task belongs to")
    send.add_argument(
        "--no-wait", dest="wait", action="store_false", help="print the task's id and leave it to itself"
    )
    _running_flags(send, json_help="print the stream's frames as JSON lines, each with its event")

    tasks = command("tasks", "", "list, show, cancel and watch tasks")
    verbs = tasks.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, handler, summary in (
        ("list", "tasks_list", "show a capsule's tasks, the newest first"),
        ("get", "tasks_get", "print a task with its reply"),
        ("cancel", "tasks_cancel", "cancel a task"),
        ("watch", "tasks_watch", "print a task's stream from its beginning"),
    ):
        sub = verbs.add_parser(verb, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        sub.set_defaults(handler=f"sending:{handler}")
        sub.add_argument("capsule", metavar="ID", help="the capsule's id (sidecar list shows them)")
        if verb != "list":
            sub.add_argument("task", metavar="TASK", help="the task's id")
        _running_flags(sub)

    share = command(
        "share",
        "share:share",
        "make, list and revoke handles that open one file for one reader",
        "Whoever holds a handle, and is the audience, may read the file on the capsule's port until it expires.\n"
        "A handle ends with the sidecar too: the keys are in memory only.",
    )
    share.add_argument("capsule", metavar="ID", help="the capsule's id (sidecar list shows them)")
    share.add_argument(
        "path", metavar="PATH", nargs="?", help="the file, relative to exports.peer_files.root"
    )
    share.add_argument(
        "--audience", metavar="A", help="who may use it: the fetching capsule's <name>@<host:port>"
    )
    share.add_argument("--ttl", metavar="T", help="how long, such as 10m; at most, and by default, max_ttl")
    share.add_argument("--list", action="store_true", help="show the handles that have not expired")
    share.add_argument("--revoke", metavar="HANDLE_ID", help="end a handle now")
    _running_flags(share)


def _key_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    keys = command(
        "keys",
        "",
        "make, list, rotate and revoke agent keys, which clients of a capsule show",
        "A capsule that has a key takes nobody any more without a credential; its public cards stay public.",
    )
    verbs = keys.add_subparsers(dest="verb", metavar="VERB", required=True)
    made = {}
    for verb, handler, summary in (
        ("create", "create", "make a key, and show its secret this once"),
        ("list", "list_", "show a capsule's keys"),
        ("rotate", "rotate", "give a key another secret; the one before stays good for a while"),
        ("revoke", "revoke", "end a key now"),
    ):
        sub = verbs.add_parser(verb, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        sub.set_defaults(handler=f"keys:{handler}")
        sub.add_argument("capsule", metavar="ID", help="the capsule's id (sidecar list shows them)")
        if verb in ("rotate", "revoke"):
            sub.add_argument("key", metavar="KEY", help="the key's id (not its secret)")
        _running_flags(sub)
        made[verb] = sub
    made["create"].add_argument(
        "--expires", metavar="T", help="how long it lives, such as 30d; default: for ever"
    )
    made["create"].add_argument("--end-users", action="store_true", help="it may speak for end users")
    made["create"].add_argument(
        "--operator", action="store_true", help="it may use POST / and read the files where these are closed"
    )
    made["rotate"].add_argument(
        "--overlap", metavar="HOURS", help="how long the secret before it stays good: 0 to 168 (default: 24)"
    )
    made["revoke"].add_argument(
        "--forget", action="store_true", help="drop its record too: without any, the capsule is open again"
    )


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line; each command sets `handler`, a `module:function` below this package."""
    parser = argparse.ArgumentParser(
        prog="sidecar",
        description="A front door for agent capsules: cards, JSON-RPC methods and files on each capsule's own port.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.set_defaults(handler="offline:nothing", parser=parser, json=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, handler: str, summary: str, description: str = "") -> argparse.ArgumentParser:
        text = summary[0].upper() + summary[1:] + "."
        sub = commands.add_parser(
            name,
            help=summary,
            description=f"{text}\n\n{description}" if description else text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(handler=handler)
        return sub

    run = command(
        "run",
        "serving:run",
        "watch capsules and serve them until SIGTERM",
        "SIGHUP reloads the configuration, SIGTERM and SIGINT drain and stop, a second one forces.\n"
        "Logs go to standard error.",
    )
    _config_flags(run, state=True)
    run.add_argument(
        "--command",
        metavar="COMMAND",
        dest="backend_command",  # `command` is the subcommand
        help="a program that does the tasks of all capsules, split as a shell would: the message on its standard "
        "input, the reply on its output",
    )
    run.add_argument(
        "--new-state", action="store_true", help="set a database aside that was found corrupt, and start anew"
    )

    check = command(
        "check",
        "offline:check",
        "say everything that is wrong with the configuration and the manifests",
        "Serves nothing. Exits with 2 where there are errors.",
    )
    _config_flags(check)
    check.add_argument("--strict", action="store_true", help="exit with 2 on warnings too")
    _json_flag(check)

    card = command("card", "offline:card", "print the card that a capsule directory would be served with")
    card.add_argument("directory", metavar="DIR", help="a directory with a murmur.yaml")
    card.add_argument("--config", metavar="FILE", help="the configuration file (environment: SIDECAR_CONFIG)")
    _always_json_flag(card)

    init = command("init", "offline:init", "write a commented configuration and a first capsule")
    init.add_argument(
        "directory", metavar="DIR", nargs="?", default=".", help="where to write (default: here)"
    )
    _json_flag(init)

    listing = command("list", "client:list_capsules", "show the running sidecar's capsules")
    _running_flags(listing)

    link = command(
        "link",
        "client:link",
        "print a fresh link that opens the page in a browser",
        "It works once, within a minute; the page then stays signed in for twelve hours.",
    )
    _running_flags(link)

    _task_commands(command)
    _key_commands(command)

    reload_ = command("reload", "client:reload", "make the running sidecar read its configuration again")
    _running_flags(reload_)

    health = command(
        "health",
        "health:health",
        "exit with 0 when the running sidecar is ready",
        "For container health checks: needs no curl, reads no YAML, imports nothing heavy.",
    )
    _state_flag(health)
    _json_flag(health)

    schema = command("schema", "offline:schema", "print a JSON Schema, for editors")
    schema.add_argument("which", choices=["config", "manifest"], help="of config.yaml or of murmur.yaml")
    _always_json_flag(schema)

    completion = command(
        "completion",
        "offline:completion",
        "print the completion for a shell",
        "bash: source <(sidecar completion bash), in ~/.bashrc\n"
        "zsh:  sidecar completion zsh >~/.zfunc/_sidecar, with fpath+=~/.zfunc before compinit in ~/.zshrc\n"
        "fish: sidecar completion fish >~/.config/fish/completions/sidecar.fish",
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")

    version = command("version", "offline:version", "print the version")
    _json_flag(version)

    help_ = command("help", "offline:help_of", "show what a command does, and its options")
    help_.add_argument("topic", metavar="COMMAND", nargs="*", help="the command (default: the list of them)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 fine, 1 failed, 2 bad input."""
    # there is none where the caller closed it
    output = Watched(cast("TextIO | None", sys.stdout) or io.StringIO())
    sys.stdout = cast("TextIO", output)
    try:
        return _with_output(argv, output)
    finally:
        sys.stdout = output.stream


def _with_output(argv: Sequence[str] | None, output: Watched) -> int:
    status: int | None = None
    leaving: SystemExit | None = None
    failed: Exception | None = None
    try:
        status = _run(argv)
    except SystemExit as error:  # argparse has printed something, or SIGTERM came early
        leaving = error
    except Exception as error:  # noqa: BLE001 - see below
        # the boundary of a command: what nobody expected is still one plain line, with the place for a report
        failed = error
    output.finish()
    if output.trouble is not None:
        if not isinstance(
            output.trouble, BrokenPipeError
        ):  # then its reader went away, and wants nothing more
            complain(f"cannot write the output: {output.trouble.strerror}")
        return 1
    if leaving is not None:
        raise leaving
    if failed is not None:
        frame = traceback.extract_tb(failed.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"  # noqa: PTH119 - text, not a path to open
        complain(f"internal error: {type(failed).__name__}: {failed} ({place}); please report it")
        return 1
    return 1 if status is None else status


def _run(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    handler = "offline:version" if arguments.version else arguments.handler
    module, _, name = handler.partition(":")
    try:
        from importlib import import_module

        status: int = getattr(import_module(f"sidecar.cli.{module}"), name)(arguments)
    except InputError as error:
        for problem in error.problems:
            complain(str(problem))
        complain(str(error))
        return error.exit_status
    except SidecarError as error:
        complain(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    return status
