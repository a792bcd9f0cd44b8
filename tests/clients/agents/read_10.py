"""Reads documents with the types of the SDK for A2A 1.0: one a line, each with its kind. Says what it makes of them."""

import json
import sys

from a2a.types import a2a_pb2
from google.protobuf import any_pb2, json_format
from google.rpc import error_details_pb2

assert error_details_pb2.ErrorInfo  # so that it is known by its name

KINDS = {
    "card": a2a_pb2.AgentCard,
    "task": a2a_pb2.Task,
    "send": a2a_pb2.SendMessageResponse,
    "stream": a2a_pb2.StreamResponse,
    "list": a2a_pb2.ListTasksResponse,
    "detail": any_pb2.Any,
}

for line in sys.stdin:
    kind, document = json.loads(line)
    try:
        read = json_format.ParseDict(document, KINDS[kind](), ignore_unknown_fields=False)
        print(json.dumps(json_format.MessageToDict(read)))
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is the answer
        print(json.dumps({"raised": str(error)}))
