"""What NeMo Gym itself answers to POST /aggregate_metrics: a body on each line of the input, the reply on each of the output.

Each body goes through FastAPI and NeMo Gym's own request and response models, so the types of numbers are those on its wire.
The server's own metrics are put together as its code_gen server does it, with the reward as the only score.
"""

import json
import sys
import warnings

from fastapi import FastAPI
from fastapi.testclient import TestClient
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.reward_profile import (
    add_avg_sample_std_dev,
    compute_aggregate_metrics,
    compute_pass_majority_metrics,
    compute_subset_metrics,
)

warnings.simplefilter("ignore")

app = FastAPI()


def scores(response):
    reward = response.get("reward")
    return {"accuracy": reward} if isinstance(reward, (bool, int, float)) else {}


def metrics_of(tasks):
    has_answers = any("extracted_answer" in response for task in tasks for response in task)
    answer = "extracted_answer" if has_answers else None
    metrics, all_scores, names, max_k = compute_pass_majority_metrics(tasks, scores, answer)
    add_avg_sample_std_dev(metrics, all_scores, names, max_k)
    metrics.update(compute_subset_metrics(tasks, "difficulty", scores, answer))
    return metrics


@app.post("/aggregate_metrics")
async def aggregate_metrics(body: AggregateMetricsRequest) -> AggregateMetrics:
    return compute_aggregate_metrics(body.verify_responses, compute_metrics_fn=metrics_of)


client = TestClient(app, raise_server_exceptions=False)
for line in sys.stdin:
    reply = client.post("/aggregate_metrics", content=line.encode(), headers={"content-type": "application/json"})
    print(json.dumps({"status": reply.status_code, "text": reply.text}), flush=True)
