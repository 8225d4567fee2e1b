#!/usr/bin/env python3
"""tcp.py TARND: over TCP a key says who asks, and web pages of others do not reach tarnd.

What one asks and saves shows to nobody else, unless daemon.shared says so.
"""
import http.client
import json
import sys

from daemon import Daemon, Reply, program_and_arguments, require, run_checks

PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, ARGUMENTS, listen_tcp=True, store=True)
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
        code = run_checks([check_keys, check_hosts, check_tenants, check_stores, check_shared])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
