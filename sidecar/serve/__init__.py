"""A request on a capsule's own port: card, door or plane."""
