#!/usr/bin/env python3
"""curl.py TARND: what people type, with curl over a Unix socket."""
import json
import shutil
import subprocess
import sys

from daemon import Daemon, program_and_arguments, require, run_checks, skip

if shutil.which("curl") is None:
    skip("no curl")

PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, ARGUMENTS)
URL = "http://localhost"
CHAT = {"messages": [{"role": "user", "content": "Where does Rosa work?"}], "temperature": 0,
        "max_tokens": 8}


def curl(*arguments, data=None):
    """Returns status, headers (lower case) and body."""
    done = subprocess.run(["curl", "-sS", "-i", "--max-time", "60", "--unix-socket",
                           daemon.socket_path, *arguments], input=data, capture_output=True,
                          check=False)
    require(done.returncode == 0, f"curl ended with {done.returncode}: {done.stderr!r}")
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    while b" 100 " in head.split(b"\r\n")[0]:
        head, _, body = body.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head.decode().lower(), body


def post(path, body, *arguments):
    return curl(*arguments, "-H", "Content-Type: application/json", "-d", "@-", URL + path,
                data=json.dumps(body).encode())


def check_get():
    """GET and HEAD; HEAD has no body"""
    status, head, body = curl(URL + "/health")
    require(status == 200 and json.loads(body)["status"] == "ok" and "x-request-id: " in head)
    status, head, body = curl("-I", URL + "/health")
    require(status == 200 and body == b"" and "content-length: " in head)
    require(curl(URL + "/v1/models")[0] == 200)
    require("text/plain" in curl(URL + "/metrics")[1])


def check_post():
    """POST with a length, in chunks, with Expect, without a type, as HTTP/1.0"""
    alone = json.loads(post("/v1/chat/completions", CHAT)[2])["choices"]
    for arguments in [("-H", "Transfer-Encoding: chunked"), ("-H", "Expect: 100-continue"),
                      ("-H", "Content-Type:"), ("-0",), ("-H", "Connection: close")]:
        status, _, body = post("/v1/chat/completions", CHAT, *arguments)
        require(status == 200, f"{arguments}: {status} {body[:200]!r}")
        require(json.loads(body)["choices"] == alone, f"{arguments}")


def check_aliases():
    """paths without /v1, as llama-server has them"""
    require(post("/chat/completions", CHAT)[0] == 200)
    require(post("/completions", {"prompt": "Rosa", "max_tokens": 2})[0] == 200)
    require(curl(URL + "/models")[0] == 200 and curl(URL + "/v1/health")[0] == 200)


def check_stream():
    """a stream is events of one line, and ends with [DONE]; HTTP/1.0 as well"""
    for arguments in [("-N",), ("-N", "-0")]:
        status, head, body = post("/v1/chat/completions", {**CHAT, "stream": True}, *arguments)
        require(status == 200 and "content-type: text/event-stream" in head)
        events = [line for line in body.split(b"\n\n") if line and not line.startswith(b":")]
        require(all(event.startswith(b"data: ") for event in events), f"{events[:3]}")
        require(events[-1] == b"data: [DONE]")
        require(all(json.loads(event[6:])["choices"] for event in events[:-1]))


def check_kept():
    """two requests over one connection"""
    done = subprocess.run(["curl", "-sS", "-v", "--unix-socket", daemon.socket_path,
                           URL + "/health", URL + "/health"], capture_output=True, check=True)
    require(b"Re-using existing connection" in done.stderr, done.stderr.decode())


def check_refused():
    """other methods, paths and bodies are refused with an error object"""
    for arguments, wanted in [(("-X", "PUT", URL + "/health"), 405),
                              (("-X", "DELETE", URL + "/v1/models"), 405),
                              ((URL + "/no/such/path",), 404),
                              ((URL + "/v1/models/other",), 404)]:
        status, head, body = curl(*arguments)
        require(status == wanted, f"{arguments}: {status}")
        require(json.loads(body)["error"]["message"])
        require(wanted != 405 or "\nallow: " in head)
    for text in [b"{", b"", b"[]", b"{\"messages\":1}", b"\xff", b"{\"n\":1,\"n\":1}"]:
        status, _, body = curl("-d", "@-", URL + "/v1/chat/completions", data=text)
        require(status == 400, f"{text!r}: {status}")
        require(json.loads(body)["error"]["type"] == "invalid_request_error")


def check_large():
    """a body over the limit is refused, and says so"""
    status, _, body = post("/v1/completions", {"prompt": "x" * (9 << 20)})
    require(status == 413 and "error" in json.loads(body), f"{status}")


def check_long():
    """a prompt that the context cannot hold is told its length, of whatever size it is"""
    def count(n_words):
        return len(json.loads(post("/tokenize", {"content": "word " * n_words})[2])["tokens"])

    for n_words in (9_000, 30_000, 1_000_000):
        words = "word " * n_words
        chat = {"messages": [{"role": "user", "content": words}]}
        for path, param, fields in [("/v1/completions", "prompt", {"prompt": words}),
                                    ("/v1/chat/completions", "messages", chat)]:
            status, _, body = post(path, fields)
            error = json.loads(body)["error"]
            require(status == 400 and error["code"] == "context_length_exceeded", f"{error}")
            require(error["type"] == "exceed_context_size_error" and error["param"] == param)
            require(error["n_prompt_tokens"] > error["n_ctx"] >= 512, f"{error}")
            exact = count(1) + (n_words - 1) * (count(2) - count(1))
            off = error["n_prompt_tokens"] - exact
            require(0 <= off < 100 or (param == "messages" and "estimated" in error),
                    f"{error}, exactly {exact}")
            require("exceeds the available context size" in error["message"])


def check_runs():
    """a run of one letter of any length is tokenized"""
    for letter in ("-", "a", " ", "\n", "\u00e9", "\u4e2d"):
        ids = json.loads(post("/tokenize", {"content": letter * 100_000})[2])["tokens"]
        text = json.loads(post("/detokenize", {"tokens": ids})[2])["content"]
        require(text == letter * 100_000, f"{letter!r}: {len(text)}")


def check_texts():
    """tokenize, detokenize and apply-template are inverse to one another"""
    text = "Rosa works in bay kilo. \u00e4\u20ac\U0001f600"
    ids = json.loads(post("/tokenize", {"content": text})[2])["tokens"]
    require(json.loads(post("/detokenize", {"tokens": ids})[2])["content"] == text)
    pieces = json.loads(post("/tokenize", {"content": text, "with_pieces": True})[2])["tokens"]
    require([piece["id"] for piece in pieces] == ids)
    joined = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"])
                      for p in pieces)
    require(joined.decode() == text, f"{joined!r}")
    prompt = json.loads(post("/apply-template", {"messages": CHAT["messages"]})[2])["prompt"]
    require(CHAT["messages"][0]["content"] in prompt)
    require(post("/detokenize", {"tokens": [4000000000]})[0] == 400)


if __name__ == "__main__":
    with daemon:
        code = run_checks([check_get, check_post, check_aliases, check_stream, check_kept,
                           check_refused, check_large, check_long, check_runs, check_texts])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
