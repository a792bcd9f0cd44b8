#!/bin/sh
# The message comes on stdin and ends there. What is printed is the reply, and streams as it is printed.
# Exit status 0 completes the task; any other one fails it with the end of what went to stderr.
IFS= read -r name || [ -n "$name" ] || { echo "say who is to be greeted" >&2; exit 1; }

echo "Hello, $name."
sleep 0.3
echo "This is task $SIDECAR_TASK_ID of $SIDECAR_CAPSULE."
