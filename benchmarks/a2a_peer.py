"""An A2A server made with the official SDK, in memory, with a trivial executor: what we compare with.

Runs in the environment that `make bench` makes for it: `python benchmarks/a2a_peer.py`; prints its port.
"""

from __future__ import annotations

import socket

import uvicorn
from a2a.helpers.proto_helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Task, TaskState, TaskStatus
from starlette.applications import Starlette


class Trivial(AgentExecutor):
    """Completes every task at once."""

    async def execute(self, context, event_queue) -> None:  # noqa: ANN001 - the SDK's own signature
        """Submit, then complete."""
        task = Task(
            id=context.task_id,
            context_id=context.context_id,
            status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
        )
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.complete(new_text_message("done"))

    async def cancel(self, context, event_queue) -> None:  # noqa: ANN001 - the SDK's own signature
        """Nothing runs long enough to be cancelled."""


def main() -> None:
    """Serve on a free port of loopback until killed."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    card = AgentCard(
        name="peer",
        version="1.0.0",
        description="A trivial agent",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=True),
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        skills=[AgentSkill(id="task", name="task", description="Takes a task", tags=["task"])],
    )
    handler = DefaultRequestHandler(agent_executor=Trivial(), task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, rpc_url="/")])
    print(port, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
