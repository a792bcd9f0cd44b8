"""A workspace with an export, and requests to its planes without a socket."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from sidecar.errors import RefusedError
from sidecar.model import Answer, Capsule, Containment, FilesExport, Manifest, PeerFilesExport, Settings
from sidecar.planes import listing, reading
from sidecar.planes.beneath import Openat2, Walk, mount_by_fdinfo
from sidecar.web.answers import Streamed, refusal_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sidecar.planes.beneath import Resolver
    from sidecar.planes.memory import Memory
    from sidecar.planes.reading import Tree
    from sidecar.planes.routes import Planes
    from sidecar.web.answers import Body

SECRET = b"SECRET-of-the-neighbour"
SECRET_SHA = hashlib.sha256(SECRET).hexdigest()

RESOLVERS: Mapping[str, Callable[[], Resolver]] = {
    "openat2": Openat2,
    "walk": Walk,
    "walk-fdinfo": lambda: Walk(mount_by_fdinfo),
}
CLASSES = tuple(Containment)
FOLLOWING = (Containment.ADVISORY, Containment.SEALED)


def capsule(
    workspace: Path,
    *,
    files: FilesExport | None = FilesExport("out/"),  # noqa: B008 -- frozen
    peer: PeerFilesExport | None = None,
    containment: Containment = Containment.ADVISORY,
    cross_mounts: bool = False,
    session_id: str = "ses_1",
) -> Capsule:
    """Make a capsule whose exports lie in `workspace`."""
    return Capsule(
        id="a",
        directory=str(workspace),
        session_id=session_id,
        manifest=Manifest(name="a", version="1", containment=containment, files=files, peer_files=peer),
        settings=Settings(cross_mounts=cross_mounts),
        workspace=str(workspace),
        changed_at=0.0,
        port=24000,
    )


async def ask(
    planes: Planes,
    served: Capsule,
    target: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    generation: int = 0,
) -> Answer:
    """Send a raw target; a refusal comes back as the answer it is sent as, and a body in pieces whole."""
    try:
        answer = await planes.answer(served, method, target, (headers or {}).get, generation)
        return (
            Answer(answer.status, answer.headers, await drained(answer.body))
            if isinstance(answer, Streamed)
            else answer
        )
    except RefusedError as error:
        return refusal_answer(error.refusal)


async def drained(body: Body) -> bytes:
    """Take a body as a client would that reads at once, and close it."""
    pieces = []
    try:
        while piece := await body.next():
            pieces.append(piece)
    finally:
        body.close()
    whole = b"".join(pieces)
    assert len(whole) == body.length
    return whole


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a listing."""

    path: str
    size_bytes: int
    mtime_ms: int
    sha256: str


def entries(
    resolver: Resolver, tree: Tree, memory: Memory, stopped: Callable[[], bool] = lambda: False, **limits: int
) -> list[Entry]:
    """List a tree without a capsule. Raises RefusedError."""
    written = b"".join(listing.pieces(resolver, tree, memory, stopped, **limits))
    return [Entry(**entry) for entry in orjson.loads(b"[" + written + b"]")]


def told(answer: Answer) -> tuple[int, str]:
    """Return status and error code of a refusal, whose body must have the one shape and name no host path."""
    document: Any = orjson.loads(answer.body)
    assert list(document) == ["error", "message"]
    assert "/tmp" not in document["message"]
    return answer.status, document["error"]


def header(answer: Answer, name: str) -> str | None:
    """Return a header, which must be there once at most."""
    found = [value for key, value in answer.headers if key == name]
    assert len(found) <= 1
    return found[0] if found else None


def paths_listed(answer: Answer) -> list[str]:
    """Return the paths of a listing."""
    assert answer.status == 200, answer.body
    return [entry["path"] for entry in orjson.loads(answer.body)["entries"]]


def write(path: Path, data: bytes = b"x") -> Path:
    """Write a file and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read(resolver: Resolver, tree: Tree, path: bytes, max_bytes: int, memory: Memory) -> reading.Content:
    """Read a file that is small enough to be held. Raises RefusedError."""
    content = reading.read(resolver, tree, path, max_bytes, memory)
    assert isinstance(content, reading.Content)
    return content


def contested(place: Path) -> Path:
    """Make an export, secrets in its workspace and beside that, and links that wait for their turn; returns the workspace."""
    workspace = place / "w"
    write(place / "outside/f", SECRET)
    for name in ("outside/f", "outside/a/f"):
        write(workspace / name, SECRET)
    for name in ("root/file", "root/dir/f", "root/deep/a/f", "real/f"):
        write(workspace / name, b"inside")
    for name, target in {
        "link-out": "../outside",
        "link-up": "../../../outside",
        "link-outside": "../outside",
        "link-far": str(place / "outside"),
        "link-abs": str(workspace / "outside"),
        "root/link": "dir",
        "root/deep/a/up": "../..",
    }.items():
        (workspace / name).symlink_to(target)
    return workspace
