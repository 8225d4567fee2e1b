#!/usr/bin/env python3
"""openai_python.py TARND: OpenAI's own client, unmodified, against tarnd over a Unix socket.

Package openai (PyPI). It takes some seconds, and is part of CI.
"""
import asyncio
import sys
import threading
import time

from daemon import Daemon, in_parallel, program_and_arguments, require, run_checks, skip

try:
    import openai
except ImportError:
    skip("no package openai: pip install openai")

# The client's HTTP library, whose name depends on its version.
http = sys.modules.get("httpx2") or sys.modules["httpx"]

QUESTION = [{"role": "user", "content": "Where does Rosa work?"}]
BOOK = "Rosa works in bay kilo. Ivo works in bay golf. The heat of mixer H5 is 724.\n" * 4
PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, [*ARGUMENTS, "-c", "8192"])


def client_of(path, **options):
    return openai.OpenAI(base_url="http://localhost/v1", api_key="unused",
                         http_client=openai.DefaultHttpxClient(
                             transport=http.HTTPTransport(uds=path)),
                         **{"max_retries": 0, "timeout": 60, **options})


def client(**options):
    return client_of(daemon.socket_path, **options)


def chat(messages=None, **fields):
    return client().chat.completions.create(**{"model": "any", "messages": messages or QUESTION,
                                               "temperature": 0, "max_tokens": 16, **fields})


def complete(prompt, **fields):
    return client().completions.create(**{"model": "any", "prompt": prompt, "temperature": 0,
                                          "max_tokens": 16, **fields})


def refused(call, kind=openai.BadRequestError, status=400):
    """The error of a call that must be refused."""
    try:
        call()
    except kind as error:
        require(error.status_code == status, f"status {error.status_code}")
        body = error.body
        require(isinstance(body, dict) and body["message"] and body["type"], f"{body!r}")
        require(isinstance(body["code"], str) or body["code"] == status, f"{body!r}")
        return error
    raise AssertionError("it was not refused")


def check_models():
    """models: one, by its name; another name is not found"""
    models = client().models.list().data
    require(len(models) == 1, f"{len(models)} models")
    require(client().models.retrieve(models[0].id).id == models[0].id)
    refused(lambda: client().models.retrieve("no-such-model"), openai.NotFoundError, 404)


def check_chat():
    """chat: a message, usage that adds up, a request id, our own name for the model"""
    answer = chat()
    choice = answer.choices[0]
    require(choice.message.role == "assistant" and choice.message.content)
    require(choice.finish_reason in ("stop", "length"), choice.finish_reason)
    usage = answer.usage
    require(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens)
    require(0 < usage.completion_tokens <= 16)
    require(answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"))
    require(abs(answer.created - time.time()) < 60, "created is not now")
    require(answer.model == client().models.list().data[0].id, answer.model)
    require(answer._request_id, "no X-Request-Id")  # the client's public name for it
    timings = answer.model_extra["timings"]
    require(timings["predicted_n"] == usage.completion_tokens)
    require(timings["cache_n"] + timings["prompt_n"] == usage.prompt_tokens)
    require(answer.model_extra["tarn"]["approximate"] is False)


def check_chat_parts():
    """chat: content in parts is the same text"""
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    require(chat(parts).choices[0].message.content == chat().choices[0].message.content)


def check_chat_stream():
    """chat, streamed: role first, then the same text as whole, then why it ended, then usage"""
    whole = chat()
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    require(len({chunk.id for chunk in chunks}) == 1, "ids differ")
    require(all(chunk.object == "chat.completion.chunk" for chunk in chunks))
    require(chunks[0].choices[0].delta.role == "assistant")
    require(chunks[-1].choices == [], "the last chunk has the usage alone")
    require(chunks[-1].usage.completion_tokens == whole.usage.completion_tokens)
    require(chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens)
    choices = [chunk.choices[0] for chunk in chunks[:-1]]
    require("".join(c.delta.content or "" for c in choices) == whole.choices[0].message.content)
    require([c.finish_reason for c in choices if c.finish_reason] ==
            [whole.choices[0].finish_reason] and choices[-1].finish_reason)
    silent = list(chat(stream=True))
    require(all(chunk.usage is None for chunk in silent), "usage that was not asked for")


def check_stream_helper():
    """chat: the client's accumulating stream ends with the same completion"""
    fields = {"stop": ["\n"], "max_tokens": 64}  # an answer cut by max_tokens raises there
    with client().chat.completions.stream(model="any", messages=QUESTION, temperature=0,
                                          **fields) as stream:
        final = stream.get_final_completion()
    require(final.choices[0].message.content == chat(**fields).choices[0].message.content)


def check_reuse():
    """chat: the second turn reuses the KV of the first"""
    messages = [{"role": "system", "content": BOOK}, *QUESTION]
    first = chat(messages)
    messages += [{"role": "assistant", "content": first.choices[0].message.content},
                 {"role": "user", "content": "Where does Ivo work?"}]
    second = chat(messages)
    cached = second.usage.prompt_tokens_details.cached_tokens
    require(cached >= 64, f"{cached} cached tokens of {second.usage.prompt_tokens}")
    require(second.model_extra["tarn"]["reused"]["tokens"] == cached)


def check_completions():
    """completions: whole and streamed are the same; stop strings and max_tokens end them"""
    whole = complete(BOOK, max_tokens=12)
    require(whole.object == "text_completion" and whole.choices[0].text)
    chunks = list(complete(BOOK, max_tokens=12, stream=True))
    require("".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text)
    require(chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason)
    letter = next(c for c in whole.choices[0].text[1:] if c.isalpha())
    cut = complete(BOOK, max_tokens=12, stop=letter)
    require(cut.choices[0].text == whole.choices[0].text.split(letter)[0])
    require(cut.choices[0].finish_reason == "stop")
    require(complete(BOOK, max_tokens=12, stop=["\x01", letter]).choices[0].text ==
            cut.choices[0].text)
    short = complete(BOOK, max_tokens=1, extra_body={"ignore_eos": True})
    require(short.usage.completion_tokens == 1 and short.choices[0].finish_reason == "length")


def check_prompts():
    """completions: several prompts, and prompts as ids"""
    alone = [complete(prompt).choices[0].text for prompt in (BOOK, "Ivo works")]
    both = complete([BOOK, "Ivo works"])
    require([choice.text for choice in both.choices] == alone)
    require([choice.index for choice in both.choices] == [0, 1])
    ids = daemon.post("/tokenize", {"content": BOOK, "add_special": True}).json()["tokens"]
    require(complete(ids).choices[0].text == alone[0])
    require(complete([ids, ids]).choices[1].text == alone[0])


def check_chunks():
    """chunks: passages in any order in front of a prompt; the reply says what was placed"""
    first = "".join(f"Note {i}: the valve X{i} is set to {i * 7 % 97}.\n" for i in range(30))
    second = "".join(f"Note {i}: pump P{i} runs at {i * 5 % 89} rpm.\n" for i in range(30))
    def ask(chunks, **fields):
        answer = complete("Q: What is the valve X3?\nA:", max_tokens=8,
                          extra_body={"tarn": {"chunks": chunks, **fields}})
        return answer.choices[0].text, answer.model_extra["tarn"]
    whole = ask([first, second])[1]
    require(whole["reused"]["placed"] == whole["recomputed"] == 0 and not whole["approximate"])
    for order in ([first, second], [second, first]):
        again = [ask(order, recompute=0.2) for _ in range(2)]
        require(again[0][0] == again[1][0], "a second answer differs")
        tarn = again[1][1]
        require(tarn["approximate"] and tarn["reused"]["placed"] > 0 and tarn["recomputed"] > 0)
    for body, word in [({"chunks": [""]}, "empty"), ({"chunks": "a"}, "list"),
                       ({"chunks": ["a"], "recompute": 2}, "recompute"),
                       ({"chunks": ["a"] * 129}, "128")]:
        error = refused(lambda body=body: complete("a", extra_body={"tarn": body}))
        require(word in error.body["message"], f"{error.body}")
    error = refused(lambda: chat(extra_body={"tarn": {"chunks": ["a"]}}))
    require(error.body["param"] == "tarn.chunks", f"{error.body}")
    part = lambda text, **more: {"type": "text", "text": text, **more}
    for order in ([first, second], [second, first]):
        parts = [part(text, tarn={"chunk": True}) for text in order] + [part("What is valve X3?")]
        messages = [{"role": "user", "content": parts}]
        told = [chat(messages, extra_body={"tarn": {"recompute": 0.2}}).model_extra["tarn"]
                for _ in range(2)]
        require(all(t["approximate"] and t["recomputed"] > 0 for t in told), f"{told}")
        require(not chat(messages).model_extra["tarn"]["approximate"])


def check_n():
    """n: so many choices, equal when greedy, reproducible with a seed, streamed by index"""
    greedy = chat(n=3)
    require([choice.index for choice in greedy.choices] == [0, 1, 2])
    require(len({choice.message.content for choice in greedy.choices}) == 1)
    fields = {"n": 4, "temperature": 1.5, "seed": 7, "max_tokens": 24}
    drawn = [choice.message.content for choice in chat(**fields).choices]
    require(len(set(drawn)) > 1, "four draws are the same")
    texts = [""] * 4
    ends = [None] * 4
    for chunk in chat(stream=True, **fields):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason or ends[choice.index]
    require(texts == drawn, f"{texts} and {drawn}")
    require(None not in ends)
    require([c.text for c in complete(BOOK, n=2).choices] == 2 * [complete(BOOK).choices[0].text])


def check_seed():
    """seed: the same one gives the same text, and without one texts differ"""
    whole = {"top_k": 0, "min_p": 0, "ignore_eos": True}  # of the vocabulary, nothing cut away
    def texts(**fields):
        return {chat(temperature=2, top_p=1, max_tokens=24, extra_body=whole,
                     **fields).choices[0].message.content for _ in range(4)}
    require(len(texts(seed=5)) == 1)
    require(len(texts()) > 1)


def check_logprobs():
    """logprobs: of each token, with alternatives that are sorted; their bytes are the text"""
    choice = chat(logprobs=True, top_logprobs=3).choices[0]
    tokens = choice.logprobs.content
    text = b"".join(bytes(token.bytes) for token in tokens)
    require(text.decode().startswith(choice.message.content), f"{text!r}")
    for token in tokens:
        top = [other.logprob for other in token.top_logprobs]
        require(len(top) == 3 and top == sorted(top, reverse=True))
        require(token.logprob <= 0 and abs(token.logprob - top[0]) < 1e-6, "not the best")
    require(chat().choices[0].logprobs is None)
    require(chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs == [])
    require(complete(BOOK, logprobs=2).choices[0].logprobs is not None)
    streamed = [token for chunk in chat(logprobs=True, stream=True)
                for token in (chunk.choices[0].logprobs.content
                              if chunk.choices[0].logprobs else [])]
    require([t.logprob for t in streamed] == [t.logprob for t in tokens])


def check_errors():
    """errors: the right exception of the client, and the field by name"""
    for fields, name in [({"temperature": -1}, "temperature"), ({"n": 9}, "n"), ({"n": 0}, "n"),
                         ({"top_p": 2}, "top_p"), ({"max_tokens": "x"}, "max_tokens"),
                         ({"stop": [""]}, "stop"), ({"top_logprobs": 3}, "top_logprobs"),
                         ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
                         ({"logit_bias": {"9999999": 1}}, "logit_bias")]:
        error = refused(lambda fields=fields: chat(**fields))
        require(name == error.body["param"], f"{fields}: {error.body}")
        require(error.body["type"] == "invalid_request_error")
    refused(lambda: client().chat.completions.create(model="any", messages=[]))
    refused(lambda: chat([{"role": "user"}]))
    refused(lambda: chat([{"role": "user", "content": 5}]))
    error = refused(lambda: chat([{"role": "user", "content": "word " * 20000}]))
    require(error.body["type"] == "exceed_context_size_error", error.body["type"])
    refused(lambda: client().embeddings.create(model="any", input="x"), openai.NotFoundError, 404)


def check_refused():
    """fields that are not served yet are refused by name; unknown ones are ignored"""
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for fields, name in [({"tools": [tool]}, "tools"),
                         ({"response_format": {"type": "json_object"}}, "response_format"),
                         ({"extra_body": {"grammar": "root ::= [a-z]"}}, "grammar")]:
        error = refused(lambda fields=fields: chat(**fields))
        require(error.body["param"].startswith(name), f"{error.body}")
    require(chat(extra_body={"no_such_field": 1, "tools": [], "response_format": {"type": "text"}},
                 user="somebody").choices[0].message.content == chat().choices[0].message.content)


LONG = {"max_tokens": 4000, "extra_body": {"ignore_eos": True}, "stop": ["\x01\x01"]}


def check_gone():
    """a client that leaves, by a timeout or in the middle of a stream, frees its session"""
    try:
        client(timeout=0.1).chat.completions.create(model="any", messages=QUESTION, **LONG)
        raise AssertionError("4000 tokens in 0.1 s")
    except openai.APITimeoutError:
        pass
    daemon.wait_idle()
    with chat(stream=True, **LONG) as stream:
        for _, _ in zip(range(5), stream):
            pass
        require(daemon.n_busy() == 1)
    daemon.wait_idle()


def check_parallel():
    """eight clients at once, threads and asyncio, get the texts that they get alone"""
    questions = [[{"role": "user", "content": f"What is the heat of mixer H{i}?"}]
                 for i in range(8)]
    alone = [chat(q).choices[0].message.content for q in questions]
    together = in_parallel(lambda q: chat(q).choices[0].message.content, questions)
    require(together == alone, f"{together} and {alone}")

    async def ask_all():
        transport = http.AsyncHTTPTransport(uds=daemon.socket_path)
        async with openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="unused",
                                      http_client=openai.DefaultAsyncHttpxClient(
                                          transport=transport)) as own:
            answers = await asyncio.gather(*[
                own.chat.completions.create(model="any", messages=q, temperature=0, max_tokens=16)
                for q in questions])
            return [answer.choices[0].message.content for answer in answers]

    require(asyncio.run(ask_all()) == alone)


def check_retry():
    """a client that retries outlives a restart of the daemon"""
    before = chat().choices[0].message.content
    daemon.stop()
    result = []
    waiting = threading.Thread(target=lambda: result.append(
        client(max_retries=8).chat.completions.create(
            model="any", messages=QUESTION, temperature=0, max_tokens=16)))
    waiting.start()
    time.sleep(0.5)
    daemon.start()
    waiting.join()
    require(result[0].choices[0].message.content == before)


CHECKS = [check_models, check_chat, check_chat_parts, check_chat_stream, check_stream_helper,
          check_reuse, check_completions, check_prompts, check_chunks, check_n, check_seed,
          check_logprobs, check_errors, check_refused, check_gone, check_parallel, check_retry]

if __name__ == "__main__":
    with daemon:
        code = run_checks(CHECKS)
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
