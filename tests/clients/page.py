#!/usr/bin/env python3
"""page.py TARND: a web page of an allowed origin asks tarnd from a browser, and another one cannot.

The page is served by this script. It needs Debian's package chromium or chromium-headless-shell.
"""
import http.server
import re
import shutil
import subprocess
import sys
import tempfile
import threading

from daemon import Daemon, program_and_arguments, require, run_checks, skip

BROWSER = next((path for name in ("chromium-headless-shell", "chromium", "chromium-browser")
                if (path := shutil.which(name))), None)
if BROWSER is None:
    skip("no chromium")

PROGRAM, ARGUMENTS = program_and_arguments()
# What the page finds is written into its document, which the browser prints at the end.
PAGE = """<!doctype html><title>tarnd</title><pre id="out">waiting</pre><script>
const headers = {"Authorization": "Bearer KEY", "Content-Type": "application/json",
                 "X-Stainless-Lang": "js"};
async function ask(path, fields, body) {
  try {
    const reply = await fetch("http://127.0.0.1:PORT" + path,
                              {method: body ? "POST" : "GET", headers: fields, body});
    const text = await reply.text();
    return reply.status + (reply.headers.get("x-request-id") ? " id" : "") +
           (text.includes("[DONE]") ? " done" : "");
  } catch (error) { return "blocked"; }
}
const body = JSON.stringify({prompt: "Rosa works", max_tokens: 4, stream: true});
Promise.all([ask("/v1/completions", headers, body), ask("/slots", headers),
             ask("/nowhere", headers), ask("/slots", {"X-Api-Key": "wrong"})])
  .then(all => document.getElementById("out").textContent = "found: " + all.join(", "));
</script>"""


class Pages(http.server.BaseHTTPRequestHandler):
    """Serves the page; `text` is set when tarnd's port is known."""
    text = b""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(self.text)))
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_):
        pass


def found_by(url):
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu",
                               f"--user-data-dir={profile}", "--timeout=20000",
                               "--virtual-time-budget=20000", "--dump-dom", url],
                              capture_output=True, text=True, check=False, timeout=120)
    parts = re.search("found: ([^<]*)<", done.stdout)
    require(parts, f"{done.stdout[-2000:]} {done.stderr[-2000:]}")
    return parts[1].split(", ")


def check_page():
    """a page of daemon.origins streams and reads errors; one of another origin is blocked"""
    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    allowed, foreign = (f"http://localhost:{server.server_port}" for server in servers)
    with Daemon(PROGRAM, ARGUMENTS, listen_tcp=True,
                config=f"[daemon]\norigins = ['{allowed}']\n") as daemon:
        Pages.text = PAGE.replace("KEY", daemon.key).replace("PORT", str(daemon.port)).encode()
        found = found_by(allowed)
        require(found == ["200 id done", "200 id", "404 id", "401 id"], f"{found}")
        found = found_by(foreign)
        require(found == ["blocked"] * 4, f"{found}")
    for server in servers:
        server.shutdown()


if __name__ == "__main__":
    sys.exit(run_checks([check_page]))
