"""A real nginx, with everything that it writes below a directory of the test."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = "nginx"


@contextmanager
def proxy(tmp_path: Path, server: str) -> Iterator[None]:
    """Run nginx on a configuration, with everything that it writes below a directory of the test."""
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path="/usr/sbin")
    assert program is not None, "nginx is missing: apt-get install nginx-light"
    places = "".join(
        f"{name}_temp_path {tmp_path / 'nginx'};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"daemon off;\nmaster_process off;\npid {tmp_path / 'nginx.pid'};\nerror_log stderr warn;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{places}{server}}}\n"
    )
    with (tmp_path / "nginx.log").open("w") as log:
        process = subprocess.Popen([program, "-p", str(tmp_path), "-c", str(config)], stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, (tmp_path / "nginx.log").read_text()
        finally:
            process.terminate()
            process.wait(10)
