"""What the planes make of mount points: run as a program in a mount namespace of its own, prints JSON.

Argument: a directory to work in. Mounts below it, so it must not be run where that would be seen.
The hashes of all files are known beforehand, those outside too: a listing must not show one for that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from sidecar.errors import RefusedError
from sidecar.planes import reading
from sidecar.planes.beneath import Openat2, Rules
from sidecar.planes.cached import Cached
from sidecar.planes.memory import Memory
from sidecar.planes.reading import Tree
from tests.support.planes import RESOLVERS, SECRET, entries, read, write


def mount(*arguments: str | Path) -> None:
    """Mount something."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def prepare(place: Path) -> None:
    """Make an export with a bind mount, a tmpfs and a bound file below it, and roots that are mounts themselves."""
    write(place / "host/secret", SECRET)
    (place / "host/up").symlink_to("../plain")
    for root in ("w/root", "w/bound-root"):
        write(place / root / "plain", b"plain")
        write(place / root / "bound/secret", b"hidden")
        write(place / root / "tmp/x", b"hidden")
        write(place / root / "file", b"hidden")
    mount("--bind", place / "w/bound-root", place / "w/bound-root")
    for root in ("w/root", "w/bound-root"):
        mount("--bind", place / "host", place / root / "bound")
        mount("-t", "tmpfs", "none", place / root / "tmp")
        write(place / root / "tmp/x", b"in tmpfs")
        mount("--bind", place / "host/secret", place / root / "file")
        (place / root / "to-bound").symlink_to("bound/secret")


def looked(place: Path) -> dict[str, dict[str, str | list[str]]]:
    """Read and list with each resolver, with and without permission to cross."""
    found: dict[str, dict[str, str | list[str]]] = {}
    memory = Memory(now_ns=lambda: 2**62)
    for known in ("w/root", "w/bound-root", "host"):
        entries(
            RESOLVERS["openat2"](), Tree(str(place), known.encode(), Rules(links=True, mounts=True)), memory
        )
    for name, make in RESOLVERS.items():
        resolver = make()
        for root in ("root", "bound-root"):
            for mounts in (False, True):
                tree = Tree(str(place / "w"), root.encode(), Rules(links=True, mounts=mounts))
                seen: dict[str, str | list[str]] = {}
                for path in ("plain", "bound/secret", "tmp/x", "file", "bound", "to-bound", "bound/up"):
                    try:
                        seen[path] = read(resolver, tree, path.encode(), 1000, memory).data.decode()
                    except RefusedError as error:
                        seen[path] = error.refusal.code
                seen["listing"] = [entry.path for entry in entries(resolver, tree, memory)]
                found[f"{name} {root} {'cross' if mounts else 'stay'}"] = seen
    return found


def quickly(place: Path) -> list[str]:
    """Return which files the quick way reads once it has seen the tree."""
    found, cached = [], Cached()
    for root in ("root", "bound-root"):
        for mounts in (False, True):
            tree = Tree(str(place / "w"), root.encode(), Rules(links=True, mounts=mounts))
            reading.read(Openat2(), tree, b"plain", 1000, Memory(), cached.learn)
            for path in ("plain", "bound/secret", "tmp/x", "file", "to-bound", "bound/up"):
                content = cached.read(tree, path.encode(), 1000)
                if content is not None:
                    found.append(f"{root} {path} {content.data.decode()}")
    return found


def elsewhere(place: Path) -> list[str]:
    """Serve a workspace on a file system of its own, that comes, goes and comes back under the served capsule."""
    workspace = place / "elsewhere"
    workspace.mkdir()
    tree = Tree(str(workspace), b"out", Rules(links=True, mounts=False))
    resolver, seen = RESOLVERS["openat2"](), []

    def look() -> None:
        try:
            seen.append(read(resolver, tree, b"f", 1000, Memory()).data.decode())
        except RefusedError as error:
            seen.append(error.refusal.code)
        seen.append(",".join(entry.path for entry in entries(resolver, tree, Memory())))

    look()
    mount("-t", "tmpfs", "none", workspace)
    write(workspace / "out/f", b"on the disk")
    look()
    subprocess.run(["umount", workspace], check=True)
    look()
    mount("-t", "tmpfs", "none", workspace)
    write(workspace / "out/f", b"another")
    look()
    held = (workspace / "out/f").open("rb")
    subprocess.run(["umount", "--lazy", workspace], check=True)
    look()
    held.close()
    return seen


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
    where = Path(sys.argv[1])
    told = {**looked(where), "quickly": quickly(where), "elsewhere": elsewhere(where)}
    json.dump(told, sys.stdout)
