"""What the record of the planes says, and what it never does."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from sidecar.planes.audit import BURST, Audit
from sidecar.planes.handles import Claims, mint

TOKEN = mint(b"k" * 32, Claims("ses_1", "out/report.md", 1_800_000_000_000, "ab" * 16), "reader@host:1")
REST = TOKEN.removeprefix("mh1.")


@pytest.mark.parametrize(
    "path",
    [
        TOKEN,
        "a/" + TOKEN,
        "x" + TOKEN,
        REST,
        "mh1/" + REST,
        "mh1%2e" + REST,
        "%6dh1." + REST,
        "mh1." + REST.replace(".", "%2E"),
        "mh1." + REST.replace(".", "%252e"),
    ],
)
def test_a_handle_that_was_sent_to_the_wrong_plane_is_not_on_record(path: str) -> None:
    """However it is spelled: whoever reads the log could use it."""
    mac = TOKEN.rpartition(".")[2]
    with capture_logs() as logged:
        Audit().files("a", path, "not_found")
    (line,) = logged
    assert mac not in str(line)


def test_a_path_is_on_record_decoded() -> None:
    """So that a reader of the log sees the file, not a spelling of it."""
    with capture_logs() as logged:
        Audit().files("a", "sub%20dir/report.md", "ok", 3)
    assert logged[0]["path"] == "sub dir/report.md"


def test_a_long_quiet_leaves_no_more_than_one_allowance() -> None:
    """What came back meanwhile is not had on top of what was there."""
    now = [0.0]
    audit = Audit(lambda: now[0])
    with capture_logs() as logged:
        audit.files("a", "f", "not_found")
        now[0] = 1e6
        for _ in range(3 * BURST):
            audit.files("a", "f", "not_found")
    assert len(logged) == 1 + BURST
