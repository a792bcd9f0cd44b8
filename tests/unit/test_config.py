"""Where values come from: flag over environment over file over default, and what holds for one capsule."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from types import MappingProxyType

import pytest

from sidecar import config
from sidecar.errors import InputError, Severity
from sidecar.model import Containment, Settings

CWD = "/home/op"
NO_FLAGS = config.Flags()


def built(
    text: str = "{}",
    environ: dict[str, str] | None = None,
    flags: config.Flags = NO_FLAGS,
    file: str = "/etc/sidecar/config.yaml",
) -> config.Config:
    """Build a configuration of a file's text."""
    return config.build(text.encode(), file, flags, {"HOME": "/home/op"} | (environ or {}), cwd=CWD)


def refused(
    text: str = "{}", environ: dict[str, str] | None = None, flags: config.Flags = NO_FLAGS
) -> list[str]:
    """Return the problems of a configuration that is refused, one a line."""
    with pytest.raises(InputError) as caught:
        built(text, environ, flags)
    assert caught.value.exit_status == 2
    return [str(problem) for problem in caught.value.problems]


def test_an_empty_mapping_is_all_the_defaults_of_the_design() -> None:
    """The defaults, in the units that the other parts work with."""
    found = built()
    assert found.source == "/etc/sidecar/config.yaml"
    assert found.roots == (config.Root(path="/etc/sidecar/capsules", workspace=".", depth=1),)
    assert found.listen == config.Listen(
        hosts=("127.0.0.1",),
        ports=config.PortRange(24000, 31999),
        advertise="localhost",
        internal_port=False,
        allowed_hosts=(),
        allowed_origins=(),
    )
    assert found.desk == config.Desk(
        host="127.0.0.1", port=7410, auth="token", metrics="open", allowed_hosts=()
    )
    assert found.state is None
    assert found.watch == config.Watch(tick=2.0, settle=0.04, grace=2.0, force_tick=False)
    assert found.card == "full"
    assert found.tasks == config.Tasks(
        concurrency=1, keep_events=100000, keep_tasks=2592000.0, forget=86400.0
    )
    assert found.log == config.Log(level="info", format="auto")
    assert found.limits == config.Limits(
        manifest=131072,
        body=1048576,
        idle=75.0,
        body_timeout=15.0,
        drain=8.0,
        connections=2048,
        streams=2048,
        tasks=1000,
    )
    assert found.heartbeat == config.Heartbeat(murmur=15.0, a2a=2.5)
    assert found.capsules == {}
    assert found.warnings == ()


def test_equal_files_make_equal_configurations() -> None:
    """So that a reload that changes nothing can be told."""
    assert built("card: full") == built("# a comment\ncard: full")
    assert built("card: full") != built("card: reference")
    one, other = built("capsules: {a: {port: 24001}}"), built("capsules: {a: {port: 24001}}")
    one.settings_for("a", "/etc/sidecar/capsules/a")
    assert one == other
    assert one != built("capsules: {a: {port: 24002}}")


def test_a_configuration_does_not_change() -> None:
    """All of it is frozen, the settings by capsule too."""
    found = built("capsules: {a: {port: 24001}}")
    with pytest.raises(FrozenInstanceError):
        found.listen.advertise = "elsewhere"  # type: ignore[misc]  # what the test is about
    assert isinstance(found.capsules, MappingProxyType)


def test_a_flag_wins_over_the_environment_and_that_over_the_file() -> None:
    """Each layer covers the one below, value by value."""
    file = "{state: /file, card: reference, listen: {host: 10.0.0.1, advertise: file.example}}"
    environ = {"SIDECAR_STATE": "/environment", "SIDECAR_LISTEN__HOST": "10.0.0.2"}
    assert built(file).state == "/file"
    assert built(file, environ).state == "/environment"
    found = built(file, environ, config.Flags(state="/flag"))
    assert found.state == "/flag"
    assert found.listen.hosts == ("10.0.0.2",)
    assert found.listen.advertise == "file.example"
    assert found.card == "reference"


def test_roots_of_the_command_line_take_the_place_of_the_files() -> None:
    """`--root` may be repeated; the file's roots are out then."""
    found = built("roots: [{path: /srv, depth: 3}]", flags=config.Flags(roots=("a", "/b")))
    assert [(root.path, root.depth) for root in found.roots] == [("/home/op/a", 1), ("/b", 1)]


def test_roots_of_the_command_line_need_no_file() -> None:
    """`sidecar run --root DIR` works with no file at all."""
    found = config.load(None, config.Flags(roots=("caps",)), {}, cwd=CWD)
    assert found.source is None
    assert found.roots == (config.Root(path="/home/op/caps"),)


def test_nothing_named_is_said_with_both_ways_to_name_something() -> None:
    """No file is looked for in the current directory: that would serve whatever lies there."""
    with pytest.raises(InputError, match=r"--config FILE.*--root DIR") as caught:
        config.load(None, NO_FLAGS, {"SIDECAR_CONFIG": ""}, cwd=CWD)
    assert caught.value.problems == ()


def test_relative_paths_start_where_they_were_written() -> None:
    """Those of the file at the file, those of flags and environment at the current directory; `~` is HOME."""
    text = """
      roots: [{path: caps}, {path: ../more/}, {path: ~/mine}, {path: /srv/./caps}]
      state: state
      capsules: {a: {path: caps/a, workspace: ~/work/}, b: {workspace: ../out}}
    """
    found = built(text, {"SIDECAR_CAPSULES__B__PATH": "caps/b"}, file="conf/sidecar.yaml")
    assert found.source == "/home/op/conf/sidecar.yaml"
    assert [root.path for root in found.roots] == [
        "/home/op/conf/caps",
        "/home/op/more",
        "/home/op/mine",
        "/srv/caps",
    ]
    assert found.state == "/home/op/conf/state"
    assert found.capsules["a"].path == "/home/op/conf/caps/a"
    assert found.capsules["a"].workspace == "/home/op/work/"
    assert found.capsules["b"].path == "/home/op/caps/b"
    assert found.capsules["b"].workspace == "../out"
    assert built(environ={"SIDECAR_STATE": "~/s"}).state == "/home/op/s"
    assert built(environ={"SIDECAR_STATE": "s"}).state == "/home/op/s"


def test_a_home_that_nobody_knows_is_refused() -> None:
    """`~name` without such a user is no directory called `~name`."""
    (problem,) = refused("state: ~nobody-of-this-name/s")
    assert (
        "state: no home directory is known for ~nobody-of-this-name; write ./~nobody-of-this-name/s"
        in problem
    )


def test_single_values_of_every_kind_come_from_the_environment() -> None:
    """Numbers, flags, durations, sizes, ranges and words are read from text."""
    found = built(
        environ={
            "SIDECAR_DESK__PORT": "0",
            "SIDECAR_LISTEN__PORTS": "25000",
            "SIDECAR_LISTEN__INTERNAL_PORT": "yes",
            "SIDECAR_WATCH__FORCE_TICK": "True",
            "SIDECAR_WATCH__TICK": "1h",
            "SIDECAR_LIMITS__BODY": "2MiB",
            "SIDECAR_LIMITS__MANIFEST": "4096",
            "SIDECAR_CARD": "reference",
            "SIDECAR_LOG__LEVEL": "debug",
            "SIDECAR_TASKS__KEEP_EVENTS": "10",
        }
    )
    assert found.desk.port == 0
    assert found.listen.ports == config.PortRange(25000, 25000)
    assert found.listen.internal_port is True
    assert found.watch.force_tick is True
    assert found.watch.tick == 3600
    assert found.limits.body == 2 << 20
    assert found.limits.manifest == 4096
    assert found.card == "reference"
    assert found.log.level == "debug"
    assert found.tasks.keep_events == 10
    assert type(found.card) is str
    assert type(found.listen.advertise) is str


def test_settings_of_one_capsule_come_from_the_environment_by_its_id() -> None:
    """The id stands in the name as it is, capitals taken for small letters; it may hold double underscores."""
    found = built(
        "capsules: {hello: {card: reference}}",
        {
            "SIDECAR_CAPSULES__hello__PORT": "24500",
            "SIDECAR_CAPSULES__REPORTS__CONTAINMENT": "sealed",
            "SIDECAR_CAPSULES__a__b__DISABLED": "on",
            "SIDECAR_CAPSULES__my-agent.v2~blue__CONCURRENCY": "4",
        },
    )
    assert found.capsules["hello"] == config.CapsuleConfig(card="reference", port=24500)
    assert found.capsules["reports"].containment is Containment.SEALED
    assert found.capsules["a__b"].disabled is True
    assert found.capsules["my-agent.v2~blue"].concurrency == 4


def test_names_in_the_environment_that_match_no_key_are_left_alone() -> None:
    """Other programs use the prefix; only two underscores look meant, and are warned about."""
    found = built(
        environ={
            "SIDECAR_CAPSULE": "x",
            "SIDECAR_SERVICE_HOST": "10.0.0.1",
            "SIDECAR_PORT": "tcp://10.0.0.1:7410",
            "SIDECAR_CONFIG": "other.yaml",
            "SIDECAR_LISTEN__HSOT": "10.0.0.1",
            "SIDECAR_LISTEN__ADVERTISE": "",
            "SIDECAR_NOTHING__AT_ALL": "1",
            "SIDECAR_ROOTS": "/caps",
            "SIDECAR_LISTEN__ALLOWED_HOSTS": "a,b",
            "SIDECAR_CAPSULES__hello__INPUT_MODES": "text/html",
            "SIDECAR_CAPSULES__hello__PROT": "1",
            "OTHER__THING": "1",
        }
    )
    assert found.listen.advertise == "localhost"
    assert [str(warning) for warning in found.warnings] == [
        (
            "environment: W-CFG-009 SIDECAR_CAPSULES__hello__INPUT_MODES: is ignored: "
            "capsules.hello.input_modes takes a list; set it in the file"
        ),
        "environment: W-CFG-009 SIDECAR_CAPSULES__hello__PROT: matches no key, and is ignored",
        (
            "environment: W-CFG-009 SIDECAR_LISTEN__ALLOWED_HOSTS: is ignored: "
            "listen.allowed_hosts takes a list; set it in the file"
        ),
        (
            "environment: W-CFG-009 SIDECAR_LISTEN__HSOT: matches no key, and is ignored; "
            "did you mean SIDECAR_LISTEN__HOST?"
        ),
        "environment: W-CFG-009 SIDECAR_NOTHING__AT_ALL: matches no key, and is ignored",
        "environment: W-CFG-009 SIDECAR_ROOTS: is ignored: roots takes a list; set it in the file, or use --root",
    ]
    assert {warning.severity for warning in found.warnings} == {Severity.WARNING}


def test_a_bad_value_of_the_environment_names_its_variable() -> None:
    """All of them at once, after the problems of the file."""
    assert refused(
        "card: ful",
        {
            "SIDECAR_DESK__PORT": "0x10",
            "SIDECAR_LISTEN__HOST": "a b",
            "SIDECAR_WATCH__TICK": "2",
            "SIDECAR_WATCH__FORCE_TICK": "maybe",
            "SIDECAR_CAPSULES__A B__PORT": "24000",
        },
        config.Flags(state=" "),
    ) == [
        '/etc/sidecar/config.yaml:1:7: E-CFG-004 card: "ful" is not one of full, reference; did you mean full?',
        'environment: E-CFG-004 SIDECAR_LISTEN__HOST: "a b" is neither a host name nor an address',
        "environment: E-CFG-002 SIDECAR_DESK__PORT: must be a whole number",
        (
            'environment: E-CFG-004 SIDECAR_WATCH__TICK: "2" is no duration: a number and its unit (ms, s, m, h, d); '
            "write 2s"
        ),
        "environment: E-CFG-002 SIDECAR_WATCH__FORCE_TICK: must be true or false",
        (
            'environment: E-CFG-004 SIDECAR_CAPSULES__A B__PORT: no capsule has the id "a b": '
            "1 to 129 of a-z, 0-9, `.`, `_`, `-`, `~`; did you mean a-b?"
        ),
        "command line: E-CFG-004 --state: is blank",
    ]


def test_the_environment_does_not_hide_what_is_wrong_in_the_file() -> None:
    """A value is checked also where another one covers it."""
    assert refused("desk: {port: 70000}", {"SIDECAR_DESK__PORT": "7411"}) == [
        "/etc/sidecar/config.yaml:1:14: E-CFG-004 desk.port: must be from 0 to 65535"
    ]


def test_a_block_of_the_file_may_be_left_blank_under_the_environment() -> None:
    """What is commented out whole is all defaults, and can be covered."""
    found = built("listen:\ncapsules:\ndesk:\n", {"SIDECAR_LISTEN__HOST": "::1"})
    assert found.listen.hosts == ("::1",)
    assert found.desk.port == 7410
    assert found.capsules == {}


def test_a_capsules_own_keys_win_over_the_general_ones() -> None:
    """`settings_for` is what the registry asks for each capsule."""
    found = built("""
      roots: [{path: /caps, workspace: work}]
      listen: {host: [127.0.0.1, "::1"], advertise: box.example, internal_port: true}
      card: reference
      tasks: {concurrency: 2}
      capsules:
        hello: {port: 24500, card: full, workspace: "out/{id}", concurrency: 5, containment: scoped,
                cross_mounts: true, input_modes: [text/plain, Image/PNG, "*/*"], disabled: true}
    """)
    general = Settings(
        workspace="work",
        hosts=("127.0.0.1", "::1"),
        advertise="box.example",
        internal_port=True,
        card="reference",
        concurrency=2,
    )
    assert found.settings_for("other", "/caps/other") == general
    assert found.settings_for("hello", "/caps/hello") == Settings(
        workspace="out/{id}",
        hosts=("127.0.0.1", "::1"),
        advertise="box.example",
        port=24500,
        internal_port=True,
        card="full",
        concurrency=5,
        input_modes=("text/plain", "image/png", "*/*"),
        containment=Containment.SCOPED,
        cross_mounts=True,
        disabled=True,
    )


def test_settings_tied_to_one_directory_hold_nowhere_else() -> None:
    """A namesake elsewhere gets the general settings."""
    found = built("capsules: {hello: {path: /caps/one/, port: 24500}}")
    assert found.settings_for("hello", "/caps/one").port == 24500
    assert found.settings_for("hello", "/caps/two").port is None


def test_the_workspace_is_that_of_the_innermost_root() -> None:
    """Roots may lie within each other; a capsule may be the root itself."""
    found = built(
        "roots: [{path: /caps, workspace: a}, {path: /caps/in, workspace: b}, {path: /one, workspace: c}]"
    )
    assert found.settings_for("x", "/caps/x").workspace == "a"
    assert found.settings_for("x", "/caps/in/x").workspace == "b"
    assert found.settings_for("x", "/caps/inner/x").workspace == "a"
    assert found.settings_for("x", "/one").workspace == "c"
    assert found.settings_for("x", "/elsewhere").workspace == "."
    assert built("roots: [{path: /, workspace: r}]").settings_for("x", "/elsewhere").workspace == "r"


def test_other_parts_build_configurations_of_plain_values() -> None:
    """In code, durations are seconds, sizes bytes, and paths as they are."""
    found = config.Config(
        roots=(config.Root(path="/caps"),),
        listen=config.Listen(hosts=("::1",), ports=config.PortRange(20000, 20009)),
        watch=config.Watch(tick=0.05, settle=0.01),
        limits=config.Limits(body=100, idle=0.5),
    )
    assert (found.watch.tick, found.limits.body, found.listen.ports.last) == (0.05, 100, 20009)
    assert found.source is None


def test_what_a_message_shows_of_a_file_is_short() -> None:
    """A value or key of a hundred kilobytes does not flood the terminal."""
    long = "x" * 100_000
    for line in refused(f"{long}: 1\ncard: {long}\nstate: [{long}]\ndesk: {{port: 0{'1' * 90}}}"):
        assert len(line) < 400
