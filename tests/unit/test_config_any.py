"""Whatever a file or the environment says: a configuration comes of it, or problems with places."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar import config
from sidecar.config.editors import json_schema
from sidecar.errors import InputError

if TYPE_CHECKING:
    from sidecar.errors import Problem

BLOCKS = {
    name: sorted(block["properties"])
    for name, block in json_schema()["$defs"].items()
    if "properties" in block
}
TOP = sorted(json_schema()["properties"])

values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 70000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["2s", "40ms", "1MiB", "24000-31999", "localhost", "::1", "full", "token", "~/x", "{id}", ""]
    )
    | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=6,
)


def blocks(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Make mappings of which many keys are those of our blocks."""
    keys = st.sampled_from([key for name in names for key in BLOCKS[name]]) | st.text(max_size=6)
    return st.dictionaries(keys, values, max_size=5)


files = st.dictionaries(
    st.sampled_from(TOP) | st.text(max_size=6),
    values
    | blocks("Listen", "Desk", "Watch", "Tasks", "Log", "Limits", "Heartbeat")
    | st.lists(blocks("Root"), max_size=2)
    | st.dictionaries(st.text(max_size=6), blocks("CapsuleConfig"), max_size=3),
    max_size=5,
)
names = st.sampled_from(
    [
        "STATE",
        "CARD",
        "LISTEN__HOST",
        "DESK__PORT",
        "WATCH__TICK",
        "CAPSULES__x__PATH",
        "CAPSULES__X y__PORT",
        "A__B",
    ]
)
texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=10)


def outcome(data: bytes, environ: dict[str, str]) -> config.Config | tuple[Problem, ...]:
    """Return what becomes of a file and an environment."""
    try:
        return config.build(
            data, "c.yaml", config.Flags(), environ, cwd="/srv", ephemeral=config.PortRange(1, 9)
        )
    except InputError as error:
        return tuple(error.problems)


@settings(max_examples=150, deadline=None)
@given(files, st.dictionaries(names.map("SIDECAR_".__add__), texts, max_size=3))
def test_any_file_and_environment_end_in_a_configuration_or_in_problems(
    given_file: dict[str, Any], environ: dict[str, str]
) -> None:
    """No other exception comes out, every problem has a place within its file, and paths end up absolute."""
    data = json.dumps(given_file, indent=1)
    found = outcome(data.encode(), environ)
    if isinstance(found, tuple):
        assert found
        for problem in found:
            assert problem.file in ("c.yaml", "environment")
            assert problem.line <= len(data.splitlines())
            assert (problem.line > 0) == (problem.column > 0)
            assert problem.message
        return
    paths = (
        [root.path for root in found.roots] + [own.path for own in found.capsules.values()] + [found.state]
    )
    assert all(path is None or path.startswith("/") for path in paths)
    assert found.settings_for("hello", "/srv/capsules/hello").hosts == found.listen.hosts


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_configuration_or_in_problems(data: bytes) -> None:
    """A file that is no YAML at all is refused like any other."""
    found = outcome(data, {})
    assert isinstance(found, config.Config) or found[0].file == "c.yaml"
