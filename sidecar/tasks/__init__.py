"""Tasks: the state machine, the log, the engine that binds them, and the fan-out to streams."""
