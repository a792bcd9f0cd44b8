#!/usr/bin/env python3
"""Talks to an agent with everruns-sdk: `everruns_chat.py AGENT_URL KEY TEXT…`, each text a turn of one session."""

import asyncio
import sys

from everruns_sdk import AgentClient


async def main(url: str, key: str, *texts: str) -> None:
    """Begin a session, and print the reply of each turn."""
    async with AgentClient(agent_url=url, credential=key) as agent:
        session = await agent.create_session(title="A first conversation")
        for text in texts:
            sys.stdout.write(await agent.run(text, session_id=session["id"]))


asyncio.run(main(*sys.argv[1:]))
