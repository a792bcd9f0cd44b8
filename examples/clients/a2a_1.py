#!/usr/bin/env python3
"""Sends a capsule a message with a2a-sdk 1.x, and prints the reply as it comes: `a2a_1.py URL TEXT`."""

import asyncio
import sys

from a2a.client import create_client
from a2a.helpers import get_artifact_text, new_text_message
from a2a.types import Role, SendMessageRequest


async def main(url: str, text: str) -> None:
    """Send, and follow the stream to its end."""
    async with await create_client(url) as client:
        request = SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))
        async for event in client.send_message(request):
            if event.HasField("artifact_update"):
                sys.stdout.write(get_artifact_text(event.artifact_update.artifact))


asyncio.run(main(*sys.argv[1:]))
