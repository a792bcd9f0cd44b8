"""The diagram: the stages, the tasks between them, signals, ready, reload and drain."""
