#!/bin/sh
# -N prints each frame when it comes; -sS keeps the progress meter out where the output is piped.
set -eu
curl -sSN --fail-with-body "${ANOMAN_BASE_URL:-http://127.0.0.1:8080}/v1/chat/completions" \
  -H "Authorization: Bearer ${ANOMAN_API_KEY:-anm-sk-demo}" \
  -H "Content-Type: application/json" \
  -d '{
    "model": "demo-story",
    "messages": [{"role": "user", "content": "Tell me a short story"}],
    "stream": true
  }'
