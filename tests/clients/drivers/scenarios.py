"""What is tried with the official A2A clients for Python, whichever their version.

A driver makes a class of `Scenarios` that knows how its client says each of these things.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4


async def present(file):
    """Wait until a file is there."""
    while not file.exists():
        await asyncio.sleep(0.01)


class Scenarios:
    """What is tried with one capsule, each on tasks of its own; of two clients only the second one streams.

    A version says how a message is written (`said`), what an event is as it was sent (`event_of`), where the task is
    in the result of a send (`task_in`), and how a task is asked for, cancelled and followed again. `ERROR` is what the
    client raises, `UNDER_WAY` are the states of a task that is not over.
    """

    ERROR = Exception
    UNDER_WAY = ()

    def __init__(self, plain, streaming, directory):
        self.plain, self.streaming, self.directory = plain, streaming, Path(directory)

    async def send(self, text, task=None, context=None):
        """Send and wait; return the task or the message."""
        answers = [each async for each in self.plain.send_message(self.said(text, task, context))]
        return self.event_of(answers[-1])

    async def stream(self, text, until=None):
        """Send and return the events, until one of them holds a text."""
        return await self.collect(self.streaming.send_message(self.said(text)), until)

    async def collect(self, stream, until=None):
        """Return the events of a stream, until one of them holds a text."""
        events = []
        async with aclosing(stream):
            async for seen in stream:
                events.append(self.event_of(seen))
                if until and until in json.dumps(events[-1]):
                    break
        return events

    async def sent(self):
        """Send, and look at the task."""
        whole = await self.send("count 3")
        task = self.task_in(whole)
        return {
            "send": whole,
            "get": await self.get(task),
            "get without history": await self.get(task, 0),
            "reply": await self.send("message"),
            "failed": await self.send("whatever"),
        }

    async def streamed(self):
        """Send and follow."""
        return {"stream": await self.stream("count 3"), "artifacts": await self.stream("make")}

    async def canceled(self):
        """Cancel a task that runs."""
        events = await self.stream(f"hold {self.directory / 'never'}", until="begun")
        return {"cancel": await self.cancel(self.task_in(events[0]))}

    async def left(self):
        """Leave a stream, come back to it, and see the end."""
        gate = self.directory / "again"
        events = await self.stream(f"hold {gate}", until="begun")
        task = self.task_in(events[0])
        again = self.followed(task)
        first = self.event_of(await anext(again))
        gate.touch()
        rest = await self.collect(again)
        return {"left": events, "again": [first, *rest], "got": await self.get(task)}

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
            if seen["status"]["state"] not in self.UNDER_WAY:
                return seen
            await asyncio.sleep(0.01)

    async def refused(self):
        """Do what must be refused."""
        context = str(uuid4())
        ended = self.task_in(await self.send("count 1", context=context))
        tries = {
            "get": self.get("nowhere"),
            "cancel": self.cancel(ended),
            "subscribe": self.collect(self.followed(ended)),
            "send": self.send("more", ended),
            "context": self.send("more", ended, "of-somebody-else"),
            "push": self.push(ended),
        }
        errors = {}
        for name, tried in tries.items():
            try:
                await tried
            except self.ERROR as error:
                errors[name] = self.code_of(error)
        return {"errors": errors} | await self.listed(context, ended)

    async def listed(self, context, task):
        """Look for a task in the list of its context, where the version has lists."""
        del context, task
        return {}

    async def every(self):
        """Do all of it side by side, and return what came of it."""
        tried = (
            self.sent,
            self.at_once,
            self.streamed,
            self.asked,
            self.canceled,
            self.left,
            self.gave_up,
            self.silent,
            self.refused,
        )
        parts = await asyncio.gather(*(each() for each in tried))
        return {name: value for part in parts for name, value in part.items()}
