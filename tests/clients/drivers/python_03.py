"""Drives a capsule with the official A2A client for Python, 0.3.x: what comes of it goes to stdout as one JSON object.

    python_03.py all URL DIRECTORY     every scenario, side by side; gates of tasks are files in the directory
    python_03.py watch URL TASK        a line of JSON for each event of a task, until its stream ends

Runs in an environment of its own (tests/support/agents.py makes it), against the capsule `obedient`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

from a2a.client import ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    Role,
    TaskIdParams,
    TaskQueryParams,
    TextPart,
)


def said(text, task=None, context=None):
    """Return a message, to a task where one is named."""
    return Message(
        message_id=str(uuid4()),
        role=Role.user,
        parts=[Part(root=TextPart(text=text))],
        task_id=task,
        context_id=context,
    )


def plainly(model):
    """Return what a model holds as it was sent."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def event_of(seen):
    """Return the event of what the client makes of it: a message, a task, or a task with an update."""
    if isinstance(seen, Message):
        return plainly(seen)
    task, update = seen
    return plainly(task if update is None else update)


def task_in(events):
    """Return the id of the task that a stream began with."""
    return events[0]["id"]


async def present(file):
    """Wait until a file is there."""
    while not file.exists():
        await asyncio.sleep(0.01)


class Scenarios:
    """What is tried with one capsule, each on tasks of its own."""

    def __init__(self, plain, streaming, directory):
        self.plain, self.streaming, self.directory = plain, streaming, directory

    async def send(self, text, task=None, context=None):
        """Send and wait; return the task or the message."""
        answers = [each async for each in self.plain.send_message(said(text, task, context))]
        return event_of(answers[-1])

    async def stream(self, text, until=None):
        """Send and return the events, until one of them holds a text."""
        return await self.collect(self.streaming.send_message(said(text)), until)

    async def collect(self, stream, until=None):
        """Return the events of a stream, until one of them holds a text."""
        events = []
        async with aclosing(stream):
            async for seen in stream:
                events.append(event_of(seen))
                if until and until in json.dumps(events[-1]):
                    break
        return events

    async def get(self, task, length=None):
        """Return a task as it is."""
        return plainly(await self.plain.get_task(TaskQueryParams(id=task, history_length=length)))

    async def sent(self):
        """Send, and look at the task."""
        whole = await self.send("count 3")
        return {
            "send": whole,
            "get": await self.get(whole["id"]),
            "get without history": await self.get(whole["id"], 0),
            "reply": await self.send("message"),
            "failed": await self.send("whatever"),
        }

    async def at_once(self):
        """Send without waiting, and look until it is over."""
        configuration = MessageSendConfiguration(blocking=False)
        answers = self.plain.send_message(said("count 3"), configuration=configuration)
        return {"at once": await self.over(task_in([event_of(each) async for each in answers]))}

    async def streamed(self):
        """Send and follow."""
        return {"stream": await self.stream("count 3"), "artifacts": await self.stream("make")}

    async def asked(self):
        """Be asked, which ends the stream, and answer."""
        events = await self.stream("ask")
        return {"asked": events, "answered": await self.send("Ada", task_in(events))}

    async def canceled(self):
        """Cancel a task that runs."""
        gate = self.directory / "never"
        events = await self.stream(f"hold {gate}", until="begun")
        return {"cancel": plainly(await self.plain.cancel_task(TaskIdParams(id=task_in(events))))}

    async def left(self):
        """Leave a stream, come back to it, and see the end."""
        gate = self.directory / "again"
        events = await self.stream(f"hold {gate}", until="begun")
        again = self.streaming.resubscribe(TaskIdParams(id=task_in(events)))
        first = event_of(await anext(again))
        gate.touch()
        rest = await self.collect(again)
        return {"left": events, "again": [first, *rest], "got": await self.get(task_in(events))}

    async def gave_up(self):
        """Give up a call that waits for its answer."""
        gate = self.directory / "given-up"
        call = asyncio.create_task(self.send(f"hold {gate}"))
        await present(Path(f"{gate}.begun"))
        call.cancel()
        await asyncio.wait([call])
        gate.touch()
        return {}

    async def silent(self):
        """Wait for longer than the client waits for a byte."""
        events, answer = await asyncio.gather(self.stream("silent 7"), self.send("silent 7"))
        return {"silent stream": events, "silent send": answer}

    async def over(self, task):
        """Look at a task until it is over."""
        while True:
            seen = await self.get(task)
            if seen["status"]["state"] not in ("submitted", "working"):
                return seen
            await asyncio.sleep(0.01)

    async def refused(self):
        """Do what must be refused."""
        context = str(uuid4())
        ended = (await self.send("count 1", context=context))["id"]
        client = self.streaming
        tries = {
            "get": client.get_task(TaskQueryParams(id="nowhere")),
            "cancel": client.cancel_task(TaskIdParams(id=ended)),
            "subscribe": self.collect(client.resubscribe(TaskIdParams(id=ended))),
            "send": self.send("more", ended),
            "context": self.send("more", ended, "of-somebody-else"),
            "push": client.get_task_callback(GetTaskPushNotificationConfigParams(id=ended)),
        }
        errors = {}
        for name, tried in tries.items():
            try:
                await tried
            except A2AClientJSONRPCError as error:
                errors[name] = error.error.code
        return {"errors": errors}


async def every(url, directory):
    """Run all scenarios side by side and print what came of them."""
    plain = await ClientFactory.connect(url, ClientConfig(streaming=False))
    streaming = await ClientFactory.connect(url)
    of = Scenarios(plain, streaming, Path(directory))
    parts = await asyncio.gather(
        of.sent(),
        of.at_once(),
        of.streamed(),
        of.asked(),
        of.canceled(),
        of.left(),
        of.gave_up(),
        of.silent(),
        of.refused(),
    )
    card = plainly(await streaming.get_card())
    await plain.close()
    await streaming.close()
    print(json.dumps({"card": card} | {name: value for part in parts for name, value in part.items()}))


async def watch(url, task):
    """Print the events of a task as they come."""
    client = await ClientFactory.connect(url)
    async for seen in client.resubscribe(TaskIdParams(id=task)):
        print(json.dumps(event_of(seen)), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run({"all": every, "watch": watch}[sys.argv[1]](*sys.argv[2:]))
