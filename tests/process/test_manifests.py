"""A spawned sidecar on real manifests from public documentation, and on ports that manifests ask for."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

from tests.support.spawned import running, write_capsule
from tests.support.waiting import until_sync

REAL = Path(__file__).parents[1] / "fixtures" / "manifests"
KINDS = {"capsules": "serving", "artifacts": "artifact", "refused": "refused"}


def test_real_manifests_are_served_listed_and_refused_from_one_root(tmp_path: Path) -> None:
    """All capsules, namesakes among them, with ids, sessions and ports of their own; artifacts and the rest are not."""
    root = tmp_path / "root"
    of: dict[str, str] = {}
    for kind in KINDS:
        for place in sorted((REAL / kind).iterdir()):
            shutil.copytree(place, root / place.name)
            of[str(root / place.name)] = kind
    with running(["--root", str(root)], state=tmp_path / "state") as sidecar:
        rows = {row["path"]: row for row in sidecar.capsules().values()}
        assert {path: row["state"] for path, row in rows.items()} == {
            path: KINDS[kind] for path, kind in of.items()
        }
        served = [row for row in rows.values() if row["state"] == "serving"]
        assert len({row["name"] for row in served}) < len(served)
        for key in ("id", "session_id", "port"):
            assert len({row[key] for row in served}) == len(served)
        for row in served:
            card = sidecar.card(row["id"])
            assert (card["name"], card["session_id"]) == (row["name"], row["session_id"])
        for path, row in rows.items():
            if of[path] == "refused":
                assert "{{ " in row["last_error"]["message"]
                assert "murmur.yaml:" in row["last_error"]["message"]


def test_a_port_of_the_manifest_is_taken_exactly_or_not_at_all(tmp_path: Path) -> None:
    """With `listen.internal_port`: busy is unbound and names the port, free is bound, none is one of the range."""
    root = tmp_path / "root"
    with socket.socket() as busy, socket.socket() as other:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        other.bind(("127.0.0.1", 0))
        taken, free = busy.getsockname()[1], other.getsockname()[1]
        other.close()
        write_capsule(root / "busy", more=f"network:\n  internal_port: {taken}\n")
        write_capsule(root / "free", more=f"network:\n  internal_port: {free}\n")
        write_capsule(root / "none")
        env = {"SIDECAR_LISTEN__INTERNAL_PORT": "true"}
        with running(["--root", str(root)], state=tmp_path / "state", env=env) as sidecar:

            def unbound() -> dict[str, Any] | None:
                row = sidecar.capsules()["busy"]
                return row if row["state"] == "unbound" and row["last_error"] else None

            row = until_sync(unbound)
            assert row is not None
            assert row["port"] is None
            assert str(taken) in row["last_error"]["message"]
            assert sidecar.port("free") == free
            assert 24000 <= sidecar.port("none") <= 31999
