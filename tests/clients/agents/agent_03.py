"""An A2A 0.3 agent made with the official SDK, which does what a message says. Prints its port; an argument sets it.

Runs in an environment of its own (tests/support/agents.py makes it).
"""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, DataPart, Part, TextPart
from a2a.utils import new_agent_text_message, new_task


def text(words: str) -> list[Part]:
    """Return one part of text."""
    return [Part(root=TextPart(text=words))]


class Obedient(AgentExecutor):
    """Does what the message says."""

    async def execute(self, context, event_queue) -> None:
        """Chunks, questions, messages, artifacts, failures, and waiting for ever."""
        words = context.get_user_input().split()
        if words[0] == "message":
            await event_queue.enqueue_event(new_agent_text_message("just so", context.context_id))
            return
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
            answered = False
        else:
            answered = True
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if answered:
            await updater.add_artifact(text(f"you said {' '.join(words)}"), name="response")
            await updater.complete()
            return
        await updater.start_work(updater.new_agent_message(text("at it")))
        if words[0] == "chunks":
            for number in range(int(words[1])):
                await updater.add_artifact(
                    text(f"{number} "), artifact_id="r", name="response", append=number > 0, last_chunk=False
                )
                if "slowly" in words:
                    await asyncio.sleep(0.001)
            await updater.complete()
        elif words[0] == "ask":
            await updater.requires_input(updater.new_agent_message(text("who?")), final=True)
        elif words[0] == "make":
            await updater.add_artifact([Part(root=DataPart(data={"a": 1}))], name="report")
            await updater.complete(updater.new_agent_message(text("made it")))
        elif words[0] == "fail":
            await updater.failed(updater.new_agent_message(text("no luck")))
        else:
            await asyncio.sleep(3600)

    async def cancel(self, context, event_queue) -> None:
        """Cancel."""
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main() -> None:
    """Serve on a port of loopback until killed."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[1])))
    listener.listen(128)
    port = listener.getsockname()[1]
    card = AgentCard(
        name="obedient",
        version="1.0.0",
        description="Does what it is told",
        url=f"http://127.0.0.1:{port}/rpc",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming="plain" not in sys.argv),
        skills=[AgentSkill(id="task", name="task", description="Takes a task", tags=["task"])],
    )
    handler = DefaultRequestHandler(agent_executor=Obedient(), task_store=InMemoryTaskStore())
    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build(rpc_url="/rpc")
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
