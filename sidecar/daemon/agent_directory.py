"""Where the selectors of the MOI view lead, and which capsules the catalogs name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.desk.moi_callers import Agent
from sidecar.model import CapsuleState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sidecar.config import Config
    from sidecar.daemon.fronts import Fronts
    from sidecar.model import AuthSettings, Capsule, RegistryView


class AgentDirectory:
    """Finds capsules by id, or by the code that the configuration gives them. One event loop."""

    def __init__(self, fronts: Fronts, view: RegistryView, config: Config) -> None:
        self._fronts = fronts
        self._view = view
        self._config = config

    def reconfigure(self, config: Config) -> None:
        """Take over another configuration."""
        self._config = config

    @property
    def auth(self) -> AuthSettings:
        """The providers of all capsules, and the tokens of members that some of them take."""
        return self._config.all_auth

    @property
    def workspaces(self) -> Collection[str]:
        """Every workspace that an agent is in."""
        return self._config.moi_workspaces

    def agent(self, agent_id: str) -> Agent | None:
        """Return the agent with this id."""
        front = self._fronts.of(agent_id)
        if front is not None:
            return Agent(agent_id, front.capsule.settings.moi_workspace, front)
        row = self._view.capsule(agent_id)
        if row is None or row.state is CapsuleState.ARTIFACT:
            return None
        settings = self._config.settings_for(agent_id, row.path)
        return Agent(agent_id, settings.moi_workspace, None)

    def now(self, agent_id: str) -> Capsule | None:
        """Return the capsule that is served under an id."""
        front = self._fronts.of(agent_id)
        return None if front is None else front.capsule

    def coded(self, code: str, workspace: str) -> Agent | None:
        """Return the agent of a workspace that has this code."""
        agent_id = self._config.agent_codes.get((workspace, code))
        agent = None if agent_id is None else self.agent(agent_id)
        if agent is None or agent.workspace != workspace:  # another directory than the settings are for
            return None
        served = agent.served
        return agent if served is None or served.capsule.settings.agent_code == code else None

    def served(self) -> Sequence[Capsule]:
        """Return the capsules that are served now, sorted by id."""
        return self._fronts.capsules()
