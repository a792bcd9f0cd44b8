#!/usr/bin/env python3
"""A worker that does what a message says: counts, asks back, makes things, keeps silent, waits."""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path


def say(kind: str, **members: object) -> None:
    """Say one thing of the task."""
    sys.stdout.write(json.dumps({"type": kind, **members}) + "\n")
    sys.stdout.flush()


def hear() -> str:
    """Wait for the next message and return its text."""
    return str(json.loads(sys.stdin.readline())["text"])


def count(most: str) -> None:
    """Stream numbers."""
    for number in range(int(most)):
        say("text", text=f"{number} ")
    say("completed")


def ask() -> None:
    """Ask back, and say what was answered."""
    say("input-required", prompt="who?")
    say("completed", response=f"you said {hear()}")


def wait_for(gate: str) -> None:
    """Wait until a file is there."""
    while not Path(gate).exists():
        time.sleep(0.01)


def make(gate: str) -> None:
    """Make an artifact of every kind of part, one of them in two pieces; where a file is named, once it is there."""
    if gate:
        wait_for(gate)
    say("status", message="at it")
    say("artifact", name="report", artifact_id="report", parts=[{"text": "one "}], last=False)
    say("artifact", name="report", artifact_id="report", parts=[{"text": "two"}], append=True, last=True)
    raw = {"raw": base64.b64encode(b"\x00\x01").decode(), "filename": "a.bin"}
    say("artifact", name="file", artifact_id="file", parts=[{**raw, "mediaType": "application/octet-stream"}])
    say("artifact", name="link", artifact_id="link", parts=[{"url": "https://example.com/a.txt"}])
    say("artifact", name="data", artifact_id="data", parts=[{"data": {"a": 1}}])
    say("completed", response="made it")


def hold(gate: str) -> None:
    """Say a word, and the rest once a file is there."""
    say("text", text="begun")
    Path(f"{gate}.begun").touch()
    wait_for(gate)
    say("text", text=" done")
    say("completed")


def main() -> None:
    """Do one task."""
    word, _, rest = hear().partition(" ")
    if word == "count":
        count(rest)
    elif word == "ask":
        ask()
    elif word == "make":
        make(rest)
    elif word == "message":
        say("message", parts=[{"text": "just so"}])
    elif word == "silent":
        time.sleep(float(rest))
        say("completed", response="at last")
    elif word == "hold":
        hold(rest)
    else:
        say("failed", message="no luck")


if __name__ == "__main__":
    main()
