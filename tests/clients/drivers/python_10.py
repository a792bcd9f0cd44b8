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
from scenarios import Scenarios


class Scenarios10(Scenarios):
    """In the words of 1.0."""

    ERROR = A2AError
    UNDER_WAY = ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    event_of = staticmethod(MessageToDict)

    @staticmethod
    def said(text, task=None, context=None):
        """Return a request that sends a text, to a task where one is named."""
        message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
        if task:
            message.task_id = task
        if context:
            message.context_id = context
        return SendMessageRequest(message=message)

    @staticmethod
    def task_in(event):
        """Return the id of the task in a result."""
        return event["task"]["id"]

    @staticmethod
    def code_of(error):
        """Return what tells an error from others."""
        return type(error).__name__

    async def get(self, task, length=None):
        """Return a task as it is."""
        return MessageToDict(await self.plain.get_task(GetTaskRequest(id=task, history_length=length)))

    async def cancel(self, task):
        """Cancel a task and return it."""
        return MessageToDict(await self.plain.cancel_task(CancelTaskRequest(id=task)))

    def followed(self, task):
        """Return a stream of a task that there is already."""
        return self.streaming.subscribe(SubscribeToTaskRequest(id=task))

    async def push(self, task):
        """Ask for what there is none of."""
        request = GetTaskPushNotificationConfigRequest(task_id=task, id="p")
        return await self.streaming.get_task_push_notification_config(request)

    async def at_once(self):
        """Send without waiting, and look until it is over."""
        request = self.said("count 3")
        request.configuration.CopyFrom(SendMessageConfiguration(return_immediately=True))
        answers = [MessageToDict(each) async for each in self.plain.send_message(request)]
        return {"at once": await self.over(self.task_in(answers[0]))}

    async def asked(self):
        """Be asked, and answer; the stream stays open meanwhile."""
        stream = self.streaming.send_message(self.said("ask"))
        events = []
        async with aclosing(stream):
            async for event in stream:
                events.append(MessageToDict(event))
                if "INPUT_REQUIRED" in json.dumps(events[-1]):
                    answered = await self.send("Ada", self.task_in(events[0]))
        return {"asked": events, "answered": answered}

    async def listed(self, context, task):
        """Look for a task in the list of its context."""
        listed = await self.streaming.list_tasks(ListTasksRequest(context_id=context, page_size=1))
        return {"listed": [each.id == task for each in listed.tasks]}


async def every(url, directory):
    """Run all scenarios side by side and print what came of them."""
    plain = await ClientFactory(ClientConfig(streaming=False)).create_from_url(url)
    streaming = await ClientFactory(ClientConfig()).create_from_url(url)
    seen = await Scenarios10(plain, streaming, directory).every()
    await plain.close()
    card = MessageToDict(await streaming.get_extended_agent_card(GetExtendedAgentCardRequest()))
    await streaming.close()
    print(json.dumps({"card": card} | seen))


async def watch(url, task):
    """Print the events of a task as they come."""
    client = await ClientFactory(ClientConfig()).create_from_url(url)
    async for event in client.subscribe(SubscribeToTaskRequest(id=task)):
        print(json.dumps(MessageToDict(event)), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run({"all": every, "watch": watch}[sys.argv[1]](*sys.argv[2:]))
