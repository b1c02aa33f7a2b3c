"""The design note's receiver of callbacks, on the standard library.

    python3 receiver.py

serves POST /callback/command/{request_ref} and POST /callback/progress/{request_ref} on
a port that the system picks. stdout: {"event": "listening", "url": URL}, then a line for
each callback. It ends with its stdin.
"""

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

ROUTE = re.compile(r"/callback/(command|progress)/([^/?]+)$")
REQUIRED = ("requestRef", "status", "timestamp")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        route = ROUTE.match(self.path)
        if not route:
            return self.answer(404, {"detail": "Not Found"})
        data = json.loads(body)
        if any(name not in data for name in REQUIRED) or data["requestRef"] != unquote(route[2]):
            return self.answer(400, {"detail": "Invalid callback data"})
        tell({"event": route[1], "ref": unquote(route[2]), "attempt": self.headers["X-Callback-Attempt"], "data": data})
        self.answer(200, {"status": "received"})

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def tell(event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tell({"event": "listening", "url": f"http://127.0.0.1:{server.server_port}"})
    sys.stdin.read()


if __name__ == "__main__":
    main()
