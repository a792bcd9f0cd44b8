"""Manifests: strict types, codes, every problem at once, warnings; and what is made of a good one."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from sidecar.errors import Severity
from sidecar.manifest.editors import json_schema
from sidecar.manifest.load import Loaded, load, missing
from sidecar.manifest.schema import EXAMPLES, KNOWN, ManifestFile
from sidecar.model import Containment, Lifecycle, Manifest, TaskAcceptance

GOOD = 'name: hello\nversion: "1"\n'


def loaded(text: str) -> Loaded:
    """Load a text as a manifest."""
    return load(text.encode(), file="m", max_bytes=1 << 17)


def said(text: str) -> list[str]:
    """Return what is said of a text: place, code and key of each problem."""
    return [f"{p.line}:{p.column} {p.code} {p.key}".rstrip() for p in loaded(text).problems]


def made(text: str) -> Manifest:
    """Return the manifest of a text of which nothing is wrong."""
    found = loaded(text)
    assert found.problems == ()
    assert found.manifest is not None
    return found.manifest


def test_defaults_are_those_of_the_reference() -> None:
    """Name and version are enough."""
    assert made(GOOD) == Manifest(name="hello", version="1")
    assert Manifest(name="hello", version="1").lifecycle == Lifecycle()


def test_name_and_version_are_kept_verbatim() -> None:
    """The card shows them as they were written."""
    manifest = made('name: "  A Name — with\\ttabs "\nversion: " 1.0 "\n')
    assert (manifest.name, manifest.version) == ("  A Name — with\ttabs ", " 1.0 ")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("1.0", "decimal number"),
        ("12", "number"),
        ("no", "boolean"),
        ("0123", "number"),
        ("12:30", "number"),
        ("2026-01-02", "date"),
        ("1e3", "number"),
        ("~", "null"),
        ("08", "number"),
        (".5", "decimal number"),
    ],
)
def test_a_word_that_is_no_text_to_yaml_must_be_quoted(source: str, what: str) -> None:
    """It never reaches a field of text as anything else, and the message shows the line to write."""
    found = loaded(f"name: hello\nversion: {source}\n")
    assert found.manifest is None
    (problem,) = found.problems
    assert (problem.line, problem.column, problem.code, problem.key) == (2, 10, "E-MAN-002", "version")
    assert f"{source} is a {what}" in problem.message or f"{source} is {what}" in problem.message
    assert problem.message.endswith(f'quote it: `version: "{source}"`')
    assert made(f'name: hello\nversion: "{source}"\n').version == source


def test_a_number_in_quotes_is_no_number() -> None:
    """Strict types work in both directions; a boolean is no integer, and neither is a decimal number."""
    for source in ('"2"', "true", "2.0", "two", "[2]", "~", "{}"):
        assert said(f"{GOOD}lifecycle: {{queue_depth: {source}}}\n") == [
            "3:26 E-MAN-002 lifecycle.queue_depth"
        ]


@pytest.mark.parametrize("source", ["0123", "12:30", "0x1F", "1_000"])
def test_an_integer_is_written_in_decimal_digits(source: str) -> None:
    """Nobody should listen on port 4096 who wrote 010000."""
    assert said(f"{GOOD}network: {{internal_port: {source}}}\n") == ["3:26 E-MAN-002 network.internal_port"]
    assert said(f"{GOOD}inference: {{internal_port: {source}}}\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("internal_port: 70000", "E-MAN-003"),
        ("internal_port: -1", "E-MAN-003"),
        ("internal_port: 0", None),
        ("internal_port: 65535", None),
        ("internal_port: ~", None),
    ],
)
def test_a_port_is_a_port(text: str, expected: str | None) -> None:
    """0 means any; absent is absent."""
    assert [p.code for p in loaded(f"{GOOD}network: {{{text}}}\n").problems] == (
        [expected] if expected else []
    )


@pytest.mark.parametrize(
    ("source", "size"),
    [("1", 1), ("512Ki", 512 << 10), ("10Mi", 10 << 20), ("1Gi", 1 << 30), ('"2Ki"', 2048)]
    + [
        (bad, None)
        for bad in ("0", "-1", "0Ki", "1KiB", "1ki", "1 Ki", "+1Ki", "1.5Ki", '"1024"', "Ki", '""', "1e3")
    ]
    + [
        (bad, None)
        for bad in ("9007199254740992", "9999999999999999Gi", "99999999999999999Ki", "true", "1.5", "~")
    ],
)
def test_a_size_is_an_integer_or_digits_with_a_unit(source: str, size: int | None) -> None:
    """Case matters; no space, sign or decimals; above 0."""
    found = loaded(f"{GOOD}exports: {{files: {{root: out, mode: read-only, max_bytes: {source}}}}}\n")
    if size is None:
        assert {p.key for p in found.errors} == {"exports.files.max_bytes"}
    else:
        assert found.manifest is not None
        assert found.manifest.files is not None
        assert found.manifest.files.max_bytes == size


@pytest.mark.parametrize(
    ("source", "seconds"),
    [("1", 1), ("60s", 60), ("15m", 900), ("2h", 7200), ("1d", 86400), ('"90"', 90)]
    + [
        (bad, None)
        for bad in ("0", "0s", "-1", "1w", "1 m", "1.5h", "1H", "true", "1:30", "99999999999999999d", "~")
    ],
)
def test_a_ttl_is_digits_with_an_optional_unit(source: str, seconds: int | None) -> None:
    """Above 0, in seconds without a unit."""
    found = loaded(f"{GOOD}exports: {{peer_files: {{root: out, max_ttl: {source}}}}}\n")
    if seconds is None:
        assert {p.key for p in found.errors} == {"exports.peer_files.max_ttl"}
    else:
        assert found.manifest is not None
        assert found.manifest.peer_files is not None
        assert found.manifest.peer_files.max_ttl == seconds


@pytest.mark.parametrize("root", ["out", "out/", "./out", "a/b", "..a", "a..", "a b", ".", "ä"])
def test_an_export_root_is_relative_and_kept_verbatim(root: str) -> None:
    """It is echoed as it was written."""
    files = made(f'{GOOD}exports: {{files: {{root: "{root}", mode: read-only}}}}\n').files
    assert files is not None
    assert files.root == root


@pytest.mark.parametrize("root", ["", "  ", "/", "/out", "..", "../out", "a/../b", "a/..", "a\\0b"])
def test_an_export_root_that_could_lead_out_is_refused(root: str) -> None:
    """Blank, absolute, or with a `..` component."""
    for plane in ("files: {mode: read-only, ", "peer_files: {"):
        found = loaded(f'{GOOD}exports: {{{plane}root: "{root}"}}}}\n')
        assert [p.key.rpartition(".")[2] for p in found.errors] == ["root"]


@pytest.mark.parametrize("mode", ["read-write", "Read-Only", "ro", "yes"])
def test_there_is_one_mode(mode: str) -> None:
    """Missing or another one is refused."""
    assert loaded(f"{GOOD}exports: {{files: {{root: out, mode: {mode}}}}}\n").manifest is None
    assert said(f"{GOOD}exports: {{files: {{root: out}}}}\n") == ["3:11 E-MAN-001 exports.files.mode"]


@pytest.mark.parametrize(
    "exports", ["", "{}", "~", "{files: }", "{files: ~, peer_files: ~}", "{peer_tasks: {a: b}}"]
)
def test_nothing_may_be_exported(exports: str) -> None:
    """Null and empty blocks declare nothing."""
    manifest = made(f"{GOOD}exports: {exports}\n")
    assert (manifest.files, manifest.peer_files) == (None, None)


@pytest.mark.parametrize(
    "allow", ["[]", '["http://[not a host"]', '["a b"]', '[""]', "[host:0]", "[host:65536]"]
)
def test_peers_are_named_by_address(allow: str) -> None:
    """An empty list, or anything else than a host with scheme and port, is refused."""
    assert [p.code for p in loaded(f"{GOOD}capabilities: {{peer_fetch: {{allow: {allow}}}}}\n").errors] == [
        "E-MAN-003"
    ]


@pytest.mark.parametrize(
    "entry",
    ["ftp://host", "http://host/", "host/path", "http://", ":80", "host:", "[::1", "[host]", "http://u@host"],
)
def test_an_address_of_a_peer_has_no_more_than_scheme_host_and_port(entry: str) -> None:
    """What could be read in two ways is refused."""
    text = f"{GOOD}capabilities: {{peer_fetch: {{allow: [{json.dumps(entry)}]}}}}\n"
    assert said(text) == ["3:37 E-MAN-003 capabilities.peer_fetch.allow[0]"]


def test_a_shell_block_needs_an_entry() -> None:
    """`shell: {}` is refused; without the block, or with null, there is no shell."""
    for shell in ("{}", "{allow: []}", '{allow: [" "]}'):
        assert loaded(f"{GOOD}capabilities: {{shell: {shell}}}\n").manifest is None
    assert made(f"{GOOD}capabilities: {{shell: {{allow: [bash]}}}}\n").shell_allow == ("bash",)
    assert made(f"{GOOD}capabilities: {{shell: }}\n").shell_allow is None


def test_the_network_list_may_be_empty() -> None:
    """Then the card says that there is no network."""
    assert made(f"{GOOD}capabilities: {{network: {{allow: []}}}}\n").network_allow == ()
    assert made(f"{GOOD}capabilities: {{network: {{}}}}\n").network_allow == ()


def test_a_blank_name_is_a_missing_one() -> None:
    """The same code, at its place."""
    assert said('name: " "\nversion: "1"\n') == ["1:7 E-MAN-001 name"]
    assert said('version: "1"\n') == ["1:1 E-MAN-001 name"]
    assert said('name:\nversion: "1"\n') == ["1:6 E-MAN-001 name"]


def test_an_artifact_needs_a_version_or_a_source() -> None:
    """Either will do."""
    assert made(f"{GOOD}artifacts: [{{name: a, source: b}}]\n").artifacts[0].version is None
    assert said(f"{GOOD}artifacts: [{{name: a}}]\n") == ["3:13 E-MAN-001 artifacts[0].version"]
    assert said(f"{GOOD}artifacts: [{{name: a, version: , source: }}]\n") == [
        "3:32 E-MAN-001 artifacts[0].version"
    ]


def test_a_sleeping_capsule_keeps_its_handles_short() -> None:
    """E-CAP-008 names the limit; it is found whatever else is wrong."""
    head = f"{GOOD}lifecycle: {{after_task: sleep}}\nexports: {{peer_files: {{root: out"
    for ttl in ("", ", max_ttl: 30m", ", max_ttl: 901"):
        (problem,) = loaded(f"{head}{ttl}}}}}\n").problems
        assert problem.code == "E-CAP-008"
        assert "900s" in problem.message
    assert made(f"{head}, max_ttl: 10m}}}}\n").peer_files
    assert made(f"{head}, max_ttl: 900}}}}\n").peer_files
    awake = made(f"{GOOD}exports: {{peer_files: {{root: out}}}}\n").peer_files
    assert awake is not None
    assert awake.max_ttl == 3600
    broken = said(
        "name: 1\nlifecycle: {after_task: sleep, queue_depth: x}\nexports: {peer_files: {max_ttl: 1h}}\n"
    )
    assert broken == [
        "1:1 E-MAN-001 version",
        "1:7 E-MAN-002 name",
        "2:45 E-MAN-002 lifecycle.queue_depth",
        "3:11 E-MAN-001 exports.peer_files.root",
        "3:33 E-CAP-008 exports.peer_files.max_ttl",
    ]


def test_older_runtimes_are_tools_with_a_warning() -> None:
    """Manifests from before the word changed are served."""
    found = loaded(f'{GOOD}artifacts: [{{name: a, version: "1", runtime: wasm}}]\n')
    assert found.manifest is not None
    assert found.manifest.artifacts[0].runtime == "tool"
    assert [(p.code, p.severity) for p in found.problems] == [("W-MAN-003", Severity.WARNING)]


def test_unknown_keys_are_warned_about_only_where_the_keys_are_known() -> None:
    """Blocks that are not read may hold anything; in `capabilities` only near misses are mentioned."""
    text = (
        f"{GOOD}inference: {{modle: x}}\nartifacts: [{{name: a, source: b, config: {{x: 1}}, x: 1}}]\n"
        "capabilities: {resources: {}, shel: {}, network: {allow: [a], allw: [b], strip: 1}}\nexports: {fils: {}}\n"
    )
    found = loaded(text)
    assert found.manifest is not None
    assert found.errors == ()
    assert [p.key for p in found.warnings] == [
        "artifacts[0].x",
        "capabilities.shel",
        "capabilities.network.allw",
        "exports.fils",
    ]
    assert {p.code for p in found.warnings} == {"W-SEC-019"}
    assert "did you mean `files`?" in found.warnings[-1].message
    assert "did you mean" not in found.warnings[0].message


@pytest.mark.parametrize("runtime", ["tool", "driver", "hook", "skill", "wasm", "native"])
def test_a_file_that_only_describes_an_artifact_is_no_capsule(runtime: str) -> None:
    """It is listed, and nothing of it but its name, version and description is looked at."""
    found = loaded(f"{GOOD}runtime: {runtime}\ncapabilities: {{shell: {{}}}}\n")
    assert (found.manifest, found.problems) == (None, ())
    assert found.artifact is not None
    assert found.artifact.runtime == runtime


@pytest.mark.parametrize("key", ["artifacts", "inference", "lifecycle", "exports", "network"])
def test_a_runtime_beside_a_key_of_capsules_is_a_capsule(key: str) -> None:
    """Any of these keys, even if null, makes the difference."""
    found = loaded(f"{GOOD}runtime: tool\n{key}:\n")
    assert found.artifact is None
    assert found.manifest is not None


@pytest.mark.parametrize("text", ["", "- a\n", "text\n", "12\n", "# nothing\n"])
def test_what_is_no_mapping_is_no_manifest(text: str) -> None:
    """One problem says so."""
    assert [p.code for p in loaded(text).problems] == ["E-MAN-002"]


def test_the_file_of_another_program_is_refused_and_nothing_else_happens() -> None:
    """One document of it lacks a name and a version, two are too many."""
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    assert [p.key for p in loaded(text).errors] == ["name", "version"]
    assert {p.code for p in loaded(text).errors} == {"E-MAN-001"}
    two = loaded(f"{text}---\n{text}")
    assert [str(p) for p in two.errors[2:]] == [
        "m:4:1: E-MAN-002 a second document begins here, and a file holds one: remove it"
    ]
    assert [p.key for p in two.errors[:2]] == ["name", "version"]


def test_a_missing_file_has_its_code() -> None:
    """For commands that are pointed at a directory without a manifest."""
    assert [str(p) for p in missing("x/murmur.yaml").problems] == [
        "x/murmur.yaml: E-MAN-001 there is no such file; a capsule is a directory with a murmur.yaml"
    ]


def test_a_placeholder_is_all_that_is_said_of_its_field() -> None:
    """Quoted or not, in text and in numbers; elsewhere a quoted one is only warned about."""
    text = 'name: "{{ a }}"\nversion: {{ b }}\nnetwork: {internal_port: "{{ c }}"}\nlifecycle: "{{ d }}"\ntrace: "{{ e }}"\n'
    assert said(text) == [
        "1:8 E-MAN-003 name",
        "2:10 E-MAN-002 version",
        "3:27 E-MAN-003 network.internal_port",
        "4:13 E-MAN-003 lifecycle",
        "5:9 W-MAN-003 trace",
    ]
    assert loaded(f"{GOOD}trace: '{{{{ e }}}}'\n").manifest is not None


def test_references_to_the_environment_are_left_as_text() -> None:
    """Reading a manifest needs no environment."""
    assert made('name: ${NAME}\nversion: "${VERSION}"\n').name == "${NAME}"


def test_a_file_over_the_limit_is_refused() -> None:
    """At the byte that is too much."""
    found = load(GOOD.encode() + b"# x\n" * 10, file="m", max_bytes=40)
    assert [str(p) for p in found.problems] == [
        "m:6:4: E-MAN-002 is longer than 40 bytes, which end here and are the most that is read; make it shorter"
    ]


def test_a_flood_of_problems_is_cut() -> None:
    """A thousand of each kind are enough, and an error is never cut for a warning."""
    found = loaded("".join(f"k{i}: 1\n" for i in range(3000)) + "name: 1\n")
    assert [p.key for p in found.errors] == ["version", "name"]
    assert len(found.warnings) == 1001
    assert str(found.problems[-2]) == "m:3000:1: W-MAN-000 and 2000 more warnings"
    assert str(found.problems[-1]).startswith("m:3001:7: E-MAN-002 name: 1 is a number")


def test_of_very_many_problems_only_so_many_are_looked_for() -> None:
    """The number is then a lower bound, and says so."""
    found = loaded("name: a\nversion: '1'\ncapabilities: {network: {allow: [" + "1," * 7000 + "]}}\n")
    assert len(found.errors) == 1001
    assert found.errors[-1].message == "and at least 4001 more errors"
    assert found.errors[-1].code == "E-MAN-000"


def test_a_good_manifest_says_where_its_roots_are() -> None:
    """So that what is wrong with them on the disk can be reported at their place."""
    text = f"{GOOD}exports:\n  files: {{mode: read-only, root: a}}\n  peer_files:\n    root: b\n"
    assert loaded(text).roots == (("files", 4, 34), ("peer_files", 6, 11))


def test_enumerations_become_those_of_the_model() -> None:
    """Stages compare members, not words."""
    manifest = made(f"{GOOD}lifecycle: {{task_acceptance: none}}\ncapabilities: {{containment: scoped}}\n")
    assert manifest.lifecycle.task_acceptance is TaskAcceptance.NONE
    assert manifest.containment is Containment.SCOPED


def test_the_schema_describes_every_field_for_editors() -> None:
    """Title, a description for each key, the words that are allowed; unknown keys are not forbidden."""
    schema = json_schema()
    assert schema["title"] == "murmur.yaml"
    assert schema["required"] == ["name", "version"]
    assert set(schema["properties"]) == set(KNOWN[()])
    for block in (schema, *schema["$defs"].values()):
        assert block.get("additionalProperties", True) is True
        assert all(field["description"] for field in block["properties"].values())
    assert schema["$defs"]["LifecycleBlock"]["properties"]["task_acceptance"]["enum"] == [
        "none",
        "single",
        "queue",
    ]
    assert json.loads(json.dumps(schema)) == schema


def test_every_field_that_is_read_has_an_example_that_is_taken() -> None:
    """Messages show what to write, and it must be right."""
    assert {path.split(".")[0] for path in EXAMPLES} == {one.name for one in fields(ManifestFile)}
    whole = "\n".join(f"{key}: {EXAMPLES[key]}" for key in ("name", "version", "description", "artifacts"))
    for block in ("network", "lifecycle", "exports.files", "exports.peer_files"):
        keys = ", ".join(
            f"{k.rpartition('.')[2]}: {v}" for k, v in EXAMPLES.items() if k.startswith(f"{block}.")
        )
        outer, _, inner = block.partition(".")
        whole_with = f"{whole}\n{outer}: {{{f'{inner}: {{{keys}}}' if inner else keys}}}\n"
        assert loaded(whole_with).problems == ()
