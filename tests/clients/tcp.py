#!/usr/bin/env python3
"""tcp.py TARND: over TCP a key says who asks, and web pages of others do not reach tarnd."""
import http.client
import json
import sys

from daemon import Daemon, Reply, program_and_arguments, require, run_checks

PROGRAM, ARGUMENTS = program_and_arguments()
daemon = Daemon(PROGRAM, ARGUMENTS, listen_tcp=True)
TEXT = "Rosa works in bay kilo. Ivo works in bay golf. The heat of mixer H5 is 724.\n" * 4
COMPLETION = json.dumps({"prompt": TEXT, "temperature": 0, "max_tokens": 4})


def send(method, path, headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True)
        given = {"Host": f"127.0.0.1:{daemon.port}", **(headers or {})}
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


if __name__ == "__main__":
    with daemon:
        code = run_checks([check_keys, check_hosts, check_tenants])
        if code != 0:
            print(daemon.log()[-4000:])
    sys.exit(code)
