"""The manifests for Kubernetes: valid, whole, and what their pod would do, played by two processes."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.support.spawned import environment, running, sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = Path(__file__).parents[2] / "deploy" / "kubernetes"
TOKEN = "made-up-by-the-test"


def resources() -> dict[tuple[str, str], dict[str, Any]]:
    """Return every resource that the kustomization lists, by kind and name."""
    listed = yaml.safe_load((DIRECTORY / "kustomization.yaml").read_text())["resources"]
    documents = (d for name in listed for d in yaml.safe_load_all((DIRECTORY / name).read_text()))
    return {(d["kind"], d["metadata"]["name"]): d for d in documents}


def pod() -> dict[str, Any]:
    """Return the pod's specification."""
    spec: dict[str, Any] = resources()["StatefulSet", "hello"]["spec"]["template"]["spec"]
    return spec


def mount(configmap: str, at: Path) -> None:
    """Lay a ConfigMap out as the kubelet does, or put a newer state of it in the place of the older one."""
    at.mkdir(parents=True, exist_ok=True)
    inside = at / f"..{len(list(at.iterdir()))}"
    inside.mkdir()
    for name, text in resources()["ConfigMap", configmap]["data"].items():
        (inside / name).write_text(text)
        if not (at / name).is_symlink():
            (at / name).symlink_to(f"..data/{name}")
    (at / "..data_tmp").symlink_to(inside.name)
    (at / "..data_tmp").rename(at / "..data")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@contextlib.contextmanager
def started(command: list[str], **variables: str) -> Iterator[None]:
    """Run the pod's other container."""
    process = subprocess.Popen(command, env=environment(**variables), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_every_file_is_listed_and_every_name_that_is_referred_to_is_there() -> None:
    """A kustomization that forgets a file, or a volume without its ConfigMap, would be found only in a cluster."""
    listed = yaml.safe_load((DIRECTORY / "kustomization.yaml").read_text())["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in DIRECTORY.iterdir()}
    spec = pod()
    maps = {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume}
    assert {("ConfigMap", name) for name in maps} == {key for key in resources() if key[0] == "ConfigMap"}
    volumes = {volume["name"] for volume in spec["volumes"]} | {"state"}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert {m["name"] for m in container["volumeMounts"]} <= volumes
    service = resources()["Service", "hello"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in spec["initContainers"][0]["ports"]}
    assert [(p["port"], ports[p["targetPort"]]) for p in service["ports"]] == [(24000, 24000)]


def test_the_sidecar_is_a_native_one_without_any_right() -> None:
    """It starts before the agent and ends after it; neither container is root, writes its image, or gains a right."""
    spec = pod()
    assert [c.get("restartPolicy") for c in spec["initContainers"]] == ["Always"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["automountServiceAccountToken"] is False
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_state_is_a_directory_of_its_own_in_a_volume_that_is_root_s() -> None:
    """By `fsGroup` a volume is its group's and still belongs to root: the sidecar makes a directory in it, once opened."""
    spec = pod()
    (sidecar_,) = spec["initContainers"]
    state = Path(next(one["value"] for one in sidecar_["env"] if one["name"] == "SIDECAR_STATE"))
    (volume,) = (m["mountPath"] for m in sidecar_["volumeMounts"] if m["name"] == "state")
    assert Path(volume) in state.parents
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_the_probes_name_a_host_that_is_always_let_in() -> None:
    """With `desk.allowed_hosts` the pod's address, which kubelets would name, is a stranger's."""
    (sidecar_,) = pod()["initContainers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert sidecar_[probe]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_the_pod_s_two_containers_serve_a_capsule_and_a_new_manifest_arrives(tmp_path: Path) -> None:
    """The configuration, the capsule and the worker as they would be mounted; the paths alone are the test's."""
    port = free_port()
    (tmp_path / "token").mkdir()
    (tmp_path / "token" / "worker").write_text(TOKEN)
    (tmp_path / "workspaces" / "hello").mkdir(parents=True)
    mount("hello-capsule", tmp_path / "capsules" / "hello")
    mount("hello-worker", tmp_path / "agent")
    text = resources()["ConfigMap", "sidecar-config"]["data"]["config.yaml"]
    for path, here in (
        ("/capsules", "capsules"),
        ("/workspaces", "workspaces"),
        ("/etc/sidecar-token", "token"),
    ):
        text = re.sub(rf"(?<=[ ]){path}", str(tmp_path / here), text)
    text = text.replace("host: 0.0.0.0", "host: 127.0.0.1").replace("port: 24000", f"port: {port}")
    text = text.replace("desk:\n", "desk:\n  allowed_hosts: [desk.example]\n")
    config = tmp_path / "config.yaml"
    config.write_text(text)
    state = tmp_path / "state"
    with running(["--config", str(config)], state=state) as spawned:
        worker = [sys.executable, str(tmp_path / "agent" / "worker.py")]
        with started(worker, SIDECAR_URL=spawned.desk, SIDECAR_TOKEN=TOKEN):
            answer = sidecar("send", "hello", "Ann", "--state", str(state))
        assert (answer.returncode, answer.stdout) == (0, "Hello Ann!\n")
        assert spawned.card("hello")["url"] == f"hello:{port}"
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = pod()["initContainers"][0][probe]["httpGet"]
            headers = {header["name"]: header["value"] for header in asked["httpHeaders"]}
            with urlopen(Request(spawned.desk + asked["path"], headers=headers), timeout=10) as told:
                assert told.status == 200
        newer = tmp_path / "capsules" / "hello"
        mount("hello-capsule", newer)
        manifest = newer / "..data" / "murmur.yaml"
        aside = manifest.with_name("..aside")
        aside.write_text(manifest.read_text().replace('"0.1.0"', '"0.2.0"'))
        aside.rename(manifest)
        spawned.until_version("hello", "0.2.0")
    assert not [line for line in spawned.raw if TOKEN in line]


@pytest.mark.machine
def test_kubernetes_itself_would_take_the_manifests(tmp_path: Path) -> None:
    """Each resource against the schema of its kind, unknown members refused (kubernetes-validate, from PyPI)."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    install = [
        str(programs / "pip"),
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "kubernetes-validate",
    ]
    subprocess.run(install, check=True, timeout=300)
    files = sorted(str(path) for path in DIRECTORY.glob("*.yaml") if path.name != "kustomization.yaml")
    run = [str(programs / "kubernetes-validate"), "--strict", *files]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"passed for resource", done.stdout + done.stderr)) == len(resources())
