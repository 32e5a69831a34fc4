"""
Runs the tests: python3 -X dev -W error tests/run.py [test_rows ...]

As `python3 -m unittest`, and something more: what is never awaited, closed or retrieved is a failure, too. Python only prints
it. Without names, all tests run; those of `test_serve` and `test_gateway` start the servers of the repository around them.
"""

from __future__ import annotations

import gc
import logging
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).parent
left_behind: list[str] = []


class Left(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        left_behind.append(record.getMessage())


class Lines(unittest.TextTestResult):
    def startTest(self, test: unittest.TestCase) -> None:
        left_behind.clear()
        unittest.TestResult.startTest(self, test)

    def stopTest(self, test: unittest.TestCase) -> None:
        gc.collect()
        if left_behind:
            message = "\n".join(["this was left behind:", *left_behind])
            self.failures.append((test, message))
        has_failed = any(test is each for each, _ in [*self.failures, *self.errors])
        print(f"  {'FAILED ' if has_failed else 'ok     '} {name_of(test)}", flush=True)
        super().stopTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:
        pass

    addError = unittest.TestResult.addError
    addFailure = unittest.TestResult.addFailure


class Runner(unittest.TextTestRunner):
    def _makeResult(self) -> unittest.TextTestResult:
        return Lines(self.stream, self.descriptions, self.verbosity)


def name_of(test: unittest.TestCase) -> str:
    module, _, rest = test.id().partition(".")
    return f"{module.removeprefix('test_')}: {rest.rpartition('.')[2].removeprefix('test_').replace('_', ' ')}"


def main(names: list[str]) -> int:
    sys.path[:0] = [str(HERE)]
    sys.unraisablehook = lambda failure: left_behind.append(f"{failure.err_msg}: {failure.exc_value!r}")
    logging.getLogger("asyncio").addHandler(Left(logging.ERROR))
    # Its warnings belong to tests with faults. Without a handler, Python prints them.
    logging.getLogger("millrace").addHandler(logging.NullHandler())
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names) if names else loader.discover(str(HERE))
    result = Runner(stream=sys.stdout, verbosity=0).run(suite)
    failed = len({id(test) for test, _ in [*result.failures, *result.errors]})
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 1 if failed or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
