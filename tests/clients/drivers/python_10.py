"""Drives a capsule with the official A2A client for Python, 1.x: what comes of it goes to stdout as one JSON object.

    python_10.py all URL DIRECTORY     every scenario, side by side; gates of tasks are files in the directory
    python_10.py watch URL TASK        a line of JSON for each event of a task, until its stream ends

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
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict


def said(text, task=None, context=None):
    """Return a request that sends a text, to a task where one is named."""
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
    if task:
        message.task_id = task
    if context:
        message.context_id = context
    return SendMessageRequest(message=message)


def task_in(events):
    """Return the id of the task that a stream began with."""
    return events[0]["task"]["id"]


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
        return MessageToDict(answers[-1])

    async def stream(self, text, until=None):
        """Send and return the events, until one of them holds a text."""
        return await self.collect(self.streaming.send_message(said(text)), until)

    async def collect(self, stream, until=None):
        """Return the events of a stream, until one of them holds a text."""
        events = []
        async with aclosing(stream):
            async for event in stream:
                events.append(MessageToDict(event))
                if until and until in json.dumps(events[-1]):
                    break
        return events

    async def get(self, task, length=None):
        """Return a task as it is."""
        return MessageToDict(await self.plain.get_task(GetTaskRequest(id=task, history_length=length)))

    async def sent(self):
        """Send, and look at the task."""
        whole = await self.send("count 3")
        task = whole["task"]["id"]
        return {
            "send": whole,
            "get": await self.get(task),
            "get without history": await self.get(task, 0),
            "reply": await self.send("message"),
            "failed": await self.send("whatever"),
        }

    async def at_once(self):
        """Send without waiting, and look until it is over."""
        request = said("count 3")
        request.configuration.CopyFrom(SendMessageConfiguration(return_immediately=True))
        answers = [MessageToDict(each) async for each in self.plain.send_message(request)]
        return {"at once": await self.over(answers[0]["task"]["id"])}

    async def streamed(self):
        """Send and follow."""
        return {"stream": await self.stream("count 3"), "artifacts": await self.stream("make")}

    async def asked(self):
        """Be asked, and answer; the stream stays open meanwhile."""
        stream = self.streaming.send_message(said("ask"))
        events = []
        async with aclosing(stream):
            async for event in stream:
                events.append(MessageToDict(event))
                if "INPUT_REQUIRED" in json.dumps(events[-1]):
                    answered = await self.send("Ada", task_in(events))
        return {"asked": events, "answered": answered}

    async def canceled(self):
        """Cancel a task that runs."""
        gate = self.directory / "never"
        events = await self.stream(f"hold {gate}", until="begun")
        task = await self.plain.cancel_task(CancelTaskRequest(id=task_in(events)))
        return {"cancel": MessageToDict(task)}

    async def left(self):
        """Leave a stream, come back to it, and see the end."""
        gate = self.directory / "again"
        events = await self.stream(f"hold {gate}", until="begun")
        again = self.streaming.subscribe(SubscribeToTaskRequest(id=task_in(events)))
        first = MessageToDict(await anext(again))
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
            if seen["status"]["state"] not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):
                return seen
            await asyncio.sleep(0.01)

    async def refused(self):
        """Do what must be refused."""
        context = str(uuid4())
        ended = (await self.send("count 1", context=context))["task"]["id"]
        client = self.streaming
        tries = {
            "get": client.get_task(GetTaskRequest(id="nowhere")),
            "cancel": client.cancel_task(CancelTaskRequest(id=ended)),
            "subscribe": self.collect(client.subscribe(SubscribeToTaskRequest(id=ended))),
            "send": self.send("more", ended),
            "context": self.send("more", ended, "of-somebody-else"),
            "push": client.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(task_id=ended, id="p")
            ),
        }
        errors = {}
        for name, tried in tries.items():
            try:
                await tried
            except A2AError as error:
                errors[name] = type(error).__name__
        listed = await client.list_tasks(ListTasksRequest(context_id=context, page_size=1))
        return {"errors": errors, "listed": [task.id == ended for task in listed.tasks]}


async def every(url, directory):
    """Run all scenarios side by side and print what came of them."""
    plain = await ClientFactory(ClientConfig(streaming=False)).create_from_url(url)
    streaming = await ClientFactory(ClientConfig()).create_from_url(url)
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
    await plain.close()
    card = MessageToDict(await streaming.get_extended_agent_card(GetExtendedAgentCardRequest()))
    await streaming.close()
    print(json.dumps({"card": card} | {name: value for part in parts for name, value in part.items()}))


async def watch(url, task):
    """Print the events of a task as they come."""
    client = await ClientFactory(ClientConfig()).create_from_url(url)
    async for event in client.subscribe(SubscribeToTaskRequest(id=task)):
        print(json.dumps(MessageToDict(event)), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run({"all": every, "watch": watch}[sys.argv[1]](*sys.argv[2:]))
