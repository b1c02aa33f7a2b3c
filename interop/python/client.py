"""The design note's client of the Gateway's HTTP API, on the standard library.

    python3 client.py GATEWAY-URL

takes one call a line on stdin, {"call": NAME, "arguments": {...}}, and writes the
answer to stdout as a line {"status": HTTP-STATUS, "body": ...}.
"""

import json
import sys
import urllib.error
import urllib.request


class GatewayClient:
    """Three calls, each of which returns the HTTP status and the JSON body."""

    def __init__(self, base_url):
        self.base_url = base_url.rstrip("/")

    def send_command(self, target_client_id, command, callback_url, priority="NORMAL", timeout=30000):
        return self._call("POST", "/api/commands", {
            "target_client_id": target_client_id,
            "command": command,
            "callback_url": callback_url,
            "priority": priority,
            "timeout": timeout,
        })

    def get_command_status(self, request_ref):
        return self._call("GET", "/api/commands/" + request_ref)

    def cancel_command(self, request_ref):
        return self._call("DELETE", "/api/commands/" + request_ref)

    def _call(self, method, path, payload=None):
        body = None if payload is None else json.dumps(payload).encode()
        request = urllib.request.Request(self.base_url + path, data=body, method=method)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, json.load(answer)


def main():
    client = GatewayClient(sys.argv[1])
    calls = {f.__name__: f for f in (client.send_command, client.get_command_status, client.cancel_command)}
    for line in sys.stdin:
        order = json.loads(line)
        status, body = calls[order["call"]](**order["arguments"])
        print(json.dumps({"status": status, "body": body}), flush=True)


if __name__ == "__main__":
    main()
