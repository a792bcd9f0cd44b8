#!/usr/bin/env python3
"""The worker that the public conformance kits of A2A are run against: the id of a message says what becomes of it.

The kit for 0.3 wants tasks that wait for input, and sends them more of it. The kit for 1.0 marks its messages with the
prefixes of SCENARIOS; what else it sends is completed.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from typing import Any

Line = dict[str, Any]

ACTIVE = 4.5
"""Seconds for which a task stays active that a kit wants to subscribe to again; the kits ask for 4 at least."""

FILE: Line = {"raw": base64.b64encode(b"tck").decode(), "filename": "output.txt", "mediaType": "text/plain"}
LINK: Line = {"url": "https://example.com/output.txt", "filename": "output.txt", "mediaType": "text/plain"}
DATA: Line = {"data": {"key": "value", "count": 42}}
DONE: Line = {"type": "completed"}


def artifact(part: Line, **more: object) -> Line:
    """Return the line that makes an artifact of one part."""
    return {"type": "artifact", "name": "output", "artifact_id": "output", "parts": [part], **more}


SCENARIOS: dict[str, list[Line]] = {
    "tck-input-required": [{"type": "input-required", "prompt": "What next?"}],
    "tck-reject-task": [{"type": "rejected", "message": "rejected"}],
    "tck-message-response": [{"type": "message", "parts": [{"text": "Direct message response"}]}],
    "tck-artifact-text": [artifact({"text": "Generated text content"}), DONE],
    "tck-artifact-file": [artifact(FILE), DONE],
    "tck-artifact-file-url": [artifact(LINK), DONE],
    "tck-artifact-data": [artifact(DATA), DONE],
    "tck-stream-001": [artifact({"text": "Stream hello from TCK"}), DONE],
    "tck-stream-002": [DONE],
    "tck-stream-003": [artifact({"text": "Stream task lifecycle"}), DONE],
    "tck-stream-ordering-001": [artifact({"text": "Ordered output"}), DONE],
    "tck-stream-artifact-text": [artifact({"text": "Streamed text content"}), DONE],
    "tck-stream-artifact-file": [artifact(FILE), DONE],
    "tck-stream-artifact-chunked": [
        artifact({"text": "chunk-1 "}, last=False),
        artifact({"text": "chunk-2"}, append=True, last=True),
        DONE,
    ],
    "tck-": [{"type": "completed", "response": "Hello from TCK"}],
}
"""What is said to a message whose id begins so; the longest prefix counts."""

PARKED: list[Line] = [{"type": "input-required", "prompt": "What next?"}]


def lines_for(message_id: str) -> list[Line]:
    """Return what is said to a message."""
    fitting = [prefix for prefix in SCENARIOS if message_id.startswith(prefix)]
    return SCENARIOS[max(fitting, key=len)] if fitting else PARKED


def main() -> None:
    """Do one task."""
    for line in sys.stdin:
        message_id = json.loads(line)["messageId"]
        if message_id.startswith("test-resubscribe-message-id"):
            time.sleep(ACTIVE)
            said = [DONE]
        else:
            said = lines_for(message_id)
        sys.stdout.writelines(json.dumps(each) + "\n" for each in said)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
