"""The state directory on a real file system: whose it is, who holds it, and what it says."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar import state
from sidecar.errors import SidecarError
from sidecar.state import State
from tests.support.somebody import AS_ROOT, NOBODY, open_place, somebody

HOLDER = """
import sys
from sidecar.state import State
held = State.open(sys.argv[1])
held.write_run(host="127.0.0.1", port=7410, url="http://127.0.0.1:7410", version="0")
print("held", flush=True)
sys.stdin.read()
"""


def mode(path: Path) -> int:
    """Return a file's permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def write_token(directory: Path, text: str, permissions: int = 0o600) -> Path:
    """Put an admin token of one's own into a state directory that is made for it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / "admin.token"
    path.write_text(text)
    path.chmod(permissions)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return where the state is to be."""
    return tmp_path / "var" / "sidecar"


@pytest.mark.parametrize(
    ("environ", "flag", "configured", "expected"),
    [
        ({"SIDECAR_STATE": "/e", "STATE_DIRECTORY": "/s"}, "/f", "/c", "/f"),
        ({"SIDECAR_STATE": "/e", "STATE_DIRECTORY": "/s"}, None, "/c", "/e"),
        ({"STATE_DIRECTORY": "/s:/t", "XDG_STATE_HOME": "/x"}, None, "/c", "/c"),
        ({"STATE_DIRECTORY": "/s:/t", "XDG_STATE_HOME": "/x"}, None, None, "/s"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, None, None, "/x/sidecar"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, None, None, "/h/.local/state/sidecar"),
        ({"SIDECAR_STATE": "", "STATE_DIRECTORY": "", "HOME": "/h"}, "", "", "/h/.local/state/sidecar"),
    ],
)
def test_the_state_directory_is_the_first_that_is_named(
    environ: dict[str, str], flag: str | None, configured: str | None, expected: str
) -> None:
    """Flag, environment, configuration, systemd, XDG, home: in this order, and empty means unset."""
    assert state.default_state_dir(environ, flag, configured) == Path(expected)


def test_a_relative_state_directory_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given relative to the working directory does not move with it later."""
    monkeypatch.chdir(tmp_path)
    assert state.default_state_dir({}, "x/../state") == tmp_path / "state"


def test_a_first_start_makes_a_private_directory_with_a_private_token(home: Path) -> None:
    """Everything in the state directory is for its owner alone, whatever the umask is."""
    before = os.umask(0)
    try:
        with State.open(home) as opened:
            assert opened.admin_token.startswith("sc_adm_")
            assert len(opened.admin_token) == len("sc_adm_") + 43
            assert mode(home) == mode(home.parent) == 0o700
            assert mode(home / "admin.token") == mode(home / "lock") == 0o600
            assert opened.database == home / "sidecar.db"
            assert sorted(p.name for p in home.iterdir()) == ["admin.token", "lock"]
    finally:
        os.umask(before)


def test_a_umask_that_takes_everything_hides_nothing_from_the_owner(home: Path) -> None:
    """The token stays readable by its owner under the strangest umask."""
    home.mkdir(parents=True, mode=0o700)
    before = os.umask(0o777)
    try:
        State.open(home).close()
    finally:
        os.umask(before)
    assert mode(home / "admin.token") == 0o600


def test_the_token_outlives_a_restart(home: Path) -> None:
    """The admin token is made once, and read again by the next daemon and by the command line."""
    with State.open(home) as first:
        token = first.admin_token
    with State.open(home) as second:
        assert second.admin_token == state.read_admin_token(home) == token


def test_an_operator_may_bring_a_token(home: Path) -> None:
    """A token that is there already is used as it is, without the line end of the editor."""
    home.parent.mkdir()
    write_token(home, "a-token-of-our-own-1234\n", 0o400)
    with State.open(home) as opened:
        assert opened.admin_token == "a-token-of-our-own-1234"


@pytest.mark.parametrize(
    ("text", "permissions", "words"),
    [
        ("", 0o600, "no usable token"),
        ("\n", 0o600, "no usable token"),
        ("short", 0o600, "no usable token"),
        ("sc_adm_with spaces in it, long enough", 0o600, "no usable token"),
        ("sc_adm_ünicode_is_no_header_value", 0o600, "no usable token"),
        ("sc_adm_0123456789abcdef", 0o640, "mode 0640"),
        ("sc_adm_0123456789abcdef", 0o604, "mode 0604"),
    ],
)
def test_a_token_that_is_no_secret_is_refused(home: Path, text: str, permissions: int, words: str) -> None:
    """An empty, weak or readable token stops the start, naming the file and what to do."""
    home.parent.mkdir()
    path = write_token(home, text, permissions)
    with pytest.raises(SidecarError, match=words) as refused:
        State.open(home)
    assert str(path) in str(refused.value)
    assert "remove it" in str(refused.value)
    path.unlink()
    State.open(home).close()  # the refused start let go of the lock


@pytest.mark.parametrize("permissions", [0o660, 0o604])
def test_a_token_of_its_own_that_was_opened_to_others_is_made_anew(home: Path, permissions: int) -> None:
    """Kubernetes opens a whole volume to the pod's group: the next start comes all the same, and with another token."""
    with State.open(home) as first:
        assert not first.renewed
    for path in home.iterdir():
        path.chmod(permissions)
    home.chmod(0o2770)
    with State.open(home) as second:
        assert second.renewed
        assert second.admin_token != first.admin_token
        assert mode(home / "admin.token") == 0o600
        assert mode(home) & 0o777 == 0o700
    with State.open(home) as third:
        assert not third.renewed
        assert third.admin_token == second.admin_token


def test_a_token_that_is_a_link_or_no_file_is_refused(home: Path) -> None:
    """Nothing but a plain file is read for a token, and nothing blocks on it."""
    home.mkdir(parents=True, mode=0o700)
    (home / "admin.token").symlink_to("/etc/hostname")
    with pytest.raises(
        SidecarError, match=r"admin\.token is a link: put the file itself there, or remove it"
    ):
        State.open(home)
    (home / "admin.token").unlink()
    os.mkfifo(home / "admin.token", 0o600)
    with pytest.raises(SidecarError, match="no plain file"):
        State.open(home)


def test_a_lock_that_is_a_link_is_refused(home: Path) -> None:
    """Two states must not share one; what is to be done is said."""
    home.mkdir(parents=True, mode=0o700)
    (home / "lock").symlink_to("elsewhere")
    with pytest.raises(SidecarError, match="lock is a link, which a lock must not be: remove it"):
        State.open(home)


def test_a_run_json_that_cannot_be_read_tells_only_the_wrong_user_to_be_another(home: Path) -> None:
    """A directory in its place is nothing that another user could read."""
    (home / "run.json").mkdir(parents=True)
    with pytest.raises(SidecarError, match=r"Is a directory$"):
        state.read_run(home)


@pytest.mark.parametrize("below", ["", "further/down"])
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, below: str) -> None:
    """The state directory itself or one above it: nothing is made where it leads."""
    link = tmp_path / "link"
    for target in ("gone", "link"):
        link.symlink_to(target)
        with pytest.raises(SidecarError, match=f"{link} is a link to {target}, which is not there"):
            State.open(link / below)
        link.unlink()
    assert list(tmp_path.iterdir()) == []


def test_our_own_directory_is_closed_to_others(home: Path) -> None:
    """A state directory that others may enter is made private, since it is ours to do."""
    home.mkdir(parents=True)
    home.chmod(0o755)
    State.open(home).close()
    assert mode(home) == 0o700


def test_a_link_to_the_state_directory_is_followed(home: Path, tmp_path: Path) -> None:
    """Service managers put a link where they promised a directory."""
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    with State.open(tmp_path / "link"):
        assert (home / "lock").exists()


@pytest.mark.skipif(not AS_ROOT, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(home: Path) -> None:
    """The state is not kept where somebody else could change it."""
    home.mkdir(parents=True)
    os.chown(home, 12345, -1)
    with pytest.raises(SidecarError, match="belongs to another user"):
        State.open(home)
    assert list(home.iterdir()) == []


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user for a while")
@pytest.mark.parametrize(("permissions", "proposed"), [(0o755, False), (0o777, True), (0o555, False)])
def test_a_directory_in_one_of_another_user_is_proposed_where_it_can_be_made(
    permissions: int,
    proposed: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Advice that cannot be followed is none."""
    with open_place() as place:
        home = place / "state"
        home.mkdir()
        home.chmod(permissions)
        with somebody(), pytest.raises(SidecarError, match="belongs to another user") as caught:
            State.open(home)
        assert (f"such as {home}/sidecar" in str(caught.value)) is proposed


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user for a while")
def test_a_directory_in_a_volume_of_root_and_of_our_group_is_made_and_found_again() -> None:
    """So `fsGroup` of Kubernetes hands a volume to a pod, and it may open all that is in it to the group once more."""
    with open_place() as place:
        volume = place / "volume"
        volume.mkdir()
        os.chown(volume, 0, NOBODY)
        volume.chmod(0o2775)
        with somebody():
            State.open(volume / "state").close()
            for path in (volume / "state").iterdir():
                path.chmod(mode(path) | 0o060)
            (volume / "state").chmod(0o2770)
            with State.open(volume / "state") as opened:
                assert opened.renewed


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user for a while")
def test_who_may_not_look_is_told_who_may() -> None:
    """A service manager may run the sidecar as a user whom nobody can become, so root is named too."""
    with open_place() as place:
        State.open(place / "state").close()
        with somebody(), pytest.raises(SidecarError, match="run this as root, or as the sidecar's user"):
            state.read_run(place / "state")


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    """A path that is no directory, or leads through none, is one plain error."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SidecarError, match="no directory"):
        State.open(tmp_path / "file")
    with pytest.raises(SidecarError, match="cannot make the state directory"):
        State.open(tmp_path / "file" / "below")


def test_a_second_daemon_is_refused_by_the_pid_of_the_first(home: Path) -> None:
    """One state has one daemon; a kill -9 of it frees the lock, and what it left behind is not believed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        run = state.read_run(home)
        assert run is not None
        assert (run.pid, run.desk_port, run.desk_url) == (holder.pid, 7410, "http://127.0.0.1:7410")
        with pytest.raises(SidecarError, match=f"in use by the sidecar with pid {holder.pid}"):
            State.open(home)
        assert state.read_run(home) == run  # the refused one took nothing from the other
        holder.kill()
        holder.wait()
    assert (home / "run.json").exists()
    assert state.read_run(home) is None
    with State.open(home):
        assert not (home / "run.json").exists()


def test_a_second_opening_in_one_process_is_refused(home: Path) -> None:
    """The lock belongs to the opening, not to the process."""
    with State.open(home), pytest.raises(SidecarError, match=f"pid {os.getpid()}"):
        State.open(home)


def test_the_lock_is_not_inherited(home: Path) -> None:
    """A program that the sidecar starts does not hold the state after the sidecar's end."""
    with State.open(home):
        with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
            held = [str(fd.readlink()) for fd in Path(f"/proc/{child.pid}/fd").iterdir()]
            child.kill()
        assert str(home / "lock") not in held


def test_run_json_says_who_runs_and_goes_with_a_clean_stop(home: Path) -> None:
    """`run.json` is plain JSON from ready to stop."""
    with State.open(home) as opened:
        assert state.read_run(home) is None
        opened.write_run(host="::1", port=7410, url="http://[::1]:7410", version="1.2.3")
        opened.write_run(host="::1", port=7411, url="http://[::1]:7411", version="1.2.3")
        document = json.loads((home / "run.json").read_text())
        assert document["desk"] == {"host": "::1", "port": 7411, "url": "http://[::1]:7411"}
        assert document["pid"] == os.getpid()
        assert document["version"] == "1.2.3"
        assert mode(home / "run.json") == 0o600
        run = state.read_run(home)
        assert run is not None
        assert run.alive
        assert not (home / "run.json.new").exists()
        opened.close()
        opened.close()
    assert not (home / "run.json").exists()


@pytest.mark.parametrize("change", [{"pid": 2**22 + 1}, {"start_time": 1}])
def test_another_process_with_the_pid_is_not_the_daemon(home: Path, change: dict[str, int]) -> None:
    """A reader believes `run.json` only when pid and start time are those of a live process."""
    with State.open(home) as opened:
        opened.write_run(host="127.0.0.1", port=1, url="http://127.0.0.1:1", version="0")
        document = json.loads((home / "run.json").read_text()) | change
        (home / "run.json").write_text(json.dumps(document))
        assert state.read_run(home) is None


def test_a_zombie_does_not_run() -> None:
    """A process that ended but was not waited for has no start time."""
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert state.process_start_time(child.pid) is None
    assert state.process_start_time(os.getpid()) is not None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"pid": null, "desk": {}}', '{"desk": 1}'])
def test_a_run_json_of_something_else_is_named(home: Path, content: str) -> None:
    """A file that no sidecar wrote is an error with its path, not a traceback."""
    home.mkdir(parents=True)
    (home / "run.json").write_text(content)
    with pytest.raises(SidecarError, match=r"run\.json was not written by a sidecar"):
        state.read_run(home)


def test_no_state_means_that_nothing_runs(tmp_path: Path) -> None:
    """Without the directory, or with a file on the way, no daemon is running there."""
    assert state.read_run(tmp_path / "none") is None
    (tmp_path / "file").write_text("")
    assert state.read_run(tmp_path / "file" / "below") is None
    with pytest.raises(SidecarError, match="start the sidecar once"):
        state.read_admin_token(tmp_path / "none")


def test_a_full_disk_is_said_plainly(home: Path) -> None:
    """A state directory that takes nothing more gives one clear error and keeps no half file."""
    home.mkdir(parents=True, mode=0o700)
    script = f"""
import resource, signal
from sidecar.state import State
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
try:
    State.open({str(home)!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert answer.startswith(f"SidecarError cannot write in the state directory {home}: ")
    assert sorted(p.name for p in home.iterdir()) == ["lock"]


def test_reading_the_state_imports_nothing_heavy() -> None:
    """`sidecar health` runs every few seconds: the module imports the standard library only, and little of it."""
    script = "import sys, sidecar.state; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"yaml", "aiohttp", "pydantic", "orjson", "structlog", "asyncio", "sqlite3", "random"} & set(
        loaded
    )
