"""The image, the compose file and the unit, as far as they can be checked without running them."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.config import environment, loading
from sidecar.config.schema import Config

PROJECT = Path(__file__).parents[2]
UNIT = PROJECT / "deploy" / "systemd" / "sidecar.service"
EXAMPLE = UNIT.with_name("workspaces.conf.example")
COMPOSE = PROJECT / "deploy" / "docker" / "compose.yaml"
MOST_EXPOSED = 15
"""Tenths, as `systemd-analyze security --threshold` counts."""


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (PROJECT / "Dockerfile").read_text(), flags=re.MULTILINE).replace(
        "\\\n", " "
    )
    pairs = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return [(name, " ".join(arguments.split())) for name, arguments in pairs]


def final_stage() -> dict[str, str]:
    """Return the instructions of the last stage, the last of each kind."""
    found = instructions()
    begin = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    return dict(found[begin:])


def unit() -> configparser.ConfigParser:
    """Return the unit's sections; of a repeated key the last one."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=")
    parser.optionxform = str  # type: ignore[method-assign, assignment]  # keys are case-sensitive, by the library's documentation
    parser.read(UNIT)
    return parser


def service() -> configparser.SectionProxy:
    """Return the unit's `[Service]` section."""
    return unit()["Service"]


def with_the_drop_in(directory: Path) -> Path:
    """Write the unit with all of the example's settings in force and a program that there is; return where."""
    program = Path(sys.executable).with_name("sidecar")
    assert program.exists()
    more = re.sub(r"^#(?=[A-Z]\w+=)", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    assert "\nBindReadOnlyPaths=" in more
    copy = directory / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/sidecar", str(program)) + more)
    return copy


def compose() -> dict[str, Any]:
    """Return the compose file's services."""
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


def test_b51_the_sidecar_itself_is_the_image_s_first_process() -> None:
    """B51 PID 1 has no default SIGTERM action: entry point and command are in exec form, without a shell."""
    stage = final_stage()
    assert json.loads(stage["ENTRYPOINT"]) == ["sidecar"]
    assert json.loads(stage["CMD"])[0] == "run"
    assert stage["STOPSIGNAL"] == "SIGTERM"


def test_b52_the_image_checks_its_health_with_what_it_has() -> None:
    """B52 HEALTHCHECK uses curl that a slim image lacks: here it is `sidecar health`, in exec form."""
    _, _, command = final_stage()["HEALTHCHECK"].partition(" CMD ")
    assert json.loads(command) == ["sidecar", "health"]


def test_the_image_runs_as_a_numeric_user_and_keeps_its_state_in_a_volume() -> None:
    """The user needs no /etc/passwd, owns the state, and the state is where the environment says."""
    stage = final_stage()
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage["USER"])
    assert f"SIDECAR_STATE={stage['VOLUME']}" in stage["ENV"].split()
    assert f"chown {stage['USER']} {stage['VOLUME']}" in stage["RUN"]
    assert stage["EXPOSE"] == str(Config().desk.port)


def test_the_build_gets_all_that_it_copies() -> None:
    """What the Dockerfile copies exists and is let through by .dockerignore."""
    let_in = {
        line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    copied = [a.split()[:-1] for name, a in instructions() if name == "COPY" and not a.startswith("--from")]
    for source in {source for sources in copied for source in sources}:
        assert source in let_in
        assert (PROJECT / source).exists()


def test_the_image_is_made_of_what_the_sidecar_needs_at_the_versions_that_are_tested() -> None:
    """Its lock is the part of the whole one without the tools of the tests: the same pins with the same hashes."""
    pin = re.compile(r"^([\w.-]+)==.*(?:\n    .*)*", re.MULTILINE)
    whole, image = (
        {found[1]: found[0] for found in pin.finditer((PROJECT / name).read_text())}
        for name in ("requirements.lock", "requirements.image.lock")
    )
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    needed, testing = (
        {re.split(r"[^\w-]", line)[0].lower() for line in lines}
        for lines in (project["dependencies"], project["optional-dependencies"]["test"])
    )
    assert {*needed, "setuptools"} <= set(image)
    assert image == {name: whole[name] for name in image}
    assert not testing & set(image)


def test_the_compose_file_agrees_with_the_image_and_with_itself() -> None:
    """The state is a volume where the image has it, capsules a shared one, read-only to the sidecar; ports match."""
    document = compose()
    sidecar, agent = document["services"]["sidecar"], document["services"]["hello"]
    mounts = {m.split(":")[1]: m.split(":") for m in sidecar["volumes"]}
    assert mounts[final_stage()["VOLUME"]][0] in document["volumes"]
    assert mounts["/capsules"] == ["capsules", "/capsules", "ro"]
    assert "capsules:/capsules" in agent["volumes"]
    assert sidecar["command"] == ["run", "--root", "/capsules"]
    assert (COMPOSE.parent / sidecar["build"]).resolve() == PROJECT
    example = next(m.split(":")[0] for m in agent["volumes"] if m.startswith("."))
    assert (COMPOSE.parent / example / "murmur.yaml").is_file()
    ports = sidecar["environment"]["SIDECAR_LISTEN__PORTS"]
    assert sidecar["ports"] == [f"127.0.0.1:{ports}:{ports}", "127.0.0.1:7410:7410"]


def test_the_agent_of_the_compose_file_is_a_worker_that_the_sidecar_knows() -> None:
    """It finds the desk under the other service's name and shows the same secret; what it runs is mounted."""
    services = compose()["services"]
    agent, sidecar = services["hello"], services["sidecar"]["environment"]
    assert agent["environment"]["SIDECAR_URL"] == f"http://sidecar:{Config().desk.port}"
    assert agent["environment"]["SIDECAR_TOKEN"] == sidecar[sidecar["SIDECAR_AUTH__WORKER_TOKEN__ENV"]]
    program = agent["entrypoint"][-1].rpartition(" ")[2]
    shown = {to: COMPOSE.parent / source for source, to, *_ in (m.split(":") for m in agent["volumes"])}
    assert (shown["/worker"] / Path(program).name).is_file()
    assert agent["healthcheck"] == {"disable": True}


def test_the_compose_file_hardens_what_it_runs() -> None:
    """Read-only root, no capability, no new privilege, an init, and time enough to drain."""
    for service_ in compose()["services"].values():
        assert service_["read_only"] is True
        assert service_["init"] is True
        assert service_["cap_drop"] == ["ALL"]
        assert service_["security_opt"] == ["no-new-privileges:true"]
    sidecar = compose()["services"]["sidecar"]
    assert float(sidecar["stop_grace_period"].removesuffix("s")) > Config().limits.drain


def test_the_compose_file_sets_only_keys_that_there_are() -> None:
    """Each of its variables names a key of the configuration and has a value that it takes."""
    variables = {k: str(v) for k, v in compose()["services"]["sidecar"]["environment"].items()}
    secret = variables["SIDECAR_AUTH__WORKER_TOKEN__ENV"]
    overlay = environment.read(variables)
    assert overlay.problems == ()
    assert set(overlay.names.values()) == set(variables) - {secret}
    config = loading.load(None, loading.Flags(roots=("/capsules",)), {**variables, secret: "s" * 32})
    assert config.listen.hosts == ("0.0.0.0",)
    assert config.listen.ports.first == 24000


def test_the_unit_gives_the_sidecar_more_time_than_it_takes() -> None:
    """B26: the stop limit is above the drain budget; the watchdog is on; bad input is not tried again, all else for ever."""
    section = service()
    assert float(section["TimeoutStopSec"]) > Config().limits.drain
    assert float(section["WatchdogSec"]) > 0
    assert (section["Type"], section["NotifyAccess"], section["KillMode"]) == ("notify", "main", "mixed")
    assert section["RestartPreventExitStatus"] == "2"
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0"
    program = section["ExecStart"].split()[0]
    assert section["ExecReload"] == f"{program} reload"


def test_the_unit_lets_workers_generate_code() -> None:
    """H46: MemoryDenyWriteExecute would kill workers that compile as they run."""
    assert "MemoryDenyWriteExecute" not in service()


@pytest.mark.machine
def test_the_unit_is_hardly_exposed(tmp_path: Path) -> None:
    """`systemd-analyze security` says at most 1.5, with all of the drop-in's example too."""
    for path in (UNIT, with_the_drop_in(tmp_path)):
        command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Overall exposure level" in done.stdout


@pytest.mark.machine
def test_the_unit_has_no_mistake_that_systemd_sees(tmp_path: Path) -> None:
    """`systemd-analyze verify` says nothing about it and the drop-in's example, where its program exists."""
    analyze = shutil.which("systemd-analyze")
    assert analyze
    done = subprocess.run(
        [analyze, "verify", str(with_the_drop_in(tmp_path))], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
