"""A look at a whole tree without serving any of it: what `sidecar check` and `sidecar card` are made of."""

from __future__ import annotations

import os.path
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar.errors import InputError, Problem, Severity, visible
from sidecar.manifest.load import load
from sidecar.manifest.problems import MISSING, NAMESAKES, STALE
from sidecar.manifest.report import Report, report
from sidecar.model import MANIFEST_NAME, Capsule
from sidecar.ops.uuid7 import new_id
from sidecar.registry.checks import ExportCheck, check_exports, real_paths, summary, workspace_of
from sidecar.registry.ids import assign, assign_listed
from sidecar.registry.namesakes import crowded
from sidecar.registry.places import namesake_warning
from sidecar.watch.scan import Scanner
from sidecar.words import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sidecar.config import Config
    from sidecar.manifest.load import Loaded
    from sidecar.model import Manifest
    from sidecar.registry.sessions import Pair
    from sidecar.watch.values import Found, Snapshot

NOT_TIED: Final = "E-CFG-012"
NO_ROOT: Final = "E-CFG-013"
UNUSED: Final = "W-CFG-014"
OPEN: Final = "W-CFG-016"
TAKEN: Final = "W-CFG-021"
EXAMPLE_SESSION: Final = "ses_"


def examine(
    config: Config, *, guarded: Sequence[str] = (), with_keys: Collection[Pair] = frozenset()
) -> Report:
    """Look at the configured roots as a start would, and return every problem. Blocks on the disk.

    `guarded` are paths that no export may reach, beside the configuration's own files. `with_keys` are the directories
    and names of the capsules that have agent keys.
    """
    snapshot = _look(config)
    found = [snapshot.found[directory] for directory in sorted(snapshot.found)]
    further = [*config.warnings, *_of_roots(config, snapshot), *_of_files(found)]
    loaded = [one.content for one in found if one.content is not None]
    own = real_paths((*guarded, *config.guarded))
    for problems in (check_exports(check, own) for check in _checks(config, found)):
        further += problems
    ids = _ids(found)
    further += [
        config.problem_at(("capsules", capsule_id), NOT_TIED, why)
        for capsule_id, why in crowded(config.untied_commands, ids)
    ]
    further += _namesakes(found, ids)
    further += _unused_settings(config, found, ids)
    further += _taken_channels(config, ids)
    further += _open_doors(config, ids, with_keys)
    return report(loaded, further)


def _of_roots(config: Config, snapshot: Snapshot[Loaded]) -> Iterator[Problem]:
    for index, root in enumerate(snapshot.roots):
        if root.last_error is not None:
            message = f"{visible(root.path)} {root.last_error.message}"
            yield config.problem_at(("roots", index, "path"), NO_ROOT, message)


def _of_files(found: Iterable[Found[Loaded]]) -> Iterator[Problem]:
    for one in found:
        if one.error is not None:
            yield Problem(one.path, 0, 0, MISSING, "", one.error)
        if one.warning is not None:
            yield Problem(one.path, 0, 0, STALE, "", one.warning, Severity.WARNING)


def _namesakes(found: Iterable[Found[Loaded]], ids: Mapping[Pair, str]) -> Iterator[Problem]:
    """Yield a warning at each name that other directories carry too."""
    groups = defaultdict(list)
    for one in found:
        if one.content is not None and one.content.manifest is not None:
            groups[one.content.manifest.name].append((one, one.content))
    for name, group in groups.items():
        if len(group) > 1:
            text = namesake_warning(name, [ids[one.directory, name] for one, _ in group])
            for one, loaded in group:
                yield Problem(one.path, *loaded.name_at, NAMESAKES, "name", text, Severity.WARNING)


def _unused_settings(
    config: Config, found: Iterable[Found[Loaded]], ids: Mapping[Pair, str]
) -> Iterator[Problem]:
    """Yield a warning for each `capsules.<id>` of the configuration that belongs to no capsule."""
    served = {directory for directory, _ in ids}
    others = [one.directory for one in found if one.directory not in served]
    known = {*ids.values(), *assign_listed(others, frozenset(ids.values()), {}).values()}
    for capsule_id in sorted(config.capsules.keys() - known):
        near = nearest(capsule_id, sorted(known))
        message = "is not used: there is no capsule with this id" + (
            f"; did you mean {near}?" if near else ""
        )
        yield config.problem_at(("capsules", capsule_id), UNUSED, message)


def _taken_channels(config: Config, ids: Mapping[Pair, str]) -> Iterator[Problem]:
    """Yield a warning for each channel id that is another capsule's own id, which no channel leads to then."""
    for (directory, _), capsule_id in sorted(ids.items()):
        taker = config.channels.get(capsule_id, capsule_id)
        if taker != capsule_id and config.settings_for(capsule_id, directory).channel_id is None:
            message = (
                f"its channel_id {capsule_id} is the id of another capsule, which Everruns clients do not reach then: "
                "give that one a channel_id too, or choose another"
            )
            yield config.problem_at(("capsules", taker), TAKEN, message)


def _open_doors(config: Config, ids: Mapping[Pair, str], with_keys: Collection[Pair]) -> Iterator[Problem]:
    """Yield a warning for each door that is open although its capsule has agent keys."""
    for pair in sorted(ids.keys() & set(with_keys)):
        auth = config.settings_for(ids[pair], pair[0]).auth
        if auth.door == "open" and not auth.kinds:  # those with others are told of by the configuration
            message = (
                "door: open lets anyone use POST / and read the files although the capsule has agent keys"
            )
            yield config.problem_at(("capsules", ids[pair]), OPEN, message)


def preview(config: Config, directory: str) -> Capsule:
    """Return the capsule of a directory as it would be served for the first time, on the first port of the range.

    Raises InputError with all problems where it would not be served, and with what to name instead where there is
    no capsule.
    """
    snapshot = _look(config)
    found = snapshot.found.get(directory)
    if found is None:
        real = os.path.realpath(directory)
        found = next(
            (one for one in snapshot.found.values() if os.path.realpath(one.directory) == real), None
        )
    if found is None:
        raise InputError(_no_capsule(directory, snapshot))
    loaded = found.content
    if loaded is None:
        raise InputError(f"{found.path} {found.error or 'cannot be read'}")
    if loaded.artifact is not None:
        raise InputError(f"{found.path} only describes an artifact: it is listed, not served")
    if loaded.manifest is None:
        raise InputError(f"{found.path} is refused", loaded.errors)
    own = real_paths(config.guarded)
    problems = [p for check in _checks(config, [found]) for p in check_exports(check, own)]
    if errors := [p for p in problems if p.code.startswith("E-")]:
        raise InputError(summary(errors), errors)
    return _capsule(config, found, loaded.manifest)


def _no_capsule(directory: str, snapshot: Snapshot[Loaded]) -> str:
    """Say why there is no card of a directory, and what to name instead."""
    if os.path.lexists(os.path.join(directory, MANIFEST_NAME)):  # noqa: PTH118 - text of any bytes
        return f"{directory} lies below no root of the configuration: add it to roots, or leave --config out"
    below = sorted(one for one in snapshot.found if one.startswith(directory.rstrip("/") + "/"))
    if not below:
        return f"{directory} holds no {MANIFEST_NAME}: name a directory that does"
    more = f", or one of {len(below) - 1} others" if len(below) > 1 else ""
    return f"{directory} holds no {MANIFEST_NAME} itself, but capsules: name one of them, such as {below[0]}{more}"


def _capsule(config: Config, found: Found[Loaded], served: Manifest) -> Capsule:
    capsule_id = _ids([found])[found.directory, served.name]
    settings = config.settings_for(capsule_id, found.directory)
    session_id = new_id(EXAMPLE_SESSION)
    workspace = workspace_of(
        settings.workspace, found.directory, capsule_id=capsule_id, session_id=session_id
    )
    port = settings.port or (settings.internal_port and served.internal_port) or config.listen.ports.first
    return Capsule(
        capsule_id,
        found.directory,
        session_id,
        served,
        settings,
        workspace,
        time.time(),
        port=port,
        credentials=settings.auth.kinds,
    )


def _look(config: Config) -> Snapshot[Loaded]:
    scanner: Scanner[Loaded] = Scanner(
        config.roots,
        load=partial(_load, max_bytes=config.limits.manifest),
        max_bytes=config.limits.manifest,
        settle=0.0,
        grace=0.0,
    )
    while (snapshot := scanner.look().snapshot) is None:
        time.sleep(0.001)  # a file that changes while it is read is read again
    return snapshot


def _load(data: bytes, path: str, *, max_bytes: int) -> Loaded:
    return load(data, file=path, max_bytes=max_bytes)


def _ids(found: list[Found[Loaded]]) -> dict[Pair, str]:
    pairs = [(f.directory, f.content.manifest.name) for f in found if f.content and f.content.manifest]
    return assign(pairs, frozenset())


def _checks(config: Config, found: list[Found[Loaded]]) -> list[ExportCheck]:
    ids = {directory: capsule_id for (directory, _), capsule_id in _ids(found).items()}
    checks = []
    for one in found:
        if one.directory in ids and one.content is not None:
            template = config.settings_for(ids[one.directory], one.directory).workspace
            if "{session_id}" in template:
                continue  # which directory it is shows only once the capsule is served
            workspace = workspace_of(template, one.directory, capsule_id=ids[one.directory], session_id="")
            checks.append(ExportCheck(one.content, one.directory, workspace))
    return checks
