#!/usr/bin/env python3
"""Sends a capsule a message with a2a-sdk 0.3.x, and prints the reply as it comes: `a2a_03.py URL TEXT`."""

import asyncio
import sys

from a2a.client import ClientFactory, create_text_message_object
from a2a.types import TaskArtifactUpdateEvent
from a2a.utils import get_artifact_text


async def main(url: str, text: str) -> None:
    """Send, and follow the stream to its end."""
    async with await ClientFactory.connect(url) as client:
        async for _task, update in client.send_message(create_text_message_object(content=text)):
            if isinstance(update, TaskArtifactUpdateEvent):
                sys.stdout.write(get_artifact_text(update.artifact))


asyncio.run(main(*sys.argv[1:]))
