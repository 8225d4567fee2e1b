#!/usr/bin/env python3
"""litellm_client.py TARND: litellm, unmodified, against tarnd over TCP with a key.

Package litellm (PyPI). Part of the full run.
"""
import os
import sys

from daemon import Daemon, program_and_arguments, require, run_checks, skip

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would load its prices from the network
try:
    import litellm
except ImportError:
    skip("no package litellm: pip install litellm")

PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, ARGUMENTS, listen_tcp=True)
MESSAGES = [{"role": "user", "content": "Where does Rosa work?"}]


def complete(**more):
    return litellm.completion(**{"model": "openai/any", "messages": MESSAGES, "temperature": 0,
                                 "max_tokens": 16, "num_retries": 0, "api_key": daemon.key,
                                 "api_base": f"http://127.0.0.1:{daemon.port}/v1", **more})


def check_completion():
    """completion: a text and usage"""
    answer = complete()
    require(answer.choices[0].message.content and answer.usage.completion_tokens > 0)


def check_stream():
    """stream: the same text"""
    pieces = [chunk.choices[0].delta.content or "" for chunk in complete(stream=True)]
    require("".join(pieces) == complete().choices[0].message.content)


def check_errors():
    """a wrong key and a wrong field raise litellm's exceptions"""
    for more, kind in [({"api_key": "wrong"}, litellm.AuthenticationError),
                       ({"temperature": -1}, litellm.BadRequestError)]:
        try:
            complete(**more)
        except kind:
            continue
        raise AssertionError(f"{more} was not refused")


if __name__ == "__main__":
    with daemon:
        code = run_checks([check_completion, check_stream, check_errors])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
