#!/usr/bin/env python3
"""schema.py TARND OPENAPI: schemathesis against the OpenAPI file, over TCP with a key.

No 5xx, no answer that the file does not have, no malformed request that is taken. Package
schemathesis (PyPI). Part of the full run. TARN_SCHEMA_EXAMPLES: requests for each operation and way
of drawing them (default 1300, more than 20,000 in all); TARN_TEST_SEED: the seed.
"""
import os
import shutil
import subprocess
import sys

from daemon import Daemon, program_and_arguments, skip

COMMAND = os.path.join(os.path.dirname(sys.executable), "schemathesis")
if not os.path.exists(COMMAND) and shutil.which("schemathesis") is None:
    skip("no package schemathesis: pip install schemathesis")
COMMAND = COMMAND if os.path.exists(COMMAND) else "schemathesis"

PROGRAM, (OPENAPI, *ARGUMENTS) = program_and_arguments()
OPENAPI = os.path.abspath(OPENAPI)  # schemathesis runs in the daemon's folder
EXAMPLES = os.environ.get("TARN_SCHEMA_EXAMPLES", "1300")
SEED = os.environ.get("TARN_TEST_SEED", "1")
# What a schema cannot say may refuse a request that it allows: a prompt that is too long, an id
# that the vocabulary does not have, a template's own conditions.
LEFT_OUT = "positive_data_acceptance"
CONTEXT = "256"  # most requests that are drawn name no max_tokens

with Daemon(PROGRAM, [*ARGUMENTS, "-c", CONTEXT], listen_tcp=True, store=True) as daemon:
    done = subprocess.run(
        [COMMAND, "run", OPENAPI, "--url", f"http://127.0.0.1:{daemon.port}",
         "--header", f"Authorization: Bearer {daemon.key}", "--checks", "all",
         "--exclude-checks", LEFT_OUT, "--max-examples", EXAMPLES, "--seed", SEED,
         "--request-timeout", "60", "--max-response-time", "60", "--continue-on-failure",
         "--suppress-health-check", "too_slow"],  # that is this machine, not tarnd
        cwd=daemon.folder, check=False)
    metrics = daemon.get("/metrics").body.decode()
    replies = sum(float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines()
                  if line.startswith("tarn_replies_total{"))
    print(f"requests: {replies:.0f}")
    code = daemon.stop()
    if done.returncode != 0 or code != 0:
        print(daemon.log()[-2000:])
        sys.exit(f"schemathesis ended with {done.returncode}, tarnd with {code}")
