"""Reads documents with the types of the SDK for A2A 0.3: one a line, each with its kind. Says what it makes of them."""

import json
import sys

from a2a.types import (
    AgentCard,
    GetTaskSuccessResponse,
    JSONRPCErrorResponse,
    SendMessageSuccessResponse,
    SendStreamingMessageSuccessResponse,
)

KINDS = {
    "card": AgentCard,
    "task": GetTaskSuccessResponse,
    "send": SendMessageSuccessResponse,
    "stream": SendStreamingMessageSuccessResponse,
    "error": JSONRPCErrorResponse,
}

for line in sys.stdin:
    kind, document = json.loads(line)
    try:
        read = KINDS[kind].model_validate(document)
        print(json.dumps(json.loads(read.model_dump_json(exclude_none=True))))
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is the answer
        print(json.dumps({"raised": str(error)}))
