"""Runs the cases of the named modules. Started by run.ts, which says where the gateway is."""

import importlib
import sys

from harness import run_cases

for module in sys.argv[1:]:
    importlib.import_module(module)
sys.exit(1 if run_cases() else 0)
