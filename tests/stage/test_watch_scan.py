"""The scan on real directories, with a clock of the test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sidecar.watch.scan import Look, Scanner, Snapshot
from tests.support.watching import LIMIT, Content, RootAt, remove, replace, shown, write

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTLE = 10.0
GRACE = 100.0


class Scan:
    """A scanner and its clock: `settled` looks, waits for the settle window and looks again."""

    def __init__(self, *roots: Path | RootAt, files: Iterable[str] = ()) -> None:
        self.now = 0.0
        self.loads = 0
        self.last: Snapshot[Content] | None = None
        self.scanner = Scanner(
            [root if isinstance(root, RootAt) else RootAt(str(root)) for root in roots],
            load=self.load,
            max_bytes=LIMIT,
            settle=SETTLE,
            grace=GRACE,
            files=files,
            clock=lambda: self.now,
        )

    def load(self, data: bytes, path: str) -> Content:
        """Count how often something is loaded."""
        self.loads += 1
        return Content(data, path)

    def look(self, *hints: Path, partial: bool = False) -> Look[Content]:
        """Look at everything, or where the hints say; `partial` without hints only at what is pending."""
        look = self.scanner.look([str(hint) for hint in hints] if hints or partial else None)
        self.last = look.snapshot or self.last
        return look

    def settled(self, *hints: Path) -> Snapshot[Content]:
        """Look, let the settle window pass, and look again."""
        self.look(*hints)
        self.now += SETTLE + 1
        self.look(partial=True)
        assert self.last is not None
        return self.last

    @property
    def texts(self) -> dict[str, str | None]:
        """The texts of the newest snapshot."""
        return shown(self.last) if self.last else {}


def test_the_first_snapshot_holds_all_that_stood_still(tmp_path: Path) -> None:
    """At start too a file is taken only after the settle window, and then all at once."""
    write(tmp_path / "a", "1")
    write(tmp_path / "b", "2")
    scan = Scan(tmp_path)
    look = scan.look()
    assert (look.snapshot, look.due) == (None, SETTLE)
    scan.now = SETTLE - 1
    assert scan.look(partial=True).snapshot is None
    scan.now = SETTLE + 1
    assert scan.look(partial=True).snapshot is not None
    assert scan.texts == {str(tmp_path / "a"): "1", str(tmp_path / "b"): "2"}


def test_without_capsules_the_first_look_is_enough(tmp_path: Path) -> None:
    """Nothing has to stand still where nothing is."""
    look = Scan(tmp_path).look()
    assert look.snapshot is not None
    assert look.due is None


def test_a_file_that_is_being_written_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """The first snapshot comes without the manifest that never stands still."""
    write(tmp_path / "a", "1")
    busy = write(tmp_path / "b", "2")
    scan = Scan(tmp_path)
    scan.look()
    for _ in range(5):
        scan.now += SETTLE / 4 + 0.1
        busy.write_text(busy.read_text() + "+")
        scan.look(partial=True)
    assert scan.texts == {str(tmp_path / "a"): "1"}
    assert scan.settled().found.keys() == {str(tmp_path / "a"), str(tmp_path / "b")}


def test_a_writer_that_pauses_less_than_the_window_is_never_seen_half_way(tmp_path: Path) -> None:
    """The window counts from the last write, not from the first."""
    manifest = write(tmp_path / "a", "old")
    scan = Scan(tmp_path)
    scan.settled()
    for part in ("", "n", "ne", "new"):
        manifest.write_text(part)
        scan.look(manifest)
        scan.now += SETTLE - 1
        scan.look(partial=True)
        assert scan.texts == {str(tmp_path / "a"): "old"}
    scan.now += 1
    scan.look(partial=True)
    assert scan.texts == {str(tmp_path / "a"): "new"}


def test_a_touch_is_no_change(tmp_path: Path) -> None:
    """Another identity with the same bytes gives no snapshot, loads nothing and keeps the content object."""
    manifest = write(tmp_path / "a", "1")
    scan = Scan(tmp_path)
    before = scan.settled()
    os.utime(manifest, (1, 1))
    replace(tmp_path / "a", "1")
    assert scan.settled() is before
    assert scan.loads == 1
    write(tmp_path / "b", "2")
    after = scan.settled()
    assert after.found[str(tmp_path / "a")].content is before.found[str(tmp_path / "a")].content
    assert after.found[str(tmp_path / "a")].identity != before.found[str(tmp_path / "a")].identity


def test_an_emptied_manifest_is_new_content_and_a_removed_one_is_gone(tmp_path: Path) -> None:
    """B12 (prometheus/prometheus#8202): neither keeps what was there before for ever."""
    manifest = write(tmp_path / "a", "1")
    scan = Scan(tmp_path)
    scan.settled()
    manifest.write_bytes(b"")
    assert scan.settled().found[str(tmp_path / "a")].content == Content(b"", str(manifest))
    manifest.unlink()
    scan.look()
    assert scan.texts == {}


def test_a_manifest_that_comes_back_with_the_same_bytes_has_the_same_content(tmp_path: Path) -> None:
    """An editor that removes and writes costs no reload."""
    manifest = write(tmp_path / "a", "1")
    scan = Scan(tmp_path)
    before = scan.settled().found[str(tmp_path / "a")]
    manifest.unlink()
    scan.look()
    manifest.write_text("1")
    assert scan.settled().found[str(tmp_path / "a")].content is before.content


def test_no_more_is_read_of_a_manifest_than_shows_that_it_is_too_large(tmp_path: Path) -> None:
    """The loader gets one byte more than the limit and says the rest."""
    write(tmp_path / "a", "x" * 5 * LIMIT)
    content = Scan(tmp_path).settled().found[str(tmp_path / "a")].content
    assert content is not None
    assert len(content.data) == LIMIT + 1


@pytest.mark.parametrize("kind", ["fifo", "directory", "socket", "device"])
def test_a_manifest_that_is_no_regular_file_is_an_error_and_blocks_nothing(tmp_path: Path, kind: str) -> None:
    """Special files are never opened."""
    manifest = tmp_path / "a" / "murmur.yaml"
    manifest.parent.mkdir()
    if kind == "fifo":
        os.mkfifo(manifest)
    elif kind == "directory":
        manifest.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(manifest))
    else:
        manifest.symlink_to("/dev/zero")
    scan = Scan(tmp_path)
    found = scan.settled().found[str(manifest.parent)]
    assert found.content is None
    assert found.error
    assert "is not a regular file" in found.error
    assert scan.look().due is None


def test_a_manifest_that_cannot_be_read_is_an_error_until_it_can(tmp_path: Path) -> None:
    """Unreadable is not absent, whatever shows on the file itself; afterwards its content is the one from before."""
    manifest = write(tmp_path / "a", "1")
    scan = Scan(tmp_path)
    before = scan.settled().found[str(tmp_path / "a")].content
    manifest.rename(tmp_path / "aside")
    manifest.symlink_to("/proc/self/mem")
    found = scan.settled().found[str(tmp_path / "a")]
    assert found.error == "cannot be read: Input/output error"
    assert (found.content, found.identity, found.digest) == (None, None, "")
    count = scan.last
    assert scan.settled() is count
    (tmp_path / "aside").rename(manifest)
    assert scan.settled().found[str(tmp_path / "a")].content is before


def test_a_manifest_that_is_a_link_loop_is_an_error_from_the_start(tmp_path: Path) -> None:
    """Somebody meant a manifest to be there."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "murmur.yaml").symlink_to("murmur.yaml")
    found = Scan(tmp_path).settled().found[str(tmp_path / "a")]
    assert found.error
    assert "leads back to itself" in found.error


def test_a_manifest_that_is_a_link_to_nothing_is_an_error_from_the_start(tmp_path: Path) -> None:
    """Somebody meant a manifest to be there; it is taken as soon as there is one, and gone with the link."""
    (tmp_path / "a").mkdir()
    manifest = tmp_path / "a" / "murmur.yaml"
    manifest.symlink_to(tmp_path / "later")
    scan = Scan(tmp_path)
    found = scan.settled().found[str(tmp_path / "a")]
    assert found.content is None
    assert found.error == (
        "cannot be read: No such file or directory (it is a link that leads nowhere; mend it, or remove it)"
    )
    count = scan.last
    assert scan.settled() is count
    (tmp_path / "later").write_text("1")
    assert shown(scan.settled()) == {str(tmp_path / "a"): "1"}
    (tmp_path / "later").unlink()
    assert shown(scan.settled()) == {str(tmp_path / "a"): None}
    manifest.unlink()
    assert shown(scan.settled()) == {}
    manifest.symlink_to(tmp_path / "a" / "new" / "murmur.yaml")
    (tmp_path / "a" / "new").touch()
    assert "Not a directory (it is a link" in (scan.settled().found[str(tmp_path / "a")].error or "")


def test_a_loader_that_fails_spoils_only_its_own_capsule(tmp_path: Path) -> None:
    """A fault of ours in one file must not stop the watch of the others."""
    write(tmp_path / "a", "good")
    write(tmp_path / "b", "bad")

    def load(data: bytes, path: str) -> Content:
        if data == b"bad":
            raise ZeroDivisionError(path)
        return Content(data, path)

    now = [0.0]
    scanner = Scanner(
        [RootAt(str(tmp_path))], load=load, max_bytes=9, settle=0, grace=0, clock=lambda: now[0]
    )
    snapshot = scanner.look().snapshot
    assert snapshot is not None
    assert shown(snapshot) == {str(tmp_path / "a"): "good", str(tmp_path / "b"): None}
    assert "ZeroDivisionError" in (snapshot.found[str(tmp_path / "b")].error or "")


# Roots


def test_a_root_that_cannot_be_read_keeps_its_capsules(tmp_path: Path) -> None:
    """Unreadable is not absent: what was found goes on, and the root says why; later it is looked at again."""
    write(tmp_path / "real" / "a", "1")
    root = tmp_path / "root"
    root.symlink_to("real")
    scan = Scan(root)
    scan.settled()
    root.unlink()
    root.symlink_to("root")
    after = scan.settled()
    assert shown(after) == {str(root / "a"): "1"}
    assert after.unreadable == {str(root)}
    error = after.roots[0].last_error
    assert error is not None
    assert "leads back to itself" in error.message
    scan.scanner.configure([RootAt(str(root), 2)], files=())
    assert shown(scan.settled()) == {str(root / "a"): "1"}
    root.unlink()
    root.symlink_to("real")
    write(root / "a", "2")
    after = scan.settled()
    assert shown(after) == {str(root / "a"): "2"}
    assert (after.unreadable, after.roots[0].last_error) == (frozenset(), None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can put its rights aside")
def test_rights_that_were_taken_away_are_errors_and_not_absences(tmp_path: Path) -> None:
    """A manifest, a capsule directory and a root without rights: each goes on, each says why."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    root = tmp_path / "root"
    manifest = write(root / "a", "1")
    write(root / "b", "2")
    write(root / "lost+found", "")
    (root / "lost+found" / "murmur.yaml").unlink()
    scan = Scan(root)
    scan.settled()
    try:
        manifest.chmod(0)
        (root / "b").chmod(0)
        (root / "lost+found").chmod(0)
        os.seteuid(65534)
        after = scan.settled()
        assert shown(after) == {str(root / "a"): None, str(root / "b"): None}
        assert after.unreadable == {str(root / "lost+found")}
        assert after.roots[0].last_error is None
        assert "let the user that runs the sidecar read it" in (after.found[str(root / "a")].error or "")
        os.seteuid(0)
        root.chmod(0)
        os.seteuid(65534)
        after = scan.settled()
        assert after.unreadable >= {str(root)}
        assert after.found.keys() == {str(root / "a"), str(root / "b")}
        assert after.roots[0].last_error is not None
    finally:
        os.seteuid(0)
        for path in (root, root / "b", root / "lost+found", manifest):
            path.chmod(0o755)
    after = scan.settled()
    assert (shown(after), after.unreadable) == ({str(root / "a"): "1", str(root / "b"): "2"}, frozenset())


def test_a_root_may_come_later_go_and_come_again(tmp_path: Path) -> None:
    """A missing root is an error of the root, and its capsules are gone."""
    root = tmp_path / "x" / "root"
    scan = Scan(root)
    assert scan.look().snapshot is not None
    assert scan.last is not None
    assert scan.last.roots[0].last_error is not None
    assert "does not exist" in scan.last.roots[0].last_error.message
    write(root / "a", "1")
    after = scan.settled()
    assert (shown(after), after.roots[0].last_error) == ({str(root / "a"): "1"}, None)
    remove(root.parent)
    scan.look()
    assert scan.texts == {}
    root.parent.write_text("not a directory")
    scan.look()
    assert scan.last.roots[0].last_error is not None
    assert scan.last.unreadable == frozenset()


def test_a_root_that_is_a_file_says_so(tmp_path: Path) -> None:
    """The message says what to name instead."""
    root = tmp_path / "root"
    root.touch()
    snapshot = Scan(root).look().snapshot
    assert snapshot is not None
    assert snapshot.roots[0].last_error is not None
    assert "is not a directory" in snapshot.roots[0].last_error.message


def test_a_root_that_is_a_link_is_followed_where_it_leads_now(tmp_path: Path) -> None:
    """A deployment swaps the link: one set of capsules goes, the other comes, and the places to watch move."""
    write(tmp_path / "v1" / "a", "1")
    write(tmp_path / "v2" / "a", "2")
    write(tmp_path / "v2" / "b", "3")
    root = tmp_path / "root"
    root.symlink_to("v1")
    scan = Scan(root)
    scan.settled()
    (tmp_path / "new").symlink_to("v2")
    (tmp_path / "new").rename(root)
    look = scan.look(root)
    assert look.places is not None
    assert look.places[str(root)][1] == (tmp_path / "v2").stat().st_ino
    assert shown(scan.settled()) == {str(root / "a"): "2", str(root / "b"): "3"}


# Where capsules are looked for


def test_depth_says_how_far_below_the_root_capsules_are_looked_for(tmp_path: Path) -> None:
    """0 is the root alone; what lies deeper than the depth is not found."""
    write(tmp_path / "a", "1")
    write(tmp_path / "x" / "b", "2")
    write(tmp_path / "x" / "y" / "c", "3")
    a, b, c = (str(tmp_path / p) for p in ("a", "x/b", "x/y/c"))
    for depth, found in enumerate([set(), {a}, {a, b}, {a, b, c}]):
        assert Scan(RootAt(str(tmp_path), depth)).settled().found.keys() == found


def test_a_capsule_is_not_descended_into(tmp_path: Path) -> None:
    """What its workspace holds are files, not capsules; a root that holds a manifest is one capsule."""
    write(tmp_path / "a" / "workspace", "inner")
    write(tmp_path / "a", "outer")
    assert Scan(RootAt(str(tmp_path), 3)).settled().found.keys() == {str(tmp_path / "a")}
    assert Scan(RootAt(str(tmp_path / "a"), 3)).settled().found.keys() == {str(tmp_path / "a")}


def test_a_capsule_whose_manifest_is_gone_is_descended_into_only_after_the_grace(tmp_path: Path) -> None:
    """A manifest that is being replaced does not turn the files of its workspace into capsules."""
    write(tmp_path / "a" / "inner", "2")
    manifest = write(tmp_path / "a", "1")
    scan = Scan(RootAt(str(tmp_path), 2))
    scan.settled()
    manifest.unlink()
    assert scan.settled(manifest).found == {}
    assert scan.settled().found == {}
    write(tmp_path / "a", "1")
    assert scan.settled().found.keys() == {str(tmp_path / "a")}
    manifest.unlink()
    look = scan.look()
    assert look.due == scan.now + GRACE
    scan.now += GRACE
    scan.look(partial=True)
    assert scan.settled().found.keys() == {str(tmp_path / "a" / "inner")}
    write(tmp_path / "a", "1")
    assert scan.settled().found.keys() == {str(tmp_path / "a")}


def test_links_to_capsules_are_followed_but_never_back_to_a_directory_above(tmp_path: Path) -> None:
    """A loop of links ends where it begins."""
    root = tmp_path / "root"
    write(tmp_path / "elsewhere", "1")
    write(root / "x" / "real", "2")
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "dangling").symlink_to("nothing")
    (root / "loop").symlink_to("loop")
    (root / "self").symlink_to(".")
    (root / "x" / "up").symlink_to("..")
    found = Scan(RootAt(str(root), 6)).settled().found
    assert found.keys() == {str(root / "link"), str(root / "x" / "real")}


def test_the_inside_of_a_kubernetes_volume_is_passed_over(tmp_path: Path) -> None:
    """B05 (jimmidyson/configmap-reload#190): entries that begin with `..` are not capsules, and a swap is seen."""
    for version in ("1", "2"):
        write(tmp_path / f"..v{version}" / "a", version)
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "a").symlink_to("..data/a")
    scan = Scan(tmp_path)
    assert shown(scan.settled()) == {str(tmp_path / "a"): "1"}
    (tmp_path / "..data_tmp").symlink_to("..v2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert shown(scan.settled(tmp_path / "..data")) == {str(tmp_path / "a"): "2"}


def test_names_need_not_be_utf8(tmp_path: Path) -> None:
    """Such a directory is found under its surrogate-escaped path."""
    name = os.fsdecode(b"caf\xe9")
    write(tmp_path / name, "1")
    found = Scan(tmp_path).settled().found
    assert [os.fsencode(path) for path in found] == [os.fsencode(tmp_path) + b"/caf\xe9"]


def test_other_roots_keep_what_is_in_both(tmp_path: Path) -> None:
    """After a change of the configuration nothing that stays is loaded again, and what is left out is gone."""
    write(tmp_path / "x" / "a", "1")
    write(tmp_path / "y" / "b", "2")
    scan = Scan(tmp_path / "x", tmp_path / "y")
    before = scan.settled()
    scan.scanner.configure([RootAt(str(tmp_path / "y")), RootAt(str(tmp_path), 2)], files=())
    both = scan.settled()
    assert dict(both.found) == dict(before.found)
    scan.scanner.configure([RootAt(str(tmp_path / "y"))], files=())
    after = scan.settled()
    assert after.found == {str(tmp_path / "y" / "b"): before.found[str(tmp_path / "y" / "b")]}
    assert scan.loads == 2
    assert [root.path for root in after.roots] == [str(tmp_path / "y")]


def test_a_directory_that_becomes_a_root_is_looked_into_as_that(tmp_path: Path) -> None:
    """It was as deep as a look went; as a root it holds capsules, which a hint finds after any number of looks."""
    (tmp_path / "b").mkdir()
    scan = Scan(tmp_path)
    scan.settled()
    scan.scanner.configure([RootAt(str(tmp_path / "b")), RootAt(str(tmp_path))], files=())
    for _ in range(3):
        scan.look()
    write(tmp_path / "b" / "late", "1")
    assert list(shown(scan.settled(tmp_path / "b" / "late")).values()) == ["1"]


def test_a_root_in_a_root_is_found_once_and_goes_with_either(tmp_path: Path) -> None:
    """Overlapping roots show a capsule once, also when a hint concerns both."""
    write(tmp_path / "x" / "a", "1")
    scan = Scan(RootAt(str(tmp_path), 2), tmp_path / "x")
    assert shown(scan.settled()) == {str(tmp_path / "x" / "a"): "1"}
    remove(tmp_path / "x")
    scan.look(tmp_path / "x")
    assert scan.texts == {}
    write(tmp_path / "x" / "a", "2")
    assert shown(scan.settled(tmp_path / "x")) == {str(tmp_path / "x" / "a"): "2"}


def test_another_loader_reads_everything_again(tmp_path: Path) -> None:
    """A changed limit for manifests counts for those that did not change."""
    write(tmp_path / "a", "12345")
    scan = Scan(tmp_path)
    scan.settled()
    scan.scanner.configure([RootAt(str(tmp_path))], files=(), max_bytes=3)
    assert shown(scan.settled()) == {str(tmp_path / "a"): "1234"}


def test_further_files_have_an_identity_once_they_stand_still(tmp_path: Path) -> None:
    """The configuration file settles like a manifest, its removal included."""
    file = tmp_path / "config.yaml"
    file.write_text("1")
    scan = Scan(tmp_path / "root", files=[str(file)])
    assert scan.look().snapshot is None
    first = scan.settled().files[str(file)]
    assert first is not None
    assert (first.ino, first.size) == (file.stat().st_ino, 1)
    file.write_text("12")
    scan.look(file)
    assert scan.last is not None
    assert scan.last.files[str(file)] == first
    second = scan.settled().files[str(file)]
    assert second is not None
    assert second.size == 2
    file.unlink()
    assert scan.settled().files == {str(file): None}


# Hints


def test_a_hint_has_only_its_own_place_looked_at(tmp_path: Path) -> None:
    """The cost of one change does not grow with the capsules: the others are not even looked at."""
    write(tmp_path / "a", "1")
    write(tmp_path / "b", "1")
    scan = Scan(tmp_path)
    scan.settled()
    write(tmp_path / "a", "2")
    write(tmp_path / "b", "2")
    write(tmp_path / "c", "2")
    assert shown(scan.settled(tmp_path / "a" / "murmur.yaml"))[str(tmp_path / "b")] == "1"
    assert scan.texts == {str(tmp_path / "a"): "2", str(tmp_path / "b"): "1"}
    assert shown(scan.settled(tmp_path / "c")) == {
        str(tmp_path / "a"): "2",
        str(tmp_path / "b"): "1",
        str(tmp_path / "c"): "2",
    }
    remove(tmp_path / "a")
    scan.look(tmp_path / "a")
    assert scan.texts.keys() == {str(tmp_path / "b"), str(tmp_path / "c")}


def test_a_hint_in_one_place_concerns_all_paths_that_lead_there(tmp_path: Path) -> None:
    """The kernel watches inodes, and its events name one of the paths only."""
    write(tmp_path / "v1", "1")
    (tmp_path / "current").symlink_to("v1")
    scan = Scan(tmp_path)
    scan.settled()
    write(tmp_path / "v1", "2")
    assert shown(scan.settled(tmp_path / "current" / "murmur.yaml")) == {
        str(tmp_path / "current"): "2",
        str(tmp_path / "v1"): "2",
    }


def test_too_many_hints_ask_for_a_look_at_everything(tmp_path: Path) -> None:
    """A flood in a root is answered by one walk; a flood in a capsule is one place."""
    write(tmp_path / "a", "1")
    scan = Scan(tmp_path)
    scan.settled()
    assert scan.look(*(tmp_path / f"{n}" for n in range(1000))).too_many
    assert not scan.look(*(tmp_path / "a" / f"{n}" for n in range(1000))).too_many


STALE = """
import pathlib, subprocess, sys
sys.path[:0] = {path!r}
from sidecar.watch.scan import Scanner
from tests.support.watching import RootAt
outside, inside = pathlib.Path({outside!r}), pathlib.Path({inside!r})
subprocess.run(["mount", "--bind", outside, inside / "a" / "murmur.yaml"], check=True)
scanner = Scanner([RootAt(str(inside))], load=lambda data, path: data, max_bytes=99, settle=0, grace=0)
found = scanner.look().snapshot.found[str(inside / "a")]
assert found.content == b"old" and found.warning is None, found
outside.with_name("new").write_text("new")
outside.with_name("new").rename(outside)
found = scanner.look().snapshot.found[str(inside / "a")]
assert found.content == b"old" and found.error is None, found
print(found.warning)
"""


@pytest.mark.machine
def test_a_mounted_file_that_was_replaced_outside_is_warned_about(tmp_path: Path) -> None:
    """B07 (traefik/traefik#5589): the mount keeps the old file, which has no name any more; the warning says so."""
    outside = tmp_path / "murmur.yaml"
    outside.write_text("old")
    write(tmp_path / "caps" / "a", "")
    script = STALE.format(path=sys.path, outside=str(outside), inside=str(tmp_path / "caps"))
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "mount the directory that holds the file" in done.stdout, done.stderr
