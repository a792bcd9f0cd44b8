#!/usr/bin/env bash
# A worker with nothing but curl, and python3 to read JSON: does one task of a capsule, and ends.
# usage: curl.sh CAPSULE
set -euo pipefail
state=${SIDECAR_STATE:-$HOME/.local/state/sidecar}
member() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }
desk=$(member '["desk"]["url"]' <"$state/run.json")
post() { curl -sS --fail-with-body -X POST -H "authorization: Bearer $(cat "$state/admin.token")" "$@"; }

task=$(post "$desk/workers/$1/next?wait=30")
[ -n "$task" ] || { echo "no task came" >&2; exit 1; }
lease=$(member '["lease"]' <<<"$task")
text=$(member '["message"]["text"]' <<<"$task")

python3 -c '
import json, sys
print(json.dumps({"seq": 1, "type": "text", "text": "You said: "}))
print(json.dumps({"seq": 2, "type": "text", "text": sys.argv[1]}))
print(json.dumps({"seq": 3, "type": "completed"}))' "$text" |
    post "$desk/workers/$1/tasks/$(member '["task"]["id"]' <<<"$task")/events" \
        -H "x-sidecar-lease: $lease" -H 'content-type: application/jsonl' --data-binary @-
echo
