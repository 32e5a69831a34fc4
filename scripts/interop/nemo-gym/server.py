"""Runs one of NeMo Gym's own servers, or its head: server.py <name in the configuration>|head.

The configuration is in NEMO_GYM_CONFIG_DICT, where NeMo Gym's own starter puts it. What it does beside this is left out: a virtual
environment for each server, and Ray, which none of these servers asks anything.
"""

import os
import runpy
import sys
import threading

from nemo_gym import PARENT_DIR, server_utils
from nemo_gym.global_config import get_global_config_dict

server_utils.initialize_ray = lambda: None

name = sys.argv[1]
if name == "head":
    server_utils.HeadServer.run_webserver()
    threading.Event().wait()
else:
    os.environ["NEMO_GYM_CONFIG_PATH"] = name
    kind = next(iter(get_global_config_dict()[name]))
    implementation = next(iter(get_global_config_dict()[name][kind]))
    # NeMo Gym's starter works in the server's folder, and some servers import what is beside them.
    sys.path.insert(0, os.path.join(PARENT_DIR, kind, implementation))
    runpy.run_module(f"{kind}.{implementation}.app", run_name="__main__")
