"""Drives a capsule with the official A2A client for Python, 0.3.x: what comes of it goes to stdout as one JSON object.

    python_03.py all URL DIRECTORY     every scenario, side by side; gates of tasks are files in the directory
    python_03.py watch URL TASK        a line of JSON for each event of a task, until its stream ends

Runs in an environment of its own (tests/support/agents.py makes it), against the capsule `obedient`.
"""

from __future__ import annotations

import asyncio
import json
import sys
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
from scenarios import Scenarios


def plainly(model):
    """Return what a model holds as it was sent."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Scenarios03(Scenarios):
    """In the words of 0.3."""

    ERROR = A2AClientJSONRPCError
    UNDER_WAY = ("submitted", "working")

    @staticmethod
    def said(text, task=None, context=None):
        """Return a message, to a task where one is named."""
        return Message(
            message_id=str(uuid4()),
            role=Role.user,
            parts=[Part(root=TextPart(text=text))],
            task_id=task,
            context_id=context,
        )

    @staticmethod
    def event_of(seen):
        """Return the event of what the client makes of it: a message, a task, or a task with an update."""
        if isinstance(seen, Message):
            return plainly(seen)
        task, update = seen
        return plainly(task if update is None else update)

    @staticmethod
    def task_in(event):
        """Return the id of a task."""
        return event["id"]

    @staticmethod
    def code_of(error):
        """Return what tells an error from others."""
        return error.error.code

    async def get(self, task, length=None):
        """Return a task as it is."""
        return plainly(await self.plain.get_task(TaskQueryParams(id=task, history_length=length)))

    async def cancel(self, task):
        """Cancel a task and return it."""
        return plainly(await self.plain.cancel_task(TaskIdParams(id=task)))

    def followed(self, task):
        """Return a stream of a task that there is already."""
        return self.streaming.resubscribe(TaskIdParams(id=task))

    async def push(self, task):
        """Ask for what there is none of."""
        return await self.streaming.get_task_callback(GetTaskPushNotificationConfigParams(id=task))

    async def at_once(self):
        """Send without waiting, and look until it is over."""
        configuration = MessageSendConfiguration(blocking=False)
        answers = self.plain.send_message(self.said("count 3"), configuration=configuration)
        events = [self.event_of(each) async for each in answers]
        return {"at once": await self.over(self.task_in(events[0]))}

    async def asked(self):
        """Be asked, which ends the stream, and answer."""
        events = await self.stream("ask")
        return {"asked": events, "answered": await self.send("Ada", self.task_in(events[0]))}


async def every(url, directory):
    """Run all scenarios side by side and print what came of them."""
    plain = await ClientFactory.connect(url, ClientConfig(streaming=False))
    streaming = await ClientFactory.connect(url)
    seen = await Scenarios03(plain, streaming, directory).every()
    card = plainly(await streaming.get_card())
    await plain.close()
    await streaming.close()
    print(json.dumps({"card": card} | seen))


async def watch(url, task):
    """Print the events of a task as they come."""
    client = await ClientFactory.connect(url)
    async for seen in client.resubscribe(TaskIdParams(id=task)):
        print(json.dumps(Scenarios03.event_of(seen)), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run({"all": every, "watch": watch}[sys.argv[1]](*sys.argv[2:]))
