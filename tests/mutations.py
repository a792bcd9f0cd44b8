"""Takes guards of docs/threat-model.md away, one by one, and shows that the tests of the row then fail.

Every guard of the planes is among them, and the weightiest of the others.

`python -m tests.mutations [ROW…]` works in copies of the project, two at a time, and exits with 1 where a test does
not notice, or a patch no longer fits the code. `unit/test_threat_model.py` checks that the patches fit.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
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
    # Credentials
    _one(
        "C2",
        "auth/access",
        "not key.is_valid(now) or not _is_of(key, capsule):\n            return None\n",
        "not key.is_valid(now) or not _is_of(key, capsule):\n            raise RefusedError(NO_END_USERS)\n",
    ),
    _one(
        "C3",
        "serve/endpoint",
        "        caller = await self._caller(request, served, door=False)\n        _check_post(request, served)\n",
        "        _check_post(request, served)\n        caller = await self._caller(request, served, door=False)\n",
        test="test_a2a_wants_a_credential_before_anything_else",
    ),
    _one(
        "C3",
        "serve/endpoint",
        "        caller = await self._caller(request, served)\n        if path == DOOR:\n",
        "        if path != DOOR and not path.startswith(RESOURCES):\n            raise RefusedError(_UNKNOWN)\n"
        "        caller = await self._caller(request, served)\n        if path == DOOR:\n",
        test="test_a_stranger_is_refused_before_path_and_body_are_looked_at",
    ),
    _one("C4", "auth/caller", "if len(given) == 1 else None", "if given else None"),
    _one("C5", "auth/keys", "(found[0].directory, found[0].name) != (directory, name)", "False"),
    _one(
        "C6",
        "auth/access",
        "or self._ring.any_in(capsule.directory)",
        "or any(key.is_valid(self._clock()) for key in self._ring.of(capsule.directory, capsule.manifest.name))",
        test="test_a_capsule_that_had_a_key_stays_closed_until_that_is_forgotten",
    ),
    _one("C6", "auth/access", "or auth.personal_tokens is not None", "or auth.personal_tokens", test="test_a_capsule_of_members_stays_closed_when_the_last_token_is_taken_out"),
    _off("C7", "auth/holds", "not self._access.still_good(hold.capsule(), hold.caller, door=hold.door)", test="test_open_streams_end_with_their_key_and_no_others_do"),
    _one("C7", "serve/endpoint", 'cast("Connection", request.protocol).cut\n        return served', "(lambda: None)\n        return served", test="test_a_slow_reader_cannot_keep_a_revoked_stream"),
    _one("C7", "auth/access", "if claims is None or key is None or not key.is_valid(now) or", "if claims is None or key is None or", test="test_a_runtime_token_stands_for_one_end_user_and_for_nothing_else"),
    _off("C7", "auth/access", "not self.still_good(capsule, caller, door=door)", test="test_a_key_that_is_revoked_before_the_body_is_there_starts_nothing"),
    _one("C7", "desk/moi", "if waits:  #", "if False:  #", test="test_a_key_of_the_moi_view_that_is_taken_out_before_the_body_is_there_starts_nothing"),
    _one("C8", "auth/oidc", "jws.deserialize_compact(token, key, [algorithm], registry=self._registry).payload", 'base64.urlsafe_b64decode(token.split(".")[1] + "==")', test="test_forged_tokens_are_refused"),
    _off("C8", "auth/oidc", "algorithm not in ALGORITHMS", test="test_forged_tokens_are_refused"),
    _one("C8", "auth/runtime_token", "given is None or not hmac.compare_digest(given, self._mac(payload))", "given is None", test="test_no_altered_token_is_good"),
    _one("C8", "auth/runtime_token", "return data if _encode(data) == text else None", "return data", test="test_no_altered_token_is_good"),
    _one(
        "C9",
        "auth/jwks",
        "        if self._clock() >= self._until:\n            await self._fetch()\n",
        "        if self._clock() >= self._until:\n            await self._fetch()\n"
        '        if "://" in kid:\n'
        '            self._keys |= _read((await self._fetcher.get(kid, allow_private=True))["keys"])\n',
    ),
    _one("C10", "auth/oidc", ' or claims.get("iss") != self._settings.url', "", test="test_what_is_visibly_not_of_this_issuer_costs_no_fetch"),
    _one("C10", "auth/oidc", 'for name in ("exp", "aud"):', 'for name in ("aud",):', test="test_a_token_that_lacks_what_is_needed_is_refused"),
    _off("C10", "auth/vouching", 'settings.audiences and not set(_texts(claims.get("aud"))) & set(settings.audiences)', test="test_a_token_that_lacks_what_is_needed_is_refused"),
    _off("C10", "auth/vouching", "missing := set(settings.scopes) - _scopes(claims)", test="test_scopes_are_all_needed_and_of_subjects_one"),
    _off("C10", "auth/vouching", 'settings.subjects and claims.get("sub") not in settings.subjects', test="test_scopes_are_all_needed_and_of_subjects_one"),
    _one("C10", "auth/vouching", " or now >= expires_at", "", test="test_clocks_that_differ_let_nothing_old_or_early_in"),
    _one("C10", "auth/vouching", " or now + SKEW < not_before", "", test="test_clocks_that_differ_let_nothing_old_or_early_in"),
    _one("C11", "auth/jwks", "self._clock() - self._looked_again >= COOL_DOWN", "True", test="test_a_new_key_is_found_at_once_and_an_unknown_one_cools_down"),
    _off("C11", "auth/jwks", "self._fetching is None", test="test_many_callers_wait_for_one_fetch"),
    _one("C12", "auth/fetch", "allow_redirects=False", "allow_redirects=True", test="test_an_issuer_that_misbehaves_is_told_apart_and_followed_nowhere"),
    _off("C12", "auth/fetch", "len(body) > self._most", test="test_an_endpoint_that_misbehaves_vouches_for_nobody"),
    _one("C12", "auth/fetch", "limit=0,", "limit=AT_ONCE,", test="test_one_that_hangs_keeps_nobody_from_another"),
    _one("C12", "auth/introspection", 'said.get("active") is not True', 'not said.get("active")', test="test_only_a_token_that_is_active_and_somebodys_counts"),
    _off("C13", "auth/fetch", "not is_public(address)"),
    _one("C13", "auth/fetch", "_any_socket if allow_private else _public_socket", "_any_socket", test="test_a_name_that_leads_to_a_private_address_is_not_connected_to"),
    _one("C14", "auth/access", 'f"key:{key.id}",\n            AGENT_KEY', '"key",\n            AGENT_KEY', test="test_callers_of_a2a_are_kept_apart"),
    _one("C14", "auth/caller", 'return f"{key_owner}:{end_user}"', "return key_owner", test="test_keys_and_their_end_users_are_owners_of_their_own"),
    _one("C14", "auth/vouching", 'found if name == names[0] else f"{name}{MARK}{found}"', "found", test="test_a_client_is_not_taken_for_the_person_whom_it_is_called_like"),
    _off("C15", "auth/access", "not caller.operator"),
    _one("C16", "auth/access", "if not caller.end_users:\n            raise RefusedError(NO_END_USERS)\n        if len", "if len", test="test_only_keys_that_may_speak_for_end_users"),
    _off("C16", "auth/access", "len(end_users) != 1 or not is_end_user(end_users[0])", test="test_an_end_user_has_a_name_of_some_form"),
    _one("C16", "desk/moi_callers", "if _END_USER in headers:", "if False:", test="test_a_key_of_the_view_speaks_for_nobody"),
    _one("C16", "desk/moi_callers", " and _END_USER not in headers", "", test="test_a_key_of_the_view_speaks_for_nobody"),
    _one("C17", "auth/access", "if caller.kind != AGENT_KEY or not isinstance(caller.grip, KeyGrip):", "if not isinstance(caller.grip, KeyGrip):"),
    _one("C17", "auth/runtime_token", "if not ours or now >= expires_at:", "if not ours:"),
    _one("C17", "auth/runtime_token", "if not ours or now >= expires_at:", "if now >= expires_at:", test="test_a_token_is_good_on_its_channel_for_a_quarter_of_an_hour"),
    _one("C18", "auth/access", " or hmac.compare_digest(sha256(token.encode()).digest(), self._admin):\n            return None", ":\n            return None"),
    _off("C19", "serve/endpoint", "served.capsule.settings.auth.rate is not None"),
    # The page
    _one("D1", "desk/sign_in", "self._links.pop(_digest(token), None)", "self._links.get(_digest(token))", test="test_a_link_opens_one_session_and_then_nothing"),
    _one("D1", "desk/sign_in", "end is None or end <= self._now()", "end is None", test="test_a_link_is_good_for_a_minute"),
    _one("D3", "desk/sign_in", "if session is None or not hmac.compare_digest(session.key, _digest(keys[0])):", "if session is None:", test="test_a_session_takes_both_of_its_halves"),
    # Names on cards
    _one("N2", "web/forwarded", "if not self.trusts(peer):\n            return peer", "if not self._networks:\n            return peer", test="test_who_is_not_trusted_cannot_be_somebody_else"),
    _one("N2", "web/forwarded", "for text in reversed(", "for text in (", test="test_the_client_is_the_last_of_the_chain_that_is_no_proxy_of_ours"),
    # Everruns view
    _one("E1", "doors/everruns_rows", 'id = ? AND session_id = ? AND owner = ?"', 'id = ? AND session_id = ? AND ? = ?3"', test="test_somebody_elses_session_looks_like_a_missing_one"),
    _one("E2", "desk/channels", "            served, caller = await self._admitted(request, unquote(channel_id))\n", "            if template not in self._routes:\n                raise ProblemError(_NOTHING)\n            served, caller = await self._admitted(request, unquote(channel_id))\n", test="test_credentials_come_before_the_path_and_the_body"),
    _one("E4", "desk/channels", "partial(frames.end, CREDENTIAL_ENDED, at_once=True)", "lambda: None"),
    # MOI view
    _one("M1", "desk/moi_callers", "visitor.workspace is not None and agent.workspace not in (visitor.workspace, SYSTEM)", "False", test="test_agents_are_seen_from_their_workspace_and_those_of_system_from_all"),
    _one("M2", "desk/moi_callers", "if visitor.known:  #", "if False:  #"),
    _off("M3", "desk/moi_callers", "len(given) > 1"),
    _one("M4", "desk/moi_callers", "if closed:\n            raise RefusedError(_UNAUTHORIZED)\n        return _ANYBODY", "return _ANYBODY"),
    _one("M5", "desk/moi", "            found.caller.owner,\n", '            "everybody",\n'),
    _one("M6", "auth/access", "grip in self.moi_keys and grip.sees", "grip.sees", test="test_a_key_of_the_view_that_is_gone_ends_its_streams"),
    _one("M6", "auth/access", " and grip.sees(capsule.settings.moi_workspace)", "", test="test_a_capsule_that_moves_to_another_workspace_ends_the_streams_of_who_sees_it_no_more"),
    _off("M6", "auth/access", "caller == STRANGER and self.moi_keys", test="test_keys_that_come_show_strangers_out"),
    _one("M8", "dialects/moi", "given is not None and _REQUEST_ID.fullmatch(given)", "given is not None"),
    _one("M9", "desk/at_hand", "self._now(capsule.id) is not capsule\n            or ", "", test="test_a_card_at_hand_is_that_of_the_capsule_as_it_is_now"),
    # TLS
    _one("T1", "certificates", "    context.set_ciphers(_CIPHERS)\n", "    context.set_ciphers('ALL:@SECLEVEL=0')\n", test="test_what_is_out_of_date_is_not_spoken"),
)  # fmt: skip


def rows() -> dict[str, tuple[str, ...]]:
    """Return the tests of each row of the document, as `path::name`."""
    found: dict[str, tuple[str, ...]] = {}
    places = {path.name: path.relative_to(PROJECT) for path in (PROJECT / "tests").rglob("test_*.py")}
    for line in DOCUMENT.read_text().splitlines():
        if (match := re.match(r"\| ([A-Z]\d+) \|", line)) is None:
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
    with subprocess.Popen(
        command,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # what it has started, too
            return False
    if running.returncode not in (0, 1):
        raise RuntimeError(f"pytest could not run {tests}:\n{said}")
    return running.returncode == 0


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
    sys.stdout.write(f"the loss of {len(chosen) - missed} of {len(chosen)} guards is noticed\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
