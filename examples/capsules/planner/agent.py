#!/usr/bin/env python3
"""Makes a plan of a list of things to do: an agent that speaks JSON, one object a line, with nothing but Python.

Input comes on stdin, the task's message first; what it has to say goes to stdout. Anything else that is printed there
counts as text, and stderr is for people who look for what went wrong.
"""

import json
import sys
import time


def say(kind: str, **members: object) -> None:
    """Say one thing of the task."""
    sys.stdout.write(json.dumps({"type": kind, **members}) + "\n")
    sys.stdout.flush()


def hear() -> str:
    """Wait for the next message and return its text."""
    line = sys.stdin.readline()
    if not line:
        sys.exit("no more input")
    return str(json.loads(line)["text"])


def things_in(text: str) -> list[str]:
    """Return the things of a list that is written with commas or as lines."""
    return [thing.strip() for thing in text.replace("\n", ",").split(",") if thing.strip()]


def main() -> None:
    """Do one task."""
    things = things_in(hear())
    if not things:
        say("failed", message="there is nothing to plan: send a list, such as `water, earth, seeds`")
        return

    say("thinking", text=f"That is a list of {len(things)}. Which comes first is not mine to say.")
    say("tool", name="count", content=str(len(things)))
    say("input-required", prompt=f"What should come first: {', '.join(things)}?")
    first = hear().strip()
    if first in things:
        things.remove(first)
        things.insert(0, first)

    say("turn")
    for number, thing in enumerate(things, 1):
        say("text", text=f"{number}. {thing}\n")
        time.sleep(0.1)
    plan = "".join(f"- [ ] {thing}\n" for thing in things)
    say("artifact", name="plan.md", parts=[{"text": plan, "mediaType": "text/markdown"}], last=True)
    say("completed")


if __name__ == "__main__":
    main()
