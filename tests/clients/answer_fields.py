#!/usr/bin/env python3
"""answer_fields.py TARND: what a number means, and what tokens, offsets and names a client sees."""
import gzip
import json
import sys

from daemon import Daemon, program_and_arguments, require, run_checks

PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, ARGUMENTS, store=True)
BOOK = "The heat of fan U5 is 724.\nQuestion: What is the heat of fan U5?\nAnswer:"
WHOLE = {"temperature": 1, "top_k": 0, "min_p": 0}  # of the vocabulary, nothing cut away


def choice(prompt=BOOK, **fields):
    return daemon.complete(prompt, **fields)["choices"][0]


def events(path="/v1/completions", **fields):
    reply = daemon.post(path, {"temperature": 0, "stream": True, **fields})
    lines = [line[6:] for line in reply.body.split(b"\n\n") if line.startswith(b"data: {")]
    return [json.loads(line)["choices"][0] for line in lines]


def refused(path, body, param, words=""):
    reply = daemon.post(path, body)
    error = reply.json()["error"]
    require(reply.status == 400 and error["param"] == param, f"{body}: {reply.status} {error}")
    require(words in error["message"], error["message"])


def check_top_p():
    """top_p 0 and a tiny one keep the best token; 1 keeps all"""
    for top_p, is_one in [(0, True), (1e-6, True), (1e-46, True), (5e-324, True), (1, False)]:
        texts = {choice(top_p=top_p, seed=seed, max_tokens=6, **WHOLE)["text"]
                 for seed in range(1, 6)}
        require((len(texts) == 1) == is_one, f"{top_p}: {texts}")


def check_seeds():
    """every int64 is a seed of its own; -1 draws one"""
    def text(seed):
        return choice(seed=seed, max_tokens=12, **{**WHOLE, "temperature": 3})["text"]
    seeds = [-2, 0, 2**53, 2**53 + 1, 2**63 - 1, -2**63]
    texts = [text(seed) for seed in seeds]
    require(len(set(texts)) == len(seeds), f"{texts}")
    require(texts == [text(seed) for seed in seeds])
    require(len({text(-1) for _ in range(4)}) > 1)
    for seed in (2**63, -2**63 - 1, 2**64):
        refused("/v1/completions", {"prompt": "x", "seed": seed}, "seed",
                f"{-2**63} to {2**63 - 1}")


def check_order():
    """of several names of the length the first of the table counts, in any order"""
    for fields, wanted in [({"max_tokens": 3, "max_completion_tokens": 5}, 5),
                           ({"max_completion_tokens": 5, "max_tokens": 3}, 5),
                           ({"n_predict": 6, "max_tokens": 3}, 3)]:
        reply = daemon.post("/v1/completions", {"prompt": BOOK, "ignore_eos": True, **fields})
        require(reply.json()["usage"]["completion_tokens"] == wanted, f"{fields}")


def check_penalties():
    """OpenAI's penalties count generated tokens alone, repeat_penalty the prompt as well"""
    plain = choice(max_tokens=1)["text"]
    prompt = BOOK + plain * 6
    first = choice(prompt, max_tokens=1, logprobs=0)["logprobs"]["tokens"]
    for name in ("presence_penalty", "frequency_penalty"):
        same = choice(prompt, max_tokens=1, logprobs=0, **{name: 2})["logprobs"]["tokens"]
        require(same == first, f"{name}: {same}, without {first}")
    long = {"max_tokens": 200, "ignore_eos": True, "logprobs": 0}
    require(choice(frequency_penalty=2, **long)["text"] != choice(**long)["text"])


def check_stops():
    """with a stop string, tokens are those of the text, streamed or not; usage counts all"""
    whole = choice(max_tokens=12, ignore_eos=True, logprobs=1)
    tokens = whole["logprobs"]["tokens"]
    for i in range(1, 10):
        stop = "".join(tokens[i:i + 2])
        if whole["text"].index(stop) != len("".join(tokens[:i])):
            continue  # it is there before
        fields = {"prompt": BOOK, "max_tokens": 12, "ignore_eos": True, "logprobs": 1,
                  "stop": [stop]}
        cut = choice(**fields)
        require(cut["finish_reason"] == "stop" and cut["text"] + stop == "".join(tokens[:i + 2]))
        told = cut["logprobs"]["tokens"] if cut["logprobs"] else []
        require(told == tokens[:i], f"{stop!r}: {told}")
        pieces = events(**fields)
        require("".join(piece["text"] for piece in pieces) == cut["text"])
        told = [t for piece in pieces if piece["logprobs"] for t in piece["logprobs"]["tokens"]]
        require(told == tokens[:i], f"{stop!r} streamed: {told}")
        require(pieces[-1]["logprobs"] is None and pieces[-1]["finish_reason"] == "stop")
        sent = ""
        for piece in pieces:  # a token comes with the end of its text
            sent += piece["text"]
            for at, token in zip(*((piece["logprobs"] or {}).get(name, [])
                                   for name in ("text_offset", "tokens"))):
                require(sent[at:at + len(token)] == token, f"{sent!r} at {at}: {token!r}")
    nothing = choice(max_tokens=3, ignore_eos=True, logprobs=1, stop=[tokens[0]])["logprobs"]
    require(nothing["tokens"] == [] and nothing["text_offset"] == [], f"{nothing}")
    inside = tokens[3][-1:] + tokens[4]  # begins within a token
    cut = choice(max_tokens=12, ignore_eos=True, logprobs=1, stop=[inside])
    begins = [at < len(cut["text"]) for at in cut["logprobs"]["text_offset"]]
    require(all(begins), f"{cut}")
    usage = daemon.complete(BOOK, max_tokens=12, ignore_eos=True, stop=["".join(tokens[2:4])])
    require(usage["usage"]["completion_tokens"] == 4, f"{usage['usage']}")


def check_chat_stops():
    """a chat's logprobs with a stop are those of its text, streamed or not"""
    ask = {"messages": [{"role": "user", "content": BOOK}], "logprobs": True, "max_tokens": 8,
           "ignore_eos": True, "stop": ["\x01"]}
    def tokens_of(answer):
        return [t for t in (answer["logprobs"] or {"content": []})["content"]]
    whole = daemon.post("/v1/chat/completions", {**ask, "temperature": 0}).json()["choices"][0]
    all_tokens = tokens_of(whole)
    stop = all_tokens[2]["token"] + all_tokens[3]["token"]
    ask["stop"] = [stop]
    cut = daemon.post("/v1/chat/completions", {**ask, "temperature": 0}).json()["choices"][0]
    streamed = [t for piece in events("/v1/chat/completions", **ask) for t in tokens_of(piece)]
    require(tokens_of(cut) == streamed == all_tokens[:2], f"{cut}")
    require("".join(t["token"] for t in streamed) == cut["message"]["content"])
    require(all(bytes(t["bytes"]).decode() == t["token"] for t in streamed))


def check_offsets():
    """text_offset counts code points of the text as it is sent"""
    ids = daemon.post("/tokenize", {"content": "\u00e9"}).json()["tokens"]
    fields = {"max_tokens": 16, "logprobs": 0, "logit_bias": {str(i): 100 for i in ids},
              "presence_penalty": 2, "ignore_eos": True}
    whole = choice(**fields)
    offsets = whole["logprobs"]["text_offset"]
    require("\u00e9" in whole["text"] or "\ufffd" in whole["text"], whole["text"])
    require(offsets == sorted(offsets) and offsets[0] == 0 and offsets[-1] < len(whole["text"]))
    streamed = [at for piece in events(prompt=BOOK, **fields) if piece["logprobs"]
                for at in piece["logprobs"]["text_offset"]]
    require(streamed == offsets, f"{streamed}, {offsets}")
    # Bytes that never become a character, and whole ones between them.
    euro, letter = (daemon.post("/tokenize", {"content": text}).json()["tokens"]
                    for text in ("\u20ac", "k"))
    drawn = {"temperature": 5, "top_k": 0, "min_p": 0, "seed": 3}
    for n, more in [(1, {}), (1, drawn), (2, drawn), (3, drawn)]:
        fields = {"max_tokens": 12, "logprobs": 0, "ignore_eos": True, "frequency_penalty": 2,
                  "logit_bias": {str(i): 100 for i in [*euro[:n], *letter]}, **more}
        whole = choice("Rosa", **fields)
        seen, text = whole["logprobs"], whole["text"]
        letters = [at for at, token in zip(seen["text_offset"], seen["tokens"]) if token == "k"]
        require(letters == [at for at, c in enumerate(text) if c == "k"], f"{whole}")
        require("k" in text[text.index("\ufffd"):], text)
        streamed = [at for piece in events(prompt="Rosa", **fields) if piece["logprobs"]
                    for at in piece["logprobs"]["text_offset"]]
        require(streamed == seen["text_offset"], f"{streamed}, {seen}")


def check_names():
    """texts that end at U+0000 in C are refused, a name of the store too"""
    for path in ("/v1/completions", "/v1/chat/completions"):
        base = {"prompt": BOOK} if path == "/v1/completions" else {
            "messages": [{"role": "user", "content": BOOK}]}
        for field in ("session", "select"):
            refused(path, {**base, "tarn": {field: "full\0x"}}, f"tarn.{field}", "U+0000")
        refused(path, {**base, "stop": ["F\0zzz"]}, "stop", "U+0000")
        refused(path, {**base, "stop": "\0"}, "stop", "U+0000")
        refused(path, {**base, "model": "m\0"}, "model", "U+0000")
    refused("/v1/tarn/ingest", {"name": "doc\0x", "content": "hello"}, "name", "U+0000")
    require(daemon.request("DELETE", "/v1/tarn/store/a%00b").status == 400)
    require(daemon.get("/v1/tarn/store").json()["data"] == [])
    require(choice("a\0b", max_tokens=1) is not None)  # a prompt has a length


def check_refused():
    """wrong values name their field, and fields known elsewhere are not ignored"""
    refused("/v1/completions", {"prompt": "x", "repeat_penalty": 0.001}, "repeat_penalty",
            "0.01 to 100")
    for body, param in [({"prompt": [-1]}, "prompt"), ({"prompt": [10**6]}, "prompt"),
                        ({"prompt": "x", "logit_bias": {"1000000": 1}}, "logit_bias")]:
        refused("/v1/completions", body, param, "is not 0 to ")
    reply = daemon.post("/v1/completions", {"prompt": "x", "tarn": {"session": "a" * 129}})
    require(reply.json()["error"]["param"] == "tarn.session", f"{reply.json()}")
    refused("/v1/completions", {"prompt": "x", "stop": ["a", ""]}, "stop", "1 to 128 bytes")
    long = "word " * 20000
    for path, body in [("/v1/completions", {"prompt": long}), ("/v1/chat/completions", {
            "messages": [{"role": "user", "content": long}]})]:
        reply = daemon.post(path, body)
        error = reply.json()["error"]
        wanted = (400, "context_length_exceeded", next(iter(body)))
        require((reply.status, error["code"], error["param"]) == wanted, f"{error}")
    for name, value in [("guided_json", {"type": "object"}), ("guided_choice", ["a"]),
                        ("structured_outputs", {"json": {}}), ("format", "json"), ("n_probs", 3),
                        ("stop_token_ids", [1]), ("min_tokens", 2), ("bad_words", ["a"]),
                        ("options", {"num_predict": 3}), ("skip_special_tokens", False),
                        ("guided_json", {}), ("json_schema", {}), ("format", {}),
                        ("guided_decoding", {"json": {}}), ("num_beams", 4), ("min_length", 5),
                        ("stop_sequences", ["a"]), ("reasoning_budget_tokens", 9),
                        ("preserved_tokens", ["</s>"]), ("vllm_xargs", {"a": 1})]:
        refused("/v1/completions", {"prompt": "x", name: value}, name, "not served")
    for name, value in [("n_probs", 0), ("min_tokens", 0), ("keep_alive", "5m"), ("format", ""),
                        ("skip_special_tokens", True), ("stop_token_ids", []), ("x", {"y": 1}),
                        ("num_beams", 1), ("min_length", 0), ("guided_decoding", {}),
                        ("guided_json", None), ("num_beam_groups", 2), ("json_schema", "")]:
        require(choice(max_tokens=1, **{name: value}) is not None)
    require(choice(max_tokens=9, repetition_penalty=5)["text"] ==
            choice(max_tokens=9, repeat_penalty=5)["text"])


def check_template_arguments():
    """no argument of a template replaces what rendering sets"""
    for path in ("/apply-template", "/v1/chat/completions"):
        for name in ("messages", "add_generation_prompt", "bos_token", "tools", "range"):
            refused(path, {"messages": [{"role": "user", "content": "SECRET"}],
                           "chat_template_kwargs": {"ok": 1, name: []}},
                    f"chat_template_kwargs.{name}")


def check_paths():
    """a compressed body is 415; other servers' paths are said to be not served; a last slash"""
    body = gzip.compress(json.dumps({"prompt": "x"}).encode())
    require(daemon.request("POST", "/v1/completions", body,
                           headers={"Content-Encoding": "gzip"}).status == 415)
    require(daemon.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1},
                           headers={"Content-Encoding": "identity"}).status == 200)
    for path in ("/v1/embeddings", "/v1/responses", "/v1/messages", "/api/chat", "/infill",
                 "/rerank", "/v1/embeddings/"):
        reply = daemon.post(path, {})
        require(reply.status == 404 and "not served" in reply.json()["error"]["message"], path)
    require("not served" not in daemon.get("/nowhere").json()["error"]["message"])
    require(daemon.get("/v1/models/").body == daemon.get("/v1/models").body)
    require(daemon.post("/v1/completions/", {"prompt": "x", "max_tokens": 1}).status == 200)


if __name__ == "__main__":
    with daemon:
        sys.exit(run_checks([check_top_p, check_seeds, check_order, check_penalties, check_stops,
                             check_chat_stops, check_offsets, check_names, check_refused,
                             check_template_arguments, check_paths]))
