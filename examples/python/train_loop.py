import asyncio, random, sys
import millrace

def step(batch):
    """Your trainer's. This one only says what it would learn from."""
    return f"{len(batch['ids'])} rows, {batch['mask'].sum():.0f} trained tokens"

async def train(url="http://127.0.0.1:8080", steps=3):
    async with millrace.Client(url) as client:
        for number in range(steps):
            factors = random.sample(range(2, 100), 8)
            tasks = [{"expression": f"{n} * 7", "answer": 7 * n} for n in factors]
            rows, lost = [], 0
            async for group in client.groups(tasks, attempts=8, advantage="grpo"):
                rows += group.trainable
                lost += group.rollouts - group.scored
            # On a thread, so that the client can go on reading.
            said = await asyncio.to_thread(step, millrace.batch(rows, multiple_of=64))
            print(f"step {number}: {said}, {lost} rollouts lost", flush=True)

asyncio.run(train(*sys.argv[1:]))
