"""A spawned sidecar whose capsule's tasks are handed on to a door elsewhere."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.support.spawned import running, sidecar, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pathlib import Path


def test_a_door_that_is_away_shows_on_the_desk_and_in_the_list(tmp_path: Path) -> None:
    """As the capsule's last error, with no worker; the capsule itself is served, and the sidecar is ready."""
    write_capsule(tmp_path / "capsules" / "far")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and deaf
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        config = tmp_path / "config.yaml"
        config.write_text(
            "roots: [{path: capsules}]\n"
            f"capsules: {{far: {{backend: forward, forward: {{url: '{url}'}}}}}}\n"
        )
        with running(["--config", str(config)], state=tmp_path / "state") as spawned:
            spawned.event("door_away", capsule="far")
            row = until_sync(
                lambda: spawned.capsules()["far"] if spawned.capsules()["far"]["last_error"] else None
            )
            assert row is not None
            assert (row["state"], row["workers"]) == ("serving", 0)
            assert row["last_error"]["message"] == f"{url} cannot be reached: connection refused"
            listed = sidecar("list", "--state", str(tmp_path / "state"))
            assert f"{url} cannot be reached: connection refused" in listed.stdout
