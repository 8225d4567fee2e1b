#!/usr/bin/env python3
"""langchain.py TARND: LangChain's ChatOpenAI and OpenAI, unmodified, against tarnd.

Package langchain-openai (PyPI). Part of the full run.
"""
import sys

from daemon import Daemon, program_and_arguments, require, run_checks, skip

try:
    import openai
    from langchain_openai import ChatOpenAI, OpenAI
except ImportError:
    skip("no package langchain-openai: pip install langchain-openai")

http = sys.modules.get("httpx2") or sys.modules["httpx"]
PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, ARGUMENTS)
QUESTION = "Where does Rosa work?"


def options(**more):
    transport = http.HTTPTransport(uds=daemon.socket_path)
    return {"base_url": "http://localhost/v1", "api_key": "unused", "model": "any",
            "temperature": 0, "max_tokens": 16, "max_retries": 0,
            "http_client": openai.DefaultHttpxClient(transport=transport), **more}


def check_invoke():
    """invoke: a text, usage and a finish reason"""
    answer = ChatOpenAI(**options()).invoke([("system", "Be brief."), ("human", QUESTION)])
    require(answer.content)
    require(answer.usage_metadata["output_tokens"] > 0, f"{answer.usage_metadata}")
    require(answer.response_metadata["finish_reason"] in ("stop", "length"))


def check_stream():
    """stream: the same text, and usage once, as asked for"""
    whole = ChatOpenAI(**options()).invoke(QUESTION)
    pieces = list(ChatOpenAI(**options(stream_usage=True)).stream(QUESTION))
    require("".join(piece.content for piece in pieces) == whole.content)
    total = sum(piece.usage_metadata["output_tokens"] for piece in pieces if piece.usage_metadata)
    require(total == whole.usage_metadata["output_tokens"], f"{total}")
    silent = list(ChatOpenAI(**options(stream_usage=False)).stream(QUESTION))
    require(not any(piece.usage_metadata for piece in silent), "usage that was not asked for")


def check_batch():
    """batch: each question its own answer"""
    questions = [f"What is the heat of mixer H{i}?" for i in range(6)]
    model = ChatOpenAI(**options())
    together = [answer.content for answer in model.batch(questions)]
    require(together == [model.invoke(question).content for question in questions])


def check_completion():
    """the older interface, whole and streamed"""
    model = OpenAI(**options())
    text = model.invoke("Rosa works in bay")
    require(text and "".join(model.stream("Rosa works in bay")) == text)


def check_logprobs():
    """logprobs arrive in the metadata"""
    answer = ChatOpenAI(**options(logprobs=True, top_logprobs=2)).invoke(QUESTION)
    content = answer.response_metadata["logprobs"]["content"]
    require(content and len(content[0]["top_logprobs"]) == 2)


if __name__ == "__main__":
    with daemon:
        code = run_checks([check_invoke, check_stream, check_batch, check_completion,
                           check_logprobs])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
