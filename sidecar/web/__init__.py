"""The HTTP machinery that the capsule ports and the desk share: refusals, deadlines, guards, bodies, answers."""
