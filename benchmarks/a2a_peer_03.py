"""The same as `a2a_peer`, made with the official SDK for A2A 0.3: `python benchmarks/a2a_peer_03.py`; prints its port."""

from __future__ import annotations

import socket

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill
from a2a.utils import new_agent_text_message, new_task


class Trivial(AgentExecutor):
    """Completes every task at once."""

    async def execute(self, context, event_queue) -> None:  # noqa: ANN001 - the SDK's own signature
        """Submit, then complete."""
        task = new_task(context.message)
        await event_queue.enqueue_event(task)
        await TaskUpdater(event_queue, task.id, task.context_id).complete(new_agent_text_message("done"))

    async def cancel(self, context, event_queue) -> None:  # noqa: ANN001 - the SDK's own signature
        """Nothing runs long enough to be cancelled."""


def main() -> None:
    """Serve on a free port of loopback until killed."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    port = listener.getsockname()[1]
    card = AgentCard(
        name="peer",
        version="1.0.0",
        description="A trivial agent",
        url=f"http://127.0.0.1:{port}/",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True),
        skills=[AgentSkill(id="task", name="task", description="Takes a task", tags=["task"])],
    )
    handler = DefaultRequestHandler(agent_executor=Trivial(), task_store=InMemoryTaskStore())
    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
    print(port, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
