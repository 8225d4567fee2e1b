#!/usr/bin/env python3
"""tcp.py TARND: over TCP a key says who asks, and web pages of others do not reach tarnd.

What one asks and saves shows to nobody else, unless daemon.shared says so. Pages of an allowed
origin get what their browser asks for.
"""
import http.client
import json
import socket
import subprocess
import sys

from daemon import Daemon, Reply, program_and_arguments, require, run_checks

PROGRAM, ARGUMENTS = program_and_arguments()
ORIGIN = "http://localhost:3000"
CONFIG = f"[daemon]\norigins = ['{ORIGIN}', 'https://app.example']\nhosts = ['tarn']\n"
daemon = Daemon(PROGRAM, ARGUMENTS, listen_tcp=True, store=True, config=CONFIG)
TEXT = "Rosa works in bay kilo. Ivo works in bay golf. The heat of mixer H5 is 724.\n" * 4
# Longer than a page, so that a part of it can be found again.
DOCUMENT = "".join(f"Bay kilo has mixer H{i}, whose heat is {700 + i}.\n" for i in range(40))
COMPLETION = json.dumps({"prompt": TEXT, "temperature": 0, "max_tokens": 4})


def send(method, path, headers=None, body=None, port=None):
    connection = http.client.HTTPConnection("127.0.0.1", port or daemon.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True)
        given = {"Host": f"127.0.0.1:{port or daemon.port}", **(headers or {})}
        if body is not None:
            given.update({"Content-Type": "application/json", "Content-Length": str(len(body))})
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body.encode() if body is not None else None)
        response = connection.getresponse()
        return Reply(response, response.read())
    finally:
        connection.close()


def complete(headers):
    return send("POST", "/v1/completions", headers, COMPLETION)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def check_keys():
    """401 without a key or with a wrong one; both headers carry a key"""
    for headers in [{}, bearer("wrong"), bearer(""), {"Authorization": daemon.key},
                    {"Authorization": f"Basic {daemon.key}"}, {"x-api-key": "wrong"},
                    bearer(daemon.key + "x"), bearer(daemon.key[:-1])]:
        reply = complete(headers)
        require(reply.status == 401, f"{headers}: {reply.status}")
        require(reply.json()["error"]["type"] == "authentication_error")
    for headers in [bearer(daemon.key), {"x-api-key": daemon.key},
                    {"authorization": f"bearer {daemon.key}"}]:
        require(complete(headers).status == 200, f"{headers}")
    require(send("GET", "/health").status == 200, "/health needs no key")
    for path in ("/slots", "/props", "/metrics"):
        require(send("GET", path).status == 401, path)


def check_hosts():
    """another Host, none, or a page of another origin is refused"""
    key = bearer(daemon.key)
    for host in [f"127.0.0.1:{daemon.port}", f"localhost:{daemon.port}", "127.0.0.1"]:
        require(complete({**key, "Host": host}).status == 200, host)
    for host in ["evil.example", f"evil.example:{daemon.port}", f"127.0.0.1.evil.example"]:
        reply = complete({**key, "Host": host})
        require(reply.status == 403, f"{host}: {reply.status}")
    require(complete({**key, "Host": None}).status == 400)
    for origin in ["http://evil.example", "null", f"http://localhost.evil.example:{daemon.port}"]:
        reply = complete({**key, "Origin": origin})
        require(reply.status == 403, f"{origin}: {reply.status}")
        require(send("GET", "/", {"Origin": origin}).status == 403, origin)


def check_hints():
    """a Host or an Origin that is refused is named, with the key to add it to"""
    key = bearer(daemon.key)
    require(complete({**key, "Host": "tarn:8080"}).status == 200, "it is in daemon.hosts")
    for headers, name, setting in [({"Host": "box:8080"}, "'box'", "daemon.hosts"),
                                   ({"Origin": "http://a.example"}, "'http://a.example'",
                                    "daemon.origins"),
                                   ({"Host": "\xe9"}, "Host", "daemon.hosts"),
                                   ({"Host": "x" * 300}, "Host", "daemon.hosts")]:
        reply = complete({**key, **headers})
        words = reply.json()["error"]["message"]
        require(reply.status == 403 and name in words and setting in words, words)
        require(len(words) < 400, words)


CORS = ["access-control-allow-origin", "access-control-expose-headers",
        "access-control-allow-methods", "access-control-allow-headers", "access-control-max-age"]


def preflight(headers, path="/v1/chat/completions", method="POST"):
    return send("OPTIONS", path, {"Access-Control-Request-Method": method, **headers})


def check_preflights():
    """an allowed origin's preflight is 204 without a key; others get no field of it"""
    asked = ("authorization, content-type, x-api-key, x-stainless-lang,X-Stainless-Retry-Count, "
             "openai-organization")
    for path, method in [("/v1/chat/completions", "POST"), ("/v1/models", "GET"),
                         ("/v1/tarn/store/book", "DELETE"), ("/nowhere", "GET")]:
        for origin in (ORIGIN, "https://app.example"):
            reply = preflight({"Origin": origin, "Access-Control-Request-Headers": asked}, path,
                              method)
            require(reply.status == 204 and reply.body == b"", f"{path}: {reply.status}")
            require("content-length" not in reply.headers and "content-type" not in reply.headers)
            require(reply.headers["access-control-allow-origin"] == origin)
            require(method in reply.headers["access-control-allow-methods"].split(", "))
            names = reply.headers["access-control-allow-headers"].split(", ")
            require({name.strip().lower() for name in asked.split(",")} <= set(names), f"{names}")
            require(int(reply.headers["access-control-max-age"]) > 0)
            require("Origin" in reply.headers["vary"])
    for headers in [{"Origin": "http://evil.example"}, {"Origin": "null"},
                    {"Origin": ORIGIN + "/"}, {"Origin": ORIGIN, "Host": "evil.example"}]:
        reply = preflight(headers)
        require(reply.status == 403, f"{headers}: {reply.status}")
        allowed = reply.headers.get("access-control-allow-origin")
        require(allowed in (None, ORIGIN) and not set(CORS[2:]) & set(reply.headers), f"{headers}")
    for first, second in [(ORIGIN, "http://evil.example"), ("http://evil.example", ORIGIN),
                          (ORIGIN, ORIGIN)]:
        reply = preflight({"Origin": first, "origin": second})
        require(reply.status == 400 and not set(CORS) & set(reply.headers), f"{reply.headers}")
    require(send("OPTIONS", "/v1/models", {"Origin": ORIGIN}).status in (401, 405))
    require(send("OPTIONS", "/v1/models", bearer(daemon.key)).status == 405)


def check_origins():
    """an allowed origin's replies say so, errors and streams too; a foreign one's never"""
    key, page = bearer(daemon.key), {"Origin": ORIGIN}
    stream = json.dumps({"prompt": TEXT, "max_tokens": 2, "stream": True})
    cases = [("POST", "/v1/completions", key, COMPLETION, 200),
             ("POST", "/v1/completions", key, stream, 200),
             ("POST", "/v1/completions", key, "{", 400),
             ("POST", "/v1/completions", {}, COMPLETION, 401),
             ("POST", "/v1/completions", {**key, "Host": "evil.example"}, COMPLETION, 403),
             ("GET", "/nowhere", key, None, 404), ("GET", "/v1/completions", key, None, 405),
             ("POST", "/v1/completions", key, " " * (9 << 20), 413), ("GET", "/health", {}, None,
                                                                      200),
             ("POST", "/v1/completions", {**key, "Content-Encoding": "gzip"}, COMPLETION, 415),
             ("POST", "/v1/completions", {**key, "Expect": "x"}, COMPLETION, 417),
             ("POST", "/v1/completions", {**key, "Transfer-Encoding": "gzip"}, COMPLETION, 501),
             ("POST", "/v1/completions", {**key, "X-Bad ": "x"}, COMPLETION, 400),
             ("GET", "/health", {"Content-Length": "-1"}, None, 400)]
    for method, path, headers, body, status in cases:
        reply = send(method, path, {**headers, **page}, body)
        require(reply.status == status, f"{method} {path}: {reply.status}, not {status}")
        require(reply.headers["access-control-allow-origin"] == ORIGIN, f"{path} {status}")
        exposed = reply.headers["access-control-expose-headers"].lower().split(", ")
        require({"x-request-id", "retry-after"} <= set(exposed), f"{exposed}")
        require("Origin" in reply.headers["vary"])
        for other in ({}, {"Origin": "http://evil.example"}):
            reply = send(method, path, {**headers, **other}, body)
            require(not set(CORS) & set(reply.headers), f"{path} {other}: {reply.headers}")


def check_no_key():
    """--insecure-no-key: 127.0.0.1 alone, said in the log, and no web page comes in"""
    def tarnd(*listen, keys=None):
        command = [PROGRAM, *ARGUMENTS, "-c", "2048", "--insecure-no-key"]
        for address in listen:
            command += ["--listen", address]
        return command + (["--keys-file", keys] if keys else [])

    for command in [tarnd("tcp://127.0.0.2:28470"), tarnd("tcp://[::1]:28470"),
                    tarnd("tcp://127.0.0.1:28470", "tcp://127.0.0.1:28471",
                          keys=daemon.command[daemon.command.index("--keys-file") + 1])]:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        require(done.returncode == 78 and "key" in done.stderr, f"{command}: {done.stderr}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Daemon(PROGRAM, [*ARGUMENTS, "-c", "2048", "--insecure-no-key", "--listen",
                          f"tcp://127.0.0.1:{port}"]) as open_one:
        for headers in ({}, bearer("any"), {"x-api-key": "any"}):
            reply = send("POST", "/v1/completions", headers, COMPLETION, port)
            require(reply.status == 200, f"{headers}: {reply.status}")
        require(send("GET", "/slots", {}, None, port).status == 200)
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            require(send("GET", "/slots", headers, None, port).status == 403, f"{headers}")
        require("level=warning event=no_keys" in open_one.log(), open_one.log())


def check_tenants():
    """a key's tenant does not reuse, or see, what another one's requests computed"""
    def cached(headers):
        answer = complete(headers).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["tarn"]["tenant"]

    first, other = bearer(daemon.key), bearer("another-key-of-the-tests")
    cached(first)
    n, tenant = cached(first)
    require(n > 0 and tenant == "key:tests", f"{n} {tenant}")
    n, tenant = cached(other)
    require(n == 0 and tenant == "key:others", f"{n} {tenant}")
    require(cached(other)[0] > 0)
    own = daemon.complete(TEXT)
    require(own["usage"]["prompt_tokens_details"]["cached_tokens"] == 0)
    require(own["tarn"]["tenant"].startswith("uid:"), own["tarn"]["tenant"])


def by_key(server, key):
    """Asks over TCP."""
    return lambda method, path, body=None: send(method, path, bearer(key), body, server.port)


def by_uid(server):
    return lambda method, path, body=None: server.request(method, path, body)


def document_names(ask):
    reply = ask("GET", "/v1/tarn/store")
    require(reply.status == 200, f"{reply.status} {reply.body[:200]!r}")
    return {row["name"] for row in reply.json()["data"]}


def ingest(ask, name):
    reply = ask("POST", "/v1/tarn/ingest", json.dumps({"name": name, "content": DOCUMENT}))
    require(reply.status == 200, f"{reply.status} {reply.body[:200]!r}")
    return reply.json()


def cached_of_document(ask):
    body = json.dumps({"prompt": DOCUMENT + "Q: What is the heat of mixer H7?\nA:",
                       "temperature": 0, "max_tokens": 1})
    answer = ask("POST", "/v1/completions", body).json()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def check_stores():
    """another's document is not listed, not reused, not removed and not in the way of its name"""
    first, other = by_key(daemon, daemon.key), by_key(daemon, "another-key-of-the-tests")
    own = by_uid(daemon)
    for ask in (first, other, own):
        require(document_names(ask) == set())
    ingest(first, "book")
    for ask in (other, own):
        require(document_names(ask) == set(), "it is listed")
        require(cached_of_document(ask) == 0, "it is reused")
        reply = ask("DELETE", "/v1/tarn/store/book")
        require(reply.status == 404, f"{reply.status}")
    require(document_names(first) == {"book"} and cached_of_document(first) > 0)
    require(ingest(own, "book")["reused"] > 0, "its own question was the same text")
    require(own("DELETE", "/v1/tarn/store/book").status == 200)
    require(document_names(own) == set() and document_names(first) == {"book"})
    require(cached_of_document(first) > 0, "another's was removed")
    daemon.stop()
    daemon.start()
    require(cached_of_document(other) == 0 and cached_of_document(own) == 0, "after a restart")
    require(document_names(first) == {"book"} and cached_of_document(first) > 0)
    require(first("DELETE", "/v1/tarn/store/book").status == 200)
    require(first("DELETE", "/v1/tarn/store/book").status == 404)


def check_shared():
    """daemon.shared = true: all are one tenant, whose document each lists, reuses and removes"""
    with Daemon(PROGRAM, ARGUMENTS, listen_tcp=True, store=True,
                config="[daemon]\nshared = true\n") as shared:
        first, other = by_key(shared, shared.key), by_key(shared, "another-key-of-the-tests")
        ingest(first, "book")
        for ask in (other, by_uid(shared)):
            require(document_names(ask) == {"book"} and cached_of_document(ask) > 0)
        require(other("DELETE", "/v1/tarn/store/book").status == 200)
        require(document_names(first) == set())


if __name__ == "__main__":
    with daemon:
        code = run_checks([check_keys, check_hosts, check_hints, check_preflights, check_origins,
                           check_no_key, check_tenants, check_stores, check_shared])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
