"""Collects rollouts with NeMo Gym's own collector: collect.py <head's host:port> <agent> <input> <output> <at once> <true|false>.

Prints one line of JSON: how many results came back, how many had the reward 1, which failed, and what the collection cost this
process. The last word says whether it asks for the metrics of all results. Its retries of failed requests are left as they are.
"""

import asyncio
import contextlib
import json
import os
import resource
import sys
import time

head, agent, rows, output, at_once, aggregates = sys.argv[1:]
host, port = head.split(":")
sys.argv = sys.argv[:1]  # NeMo Gym reads the command line by itself.

from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict  # noqa: E402
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

get_global_config_dict(
    GlobalConfigDictParserConfig(
        initial_global_config_dict=DictConfig({"head_server": {"host": host, "port": int(port)}}),
        skip_load_from_cli=True,
        skip_load_from_dotenv=True,
    )
)
config = RolloutCollectionConfig(
    agent_name=agent,
    input_jsonl_fpath=rows,
    output_jsonl_fpath=output,
    num_samples_in_parallel=int(at_once),
    disable_aggregation=aggregates != "true",
)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


before, started = cpu_seconds(), time.perf_counter()
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    results = asyncio.run(RolloutCollectionHelper().run_from_config(config))
figures = {
    "results": len(results),
    "rewarded": sum(result.get("reward") == 1 for result in results),
    "failed": sum("_ng_failure_class" in result for result in results),
    "cpuMs": 1000 * (cpu_seconds() - before),
    "wallMs": 1000 * (time.perf_counter() - started),
}
print(json.dumps(figures))
