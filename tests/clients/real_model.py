#!/usr/bin/env python3
"""real_model.py TARND TARN: a chat model of the world outside, by OpenAI's client.

The model is smollm2 of toolchain/model, in the folder TARN_MODELS; without it nothing is tried.
Answers are compared where the model is sure of them, and with each other.
"""
import json
import os
import subprocess
import sys

from daemon import Daemon, in_parallel, program_and_arguments, require, run_checks, skip

try:
    import openai
except ImportError:
    skip("no package openai: pip install openai")

MODEL = os.path.join(os.environ.get("TARN_MODELS", ""), "smollm2.gguf")
if "TARN_MODELS" not in os.environ or not os.path.exists(MODEL):
    skip("TARN_MODELS names no folder with smollm2.gguf: toolchain/model smollm2 fetches it")

# The client's HTTP library, whose name depends on its version.
http = sys.modules.get("httpx2") or sys.modules["httpx"]

# What the model is sure of: a question, and a word of its answer.
SURE = [("What is the capital of Japan?", "Tokyo"), ("Why is the sky blue?", "scatter"),
        ("What is the opposite of hot?", "cold")]
PROGRAM, (TARN,) = program_and_arguments()
daemon = Daemon(PROGRAM, ["-m", MODEL, "-c", "4096"])


def client():
    return openai.OpenAI(base_url="http://localhost/v1", api_key="unused", max_retries=0,
                         timeout=60, http_client=openai.DefaultHttpxClient(
                             transport=http.HTTPTransport(uds=daemon.socket_path)))


def chat(*texts, **fields):
    """Texts are the user's and the model's, in turns."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": text}
                for i, text in enumerate(texts)]
    return client().chat.completions.create(**{"model": "smollm2", "messages": messages,
                                               "temperature": 0, "max_tokens": 32, **fields})


def text_of(answer):
    return answer.choices[0].message.content


def check_inspect():
    """tarn inspect: this file runs here"""
    done = subprocess.run([TARN, "inspect", MODEL, "--json"], capture_output=True, check=True)
    shown = json.loads(done.stdout)
    require(shown["runs_here"] and shown["reasons"] == [], f"{shown['reasons']}")


def check_model():
    """models: it has its file's name"""
    require([model.id for model in client().models.list().data] == ["smollm2"])


def check_sure():
    """chat: the answers that the model is sure of, in parallel as alone, and of tarn run alike"""
    alone = [text_of(chat(question)) for question, _ in SURE]
    for (question, word), answer in zip(SURE, alone):
        require(word in answer, f"{question} {answer!r}")
    questions = [question for question, _ in SURE] * 2
    together = in_parallel(lambda question: text_of(chat(question)), questions)
    require(together == alone * 2, f"{together} and {alone}")
    done = subprocess.run([TARN, "run", "-m", MODEL, "--chat", "-p", SURE[0][0], "-n", "32",
                           "--temp", "0"], capture_output=True, text=True, check=True)
    require(done.stdout.strip() == alone[0].strip(), f"{done.stdout!r} and {alone[0]!r}")


def check_stream():
    """chat, streamed: the same text as whole, in pieces that are text, and why it ended"""
    for question in ("Write three emoji, and the word for snow in Japanese.", SURE[0][0]):
        whole = chat(question, max_tokens=48)
        chunks = list(chat(question, max_tokens=48, stream=True))
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
        require("".join(pieces) == text_of(whole), f"{pieces} and {text_of(whole)!r}")
        require(sum(map(bool, pieces)) > 3, f"{pieces}")
        require(chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason)


def check_turns():
    """chat: a later turn knows the first one, and reuses its KV"""
    first = "My name is Rosa."
    answer = text_of(chat(first))
    later = chat(first, answer, "What is my name?")
    require("Rosa" in text_of(later), text_of(later))
    require(later.model_extra["timings"]["cache_n"] > 0, f"{later.model_extra}")


def check_seed():
    """chat, drawn: a seed repeats its text, and another one has another"""
    drawn = [text_of(chat("Tell me a story.", temperature=1, seed=seed, max_tokens=24))
             for seed in (1, 1, 2)]
    require(drawn[0] == drawn[1] != drawn[2], f"{drawn}")


def check_completion():
    """completions: a text goes on, whole and streamed"""
    fields = {"model": "smollm2", "prompt": "One, two, three, four,", "temperature": 0,
              "max_tokens": 8}
    whole = client().completions.create(**fields).choices[0].text
    require("five" in whole, whole)
    chunks = client().completions.create(**fields, stream=True)
    streamed = [chunk.choices[0].text for chunk in chunks]
    require("".join(streamed) == whole, f"{streamed} and {whole!r}")


if __name__ == "__main__":
    with daemon:
        sys.exit(run_checks([check_inspect, check_model, check_sure, check_stream, check_turns,
                             check_seed, check_completion]))
