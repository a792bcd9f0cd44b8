#!/usr/bin/env python3
"""Gets an agent's card with moi-python-sdk: `moi_card.py DESK_URL KEY AGENT_ID`."""

import sys

from moi import RawClient
from moi.options import with_query_param


def main(url: str, key: str, agent_id: str) -> None:
    """Print what the card says of the agent."""
    client = RawClient(url, key)
    card = client.get_raw("/newmoi/agents/card", with_query_param("agent_id", agent_id)).json()
    how = "streams" if card["capabilities"]["streaming"] else "does not stream"
    sys.stdout.write(f"{card['name']} {card['version']} {how}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
