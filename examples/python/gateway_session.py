import asyncio, os
import millrace
from openai import AsyncOpenAI

GATEWAY = os.environ.get("GATEWAY_URL", "http://localhost:8787")
ADMIN_KEY = os.environ.get("GATEWAY_ADMIN_KEY") or open("runs/gateway/admin.key").read().strip()
MODEL = os.environ.get("MODEL", "sim")

async def attempt(session):
    async with session, AsyncOpenAI(base_url=session.base_url, api_key=session.key) as client:
        reply = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "What is 6 * 7?"}])
        answer = reply.choices[0].message.content
        await session.reward(1 if "42" in answer else 0)
        print(session.id, answer)

async def main():
    async with millrace.Gateway(GATEWAY, key=ADMIN_KEY) as gateway:
        sessions = await gateway.start_group(4, task="first")
        await asyncio.gather(*map(attempt, sessions))

asyncio.run(main())
