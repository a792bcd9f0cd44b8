"""The published Everruns client, unmodified: does what an application does with an agent, and prints what it saw."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from everruns_sdk import AgentClient, ApiError
from everruns_sdk.errors import EverrunsError


async def run_all(agent: AgentClient, gates: Path) -> dict[str, object]:
    """Run every scenario and return what came of each."""
    seen: dict[str, object] = {"card": await agent.card()}
    seen["reply"] = await agent.run("count 3")
    session = (await agent.create_session("A title", idempotency_key="one"))["id"]
    seen["same"] = (await agent.create_session("A title", idempotency_key="one"))["id"] == session
    seen["first"] = await agent.run("count 2", session_id=session)
    seen["second"] = await agent.run("count 1", session_id=session)
    seen["got"] = await agent.get_session(session)
    seen["listed"] = (await agent.list_sessions(limit=1))["data"][0]["id"] == session
    events = await agent.list_events(session, limit=500)
    seen["sequences"] = [event.sequence for event in events]
    seen["types"] = [event.type for event in events]
    seen["failed"] = await refused(agent.run("fail /etc/passwd"))
    seen["missing"] = await refused(agent.get_session("session_" + "0" * 32))
    seen["answered"] = await answered(agent)
    seen["resumed"] = await resumed(agent, gates)
    seen["cancelled"] = await cancelled(agent, gates)
    return seen


async def refused(work: object) -> str:
    """Return what a call that must fail raises."""
    try:
        await work
    except ApiError as error:
        return f"{error.status_code} {error.code}"
    except EverrunsError as error:
        return str(error)
    return "nothing"


async def answered(agent: AgentClient) -> dict[str, object]:
    """Answer what the agent asks."""
    session = (await agent.create_session())["id"]
    await agent.send_message(session, "ask")
    asked = replied = None
    async for event in agent.stream_events(session, after_sequence=0):
        if event.type == "output.message.completed":
            text = event.data["message"]["content"][0]["text"]
            if asked is None:
                asked = (await agent.get_session(session))["pending_questions"][0]["question"]
                await agent.send_message(session, "Ada")
            replied = text
        elif event.type == "turn.completed":
            break
    return {"asked": asked, "replied": replied}


async def resumed(agent: AgentClient, gates: Path) -> list[str]:
    """Leave a stream in the middle of a turn, and come back with the id that was seen last."""
    session = (await agent.create_session())["id"]
    await agent.send_message(session, f"hold {gates / 'resumed'}")
    seen = []
    since = None
    async for event in agent.stream_events(session, after_sequence=0):
        seen.append(event.type)
        since = event.id
        if event.type == "output.message.delta":
            break
    (gates / "resumed").touch()
    async for event in agent.stream_events(session, since_id=since):
        seen.append(event.type)
        if event.type == "turn.completed":
            break
    return seen


async def cancelled(agent: AgentClient, gates: Path) -> list[str]:
    """Cancel a turn that runs."""
    session = (await agent.create_session())["id"]
    await agent.send_message(session, f"hold {gates / 'cancelled'}")
    seen = []
    async for event in agent.stream_events(session, after_sequence=0):
        seen.append(event.type)
        if event.type == "output.message.delta":
            await agent.cancel(session)
        if event.type == "turn.cancelled":
            break
    return seen


async def main(url: str, gates: str) -> None:
    """Run them against an agent."""
    async with AgentClient(agent_url=url, credential=sys.argv[3]) as agent:
        print(json.dumps(await run_all(agent, Path(gates))))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
