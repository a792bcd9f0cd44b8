"""What keys say about each other: contradictions are refused, odd things are warned about with their place."""

from __future__ import annotations

import pytest

from sidecar import config
from sidecar.errors import InputError

KERNEL = config.PortRange(32768, 60999)


def warnings(
    text: str, environ: dict[str, str] | None = None, kernel: config.PortRange | None = None
) -> list[str]:
    """Return the warnings about a configuration that is taken."""
    found = config.build(text.encode(), "c.yaml", config.Flags(), environ or {}, cwd="/", ephemeral=kernel)
    return [str(warning) for warning in found.warnings]


def errors(text: str, environ: dict[str, str] | None = None, flags: config.Flags | None = None) -> list[str]:
    """Return the problems of a configuration that is refused."""
    with pytest.raises(InputError) as caught:
        config.build(text.encode(), "c.yaml", flags or config.Flags(), environ or {}, cwd="/")
    return [str(problem) for problem in caught.value.problems]


def test_one_port_for_two_capsules_is_refused() -> None:
    """A disabled capsule needs no port; what another variable sets is named after it."""
    two = "capsules: {a: {port: 24001}, b: {port: 24001}}"
    assert errors(two) == ["c.yaml:1:40: E-CFG-005 capsules.b.port: 24001 is capsules.a.port already"]
    assert errors("capsules: {a: {port: 24001}}", {"SIDECAR_CAPSULES__B__PORT": "24001"}) == [
        "environment: E-CFG-005 SIDECAR_CAPSULES__B__PORT: 24001 is capsules.a.port already"
    ]
    assert warnings("capsules: {a: {port: 24001, disabled: true}, b: {port: 24001}}") == []


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_the_desks_port_is_no_capsules(host: str) -> None:
    """Wherever both listen on one address."""
    text = f"{{listen: {{host: {host}}}, desk: {{port: 23000}}, capsules: {{a: {{port: 23000}}}}}}"
    assert any("E-CFG-005 capsules.a.port: 23000 is desk.port already" in line for line in errors(text))


def test_the_desks_port_may_be_a_capsules_on_another_address() -> None:
    """Two sockets do not meet on different addresses."""
    text = '{desk: {host: "::1", port: 23000}, capsules: {a: {port: 23000}}}'
    assert warnings(text) == []


def test_the_desks_port_within_the_range_of_the_capsules_is_warned_about() -> None:
    """One would find it taken by the other."""
    assert warnings("desk: {port: 24000}") == [
        (
            "c.yaml:1:14: W-CFG-007 desk.port: 24000 lies within listen.ports (24000-31999): "
            "a capsule may find it taken, or take it"
        )
    ]
    assert warnings('desk: {host: "::1", port: 24000}') == []


def test_one_root_twice_is_refused() -> None:
    """Also when it is spelt in two ways, and on the command line."""
    assert errors("roots: [{path: caps}, {path: ./caps/}]") == [
        "c.yaml:1:30: E-CFG-005 roots[1].path: the root /caps is listed twice"
    ]
    assert errors("{}", flags=config.Flags(roots=("caps", "/caps"))) == [
        "command line: E-CFG-005 --root: the root /caps is listed twice"
    ]


def test_a_wildcard_beside_an_address_that_it_covers_is_refused() -> None:
    """It could not be bound; the other family is no matter."""
    found = errors("listen: {host: [0.0.0.0, 127.0.0.1]}")
    assert found[1:] == [
        "c.yaml:1:26: E-CFG-005 listen.host[1]: 0.0.0.0 listens on 127.0.0.1 too; leave one of them out"
    ]
    assert found[0].startswith("c.yaml:1:17: W-CFG-008 listen.host[0]: whoever reaches 0.0.0.0")
    assert [line[:20] for line in warnings('listen: {host: ["::", 127.0.0.1]}')] == ["c.yaml:1:17: W-CFG-0"]


def test_ports_that_the_kernel_gives_away_are_warned_about() -> None:
    """B25: a fixed port inside `ip_local_port_range` is taken by an outgoing connection now and then."""
    text = (
        "{listen: {ports: 30000-40000}, desk: {port: 50000}, capsules: {a: {port: 41873}, b: {port: 32767}}}"
    )
    assert [line.partition(" (")[0] for line in warnings(text, kernel=KERNEL)] == [
        "c.yaml:1:18: W-CFG-006 listen.ports: 30000-40000: the kernel gives ports 32768-60999 to outgoing connections",
        "c.yaml:1:45: W-CFG-006 desk.port: 50000: the kernel gives ports 32768-60999 to outgoing connections",
        "c.yaml:1:74: W-CFG-006 capsules.a.port: 41873: the kernel gives ports 32768-60999 to outgoing connections",
    ]
    assert warnings(text) == []


def test_the_default_range_stays_below_the_kernels() -> None:
    """B25: nothing to warn about by default; where the kernel's range was widened, the default is warned about too."""
    assert warnings("{}", kernel=KERNEL) == []
    (line,) = warnings("{}", kernel=config.PortRange(15000, 65000))
    assert "W-CFG-006 listen.ports: 24000-31999: the kernel gives" in line


def test_listening_beyond_loopback_is_warned_about() -> None:
    """Nothing asks for credentials there."""
    text = '{listen: {host: ["::1", 10.0.0.1, box.example]}, desk: {host: 0.0.0.0, auth: none}}'
    assert [line.partition(": W")[2].partition(":")[0] for line in warnings(text)] == [
        "-CFG-008 listen.host[1]",
        "-CFG-008 listen.host[2]",
        "-CFG-008 desk.auth",
    ]
    assert warnings("{listen: {host: localhost}, desk: {host: 127.0.0.2, auth: none}}") == []
    (line,) = warnings("desk: {host: 0.0.0.0}")
    assert ": W-CFG-008 desk.host: " in line
    provider = "providers: [{kind: oidc, issuer: 'https://id.example.org', audience: me}]"
    assert warnings(f"{{desk: {{host: 0.0.0.0}}, listen: {{host: 0.0.0.0}}, auth: {{{provider}}}}}") == []


def test_a_warning_about_a_variable_names_it() -> None:
    """Its place is the environment, not the file."""
    (line,) = warnings("{}", {"SIDECAR_LISTEN__HOST": "0.0.0.0"})
    assert line.startswith("environment: W-CFG-008 SIDECAR_LISTEN__HOST: whoever reaches 0.0.0.0")


def test_a_warning_without_any_file_still_names_the_key() -> None:
    """`sidecar run --root DIR` where the kernel's range was widened."""
    found = config.build(
        None, None, config.Flags(roots=("/caps",)), {}, cwd="/", ephemeral=config.PortRange(15000, 65000)
    )
    (warning,) = found.warnings
    assert str(warning).startswith("defaults: W-CFG-006 listen.ports: 24000-31999")
