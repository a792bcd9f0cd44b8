"""What the environment says about the service manager."""

from __future__ import annotations

import pytest

from sidecar.ops.notify import Notifier, watchdog_interval


def test_without_a_manager_every_notice_is_a_no_op() -> None:
    """With NOTIFY_SOCKET unset or empty nothing is sent and nothing fails."""
    for environ in ({}, {"NOTIFY_SOCKET": ""}):
        notifier = Notifier.from_environ(environ)
        assert not notifier.active
        sent = [notifier.ready(), notifier.reloading(), notifier.stopping(), notifier.status("x")]
        assert not any([*sent, notifier.watchdog()])


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": ""}, 15.0),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "1e6"}, None),
        ({"WATCHDOG_USEC": "³"}, None),
    ],
)
def test_the_watchdog_is_fed_twice_per_limit_if_it_watches_us(
    environ: dict[str, str], interval: float | None
) -> None:
    """Half of WATCHDOG_USEC in seconds, if WATCHDOG_PID is ours or unset; nonsense means no watchdog."""
    assert watchdog_interval(environ, pid=42) == interval


@pytest.mark.parametrize("address", ["/nowhere/notify", "vsock:2:1234", "/tmp/" + "x" * 200, "@\0"])
def test_a_manager_that_cannot_be_reached_costs_nothing(address: str) -> None:
    """A wrong, unsupported or overlong address is a notice that was not handed over, no error."""
    assert not Notifier(address).ready()
