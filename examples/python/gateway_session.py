import json, os, urllib.request
from openai import OpenAI

GATEWAY = os.environ.get("GATEWAY_URL", "http://localhost:8787")
ADMIN_KEY = os.environ.get("GATEWAY_ADMIN_KEY") or open("runs/gateway/admin.key").read().strip()
MODEL = os.environ.get("MODEL", "sim")

def call(path, body):
    request = urllib.request.Request(GATEWAY + path, json.dumps(body).encode(), {"x-api-key": ADMIN_KEY})
    return json.load(urllib.request.urlopen(request))

for session in call("/v1/sessions", {"taskId": "first", "groupSize": 4})["sessions"]:
    client = OpenAI(base_url=f"{GATEWAY}/v1", api_key=session["key"])
    reply = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "What is 6 * 7?"}])
    answer = reply.choices[0].message.content
    call(f"/v1/sessions/{session['id']}/rewards", {"reward": 1 if "42" in answer else 0})
    call(f"/v1/sessions/{session['id']}/end", {})
    print(session["id"], answer)
