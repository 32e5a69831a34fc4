#!/usr/bin/env bash
# An agent in a few lines of bash: it asks the model once, and prints what it says. It needs curl, and python3 for JSON.
set -euo pipefail
prompt=$(cat)
body=$(python3 -c 'import json, sys; print(json.dumps({
  "model": sys.argv[1], "max_tokens": 1000, "messages": [{"role": "user", "content": sys.argv[2]}]}))' \
  "$MILLRACE_MODEL" "$prompt")
reply=$(curl --silent --show-error --fail-with-body "$ANTHROPIC_BASE_URL/v1/messages" \
  -H "x-api-key: $MILLRACE_KEY" -H 'content-type: application/json' -d "$body")
# A model that reasons sends its thoughts first.
python3 -c 'import json, sys; print(*(part["text"] for part in json.loads(sys.argv[1])["content"] if "text" in part))' "$reply"
