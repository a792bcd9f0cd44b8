"""From the capsules that are wanted to the sockets that are open."""
