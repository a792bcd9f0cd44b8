"""Takes the guards of docs/threat-model.md away, one by one, and shows that the tests of the row then fail.

`python -m tests.mutations [ROW…]` works in copies of the project, two at a time, and exits with 1 where a test does
not notice, or a patch no longer fits the code. `unit/test_threat_model.py` checks that the patches fit.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1]
DOCUMENT: Final = PROJECT / "docs" / "threat-model.md"
COPIED: Final = ("sidecar", "tests", "docs", "examples", "pyproject.toml", "README.md", "config.example.yaml")
AT_ONCE: Final = 2
LONGEST: Final = 120.0


@dataclass(frozen=True, slots=True)
class Mutation:
    """A guard taken away: the row it belongs to, the file, and each text with what takes its place.

    `test` is the one of the row's tests that is to notice; by default any of them may.
    """

    row: str
    file: str
    edits: tuple[tuple[str, str], ...]
    test: str = ""


def _one(row: str, file: str, old: str, new: str, *, test: str = "") -> Mutation:
    return Mutation(row, f"sidecar/{file}.py", ((old, new),), test)


def _off(row: str, file: str, *conditions: str, test: str = "") -> Mutation:
    """Take away what these conditions guard: they never hold any more."""
    edits = tuple((f"if {condition}:\n", "if False:\n") for condition in conditions)
    return Mutation(row, f"sidecar/{file}.py", edits, test)


MUTATIONS: Final = (
    _off("P1", "planes/paths", 'not {b"", b".", b".."}.isdisjoint(path.split(b"/"))'),
    _one("P2", "planes/paths", 'b"\\0" in path or ', "", test="test_a_badly_shaped_path_is_outside_the_root"),
    _one("P3", "planes/beneath", "resolve = _BENEATH | _NO_MAGICLINKS", "resolve = _NO_MAGICLINKS", test="test_a_link_out_of_the_root_is_refused_and_never_listed"),
    _one(
        "P4",
        "planes/reading",
        "return reopen(handle), facts",
        "[os.sched_yield() for _ in range(20)]\n"
        "        return os.open(os.path.join(os.fsencode(tree.workspace), tree.root, path), os.O_RDONLY), facts",
        test="test_no_byte_from_outside_is_served_whatever_races",
    ),
    _one(
        "P5",
        "planes/reading",
        "return resolver.open(workspace, self.root, _ON_THE_WAY, os.O_DIRECTORY)",
        "return os.open(self.root, os.O_PATH | os.O_DIRECTORY, dir_fd=workspace)",
    ),
    _off("P6", "planes/beneath", 'path.startswith(b"/")', test="test_both_resolvers_agree_on_every_tree"),
    _off("P6", "planes/beneath", "number in (errno.ENOSYS, errno.EPERM)", test="test_the_walk_takes_over_where_the_kernel_will_not"),
    _one("P7", "planes/beneath", "0 if rules.mounts else _NO_XDEV", "0", test="test_a_mount_point_below_the_root_is_outside_unless_it_may_be_crossed"),
    _off("P7", "planes/beneath", "self._home is not None and self._mount_of(child) != self._home", test="test_a_mount_point_below_the_root_is_outside_unless_it_may_be_crossed"),
    _one("P8", "planes/beneath", "_LOOK | os.O_NOFOLLOW, dir_fd", "_LOOK, dir_fd"),
    _one("P9", "planes/beneath", "_MAX_LINKS: Final = 40", "_MAX_LINKS: Final = 4000", test="test_forty_links_are_followed_and_no_more"),
    _one("P10", "planes/reading", "    facts = os.fstat(handle)\n", "    os.close(reopen(handle))\n        facts = os.fstat(handle)\n", test="test_reading_is_not_felt_by_a_fifo"),
    _one("P11", "planes/files", "paths.from_target(raw_rest)", 'paths.from_target(raw_rest + ".br" * (raw_rest == "a.txt"))'),
    _off("P12", "planes/bodies", "self._seen.digest() != self.digest", "not self.opened.unchanged()", test="test_a_file_that_changes_while_it_is_sent_is_cut_off"),
    _off("P12", "planes/reading", "total > most", test="test_a_file_that_is_longer_than_it_says_is_bounded_too"),
    _one("P12", "planes/bodies", "if place == opened.size and same(opened.facts, now)", "if place == opened.size", test="test_a_file_that_never_rests_is_an_error"),
    _one("P13", "planes/memory", "if kept.startswith(state) else None", "if kept else None"),
    _one("P13", "planes/memory", "before.st_ctime_ns + _SETTLED_NS > self._now_ns()", "before is None"),
    _one("P14", "planes/pool", "self._running.get(job.lane, 0) < job.limit", "job.limit > 0", test="test_a_stuck_lane_leaves_the_others_their_threads"),
    _one("P15", "planes/listing", "        finally:\n            os.close(fd)\n        items.sort", "        finally:\n            pass\n        items.sort"),
    Mutation(
        "P16",
        "sidecar/planes/listing.py",
        ((" and not self.stopped():", ":"), ("            if self.stopped():\n", "            if False:\n")),
        "test_a_listing_that_nobody_waits_for_ends_early",
    ),
    _one("P16", "web/connection", "(unanswered and self._loop.time() >= self._half_closed_until)", "False", test="test_work_for_a_client_that_left_ends_and_is_on_record"),
    _one("P17", "planes/reading", "_BY_ERRNO.get(error.errno or 0, IO_ERROR)", 'refusal("io_error", f"{error}: /tmp")'),
    _one("P18", "planes/files", "if text.isascii() and text.isprintable():", "if True:"),
    _off("P19", "planes/handles", "not hmac.compare_digest(handle.mac, _mac(key, handle.payload, audience))", test="test_every_handle_that_is_not_valid_gets_the_same_bytes"),
    _one("P20", "planes/handles", "self._keys.pop(session_id, None)", "self._keys.get(session_id)"),
    _off("P21", "planes/handles", "_encode(data) != segment"),
    _one("P22", "planes/peer", 'paths.checked(claims.path.encode(errors="surrogatepass"))', "claims.path.encode()"),
    _one("P23", "planes/peer", "handle_id = handles.handle_id(token)", "handle_id = token", test="test_each_use_of_a_handle_is_on_record_and_never_the_handle"),
    _off("P24", "planes/bodies", "self._seen.digest() != self.digest"),
    _one("P25", "planes/turns", "(facts.st_dev, facts.st_ino)", "(id(facts), 0)", test="test_a_file_that_many_want_at_once_is_hashed_once"),
    _one("P25", "planes/bodies", " or mine >= self._most_of_one", ""),
    _off("P25", "planes/bodies", "self._held and self._held + length > self._most_held"),
    _off("P26", "planes/listing", "self.room < 0"),
    _off("P26", "planes/memory", "len(self._known) > self._limit"),
    _off("P27", "planes/opened", "self._busy"),
    _off("P27", "planes/pool", "close is not None"),
    _one("P28", "planes/listing", "facts.st_ino == found.inode() and ", ""),
    _off("P29", "planes/handles", "claims.expires_at_ms <= now_ms"),
    _off("P29", "planes/peer", "sharing.is_revoked(session, handle_id)"),
    _one("P29", "planes/sharing", "min(ttl, export.max_ttl)", "ttl"),
    _one("P30", "planes/sharing", "        await self._reads.check(capsule, export.root, checked, export.max_bytes)\n", ""),
    _one("P31", "desk/endpoint", 'OPERATORS: Final = "/api"', 'OPERATORS: Final = "/nothing"'),
    _one("P32", "planes/audit", "(left_out := allowance.take()) is None", "(left_out := allowance.take()) is None or True"),
    _one("P32", "planes/audit", "        if left_out is None:\n", "        if left_out is None or not fine:\n"),
    _one("P33", "planes/audit", "            self._out += 1\n            return None\n", "            return {}\n"),
    _off("P34", "planes/handles", "claims.issuer != issuer"),
    _one("P34", "planes/handles", "version == 1 and", "True and"),
    _one("P36", "planes/cached", "_NO_MAGICLINKS | _NO_SYMLINKS | _CACHED", "_CACHED", test="test_links_and_special_files_are_left_to_the_pool"),
    _one("P36", "planes/cached", " or tuple(mount) != expected", "", test="test_the_quick_way_crosses_no_mount_at_all"),
    _off("P37", "planes/cached", "system[0] not in _LOCAL or not major", test="test_only_local_file_systems_are_read_here"),
    _one("P37", "planes/cached", "0, os.RWF_NOWAIT)", "0)", test="test_bytes_that_are_not_in_memory_are_left_to_the_pool"),
    _one("P37", "planes/cached", "place is None or place.until <= self._clock()", "place is None", test="test_what_a_thread_saw_is_relied_on_for_a_while"),
    _off("P35", "planes/routes", 'method != "GET"'),
)  # fmt: skip


def rows() -> dict[str, tuple[str, ...]]:
    """Return the tests of each row of the document that has some, as `path::name`."""
    found: dict[str, tuple[str, ...]] = {}
    places = {path.name: path.relative_to(PROJECT) for path in (PROJECT / "tests").rglob("test_*.py")}
    for line in DOCUMENT.read_text().splitlines():
        if (match := re.match(r"\| (P\d+) \|", line)) is None:
            continue
        file, tests = "", []
        for name, test in re.findall(r"`(test_\w+\.py)?::(\w+)`", line):
            file = name or file
            tests.append(f"{places[file]}::{test}")
        found[match[1]] = tuple(tests)
    return found


def mutated(mutation: Mutation, project: Path = PROJECT) -> str:
    """Return the text of the file without its guard. Raises ValueError where a patch fits nowhere, or twice."""
    text = (project / mutation.file).read_text()
    for old, new in mutation.edits:
        if text.count(old) != 1:
            raise ValueError(f"{mutation.row}: {mutation.file} has this {text.count(old)} times: {old!r}")
        text = text.replace(old, new)
    return text


def run(tests: tuple[str, ...], project: Path) -> bool:
    """Run tests in a copy of the project, and return whether they pass; tests that never end do not."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", *tests]
    environment = {
        "PYTHONPATH": str(project),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    try:
        done = subprocess.run(
            command,
            cwd=project,
            env=environment,
            capture_output=True,
            timeout=LONGEST,
            check=False,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest could not run {tests}:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def noticed(mutation: Mutation, tests: tuple[str, ...]) -> tuple[bool, float]:
    """Return whether the tests fail without the guard, and the seconds that took."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        for name in COPIED:
            source = PROJECT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)
        (copy / mutation.file).write_text(mutated(mutation))
        chosen = tuple(t for t in tests if not mutation.test or t.endswith(f"::{mutation.test}"))
        if not chosen:
            raise ValueError(f"{mutation.row} has no test {mutation.test}")
        return not run(chosen, copy), time.monotonic() - begun


def main(wanted: list[str]) -> int:
    """Take away the guards of these rows, or of all."""
    tests = rows()
    chosen = [m for m in MUTATIONS if not wanted or m.row in wanted]
    missed = 0
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for mutation, (seen, seconds) in zip(
            chosen, workers.map(lambda m: noticed(m, tests[m.row]), chosen), strict=True
        ):
            missed += not seen
            verdict = "noticed" if seen else "MISSED "
            guard = mutation.edits[0][0].strip()
            sys.stdout.write(f"{verdict} {mutation.row:<4} {seconds:5.1f} s  {mutation.file}: {guard}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} guards are missed when they are gone\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
