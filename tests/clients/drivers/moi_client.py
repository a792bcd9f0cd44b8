"""The published MOI client, unmodified: gets a card, and prints what it saw."""

from __future__ import annotations

import json
import sys

from moi import RawClient
from moi.errors import HTTPError
from moi.options import with_query_param, with_request_id


def refused(client: RawClient, agent: str) -> list[object]:
    """Return what a call that must fail raises."""
    try:
        client.get_raw("/newmoi/agents/card", with_query_param("agent_id", agent))
    except HTTPError as error:
        return [error.status_code, json.loads(error.body)]
    return []


def main(url: str, key: str) -> None:
    """Ask for the card of `obedient` in every way that the client has."""
    client = RawClient(url, key)
    agent = with_query_param("agent_id", "obedient")
    answer = client.get_raw("/newmoi/agents/card", agent, with_request_id("mine-1"))
    seen = {
        "card": answer.json(),
        "type": answer.headers["content-type"],
        "request_id": answer.headers["x-request-id"],
        "unwrapped": client.get_json("/newmoi/agents/card", None, agent),
        "missing": refused(client, "nobody"),
        "wrong_key": refused(client.with_special_user("wrong"), "obedient"),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:3])
