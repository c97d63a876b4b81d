#!/usr/bin/env python3
"""An attacker on the path between two kvbm nodes: forwards one address to another and changes one byte of a block.

    python3 change_a_byte.py 127.0.0.1:7001 127.0.0.1:7000

listens on the first address and connects to the second for each connection. It changes one byte of the first block that
the second one sends back, reports it, and forwards everything else unchanged; with --all it changes every block.
docs/operations.md has the whole demonstration. It reads frames by lib/copy/tcp/README.md, and has no key.
"""
import argparse
import socket
import struct
import sys
import threading

HEADER = 32
TAG = 16
MESSAGE, BULK, MORE = 1, 2, 3
HANDSHAKE_MESSAGES = 2  # that each side says before anything is protected
AT_PROTECT = 109  # in the first of them
SMALLEST_BLOCK = 1024


class Path:
    """One connection, and what both sides have said of protection."""

    def __init__(self, changes):
        self.changes = changes
        self.wishes = {}

    def tag_bytes(self):
        return TAG if max(self.wishes.values(), default=0) > 0 else 0


class Changes:
    """How many blocks may still be changed; of all connections."""

    def __init__(self, every):
        self.every, self.done, self.lock = every, 0, threading.Lock()

    def take(self):
        with self.lock:
            if self.done and not self.every:
                return False
            self.done += 1
            return True


def read_all(sock, size):
    data = bytearray()
    while len(data) < size:
        part = sock.recv(min(size - len(data), 1 << 16))
        if not part:
            return None
        data += part
    return data


def forward(path, source, target, from_server):
    seen = 0
    try:
        while True:
            header = read_all(source, HEADER)
            if header is None:
                break
            kind, length = struct.unpack_from("<H", header, 4)[0], struct.unpack_from("<I", header, 8)[0]
            tag = 0 if seen < HANDSHAKE_MESSAGES else path.tag_bytes()
            body = read_all(source, length + tag)
            if body is None:
                break
            if seen == 0 and length > AT_PROTECT:
                path.wishes[from_server] = body[AT_PROTECT]
            seen += 1
            if from_server and kind == BULK and length >= SMALLEST_BLOCK and path.changes.take():
                at = length // 2
                body[at] ^= 0xFF
                print(f"changed byte {at} of a block of {struct.unpack_from('<Q', header, 24)[0]} bytes", flush=True)
            target.sendall(header + body)
    except OSError:
        pass
    for sock in (source, target):
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("listen", type=address, help="where to listen, host:port")
    parser.add_argument("target", type=address, help="the node, host:port")
    parser.add_argument("--all", action="store_true", help="change every block, not the first alone")
    options = parser.parse_args()
    changes = Changes(options.all)
    with socket.create_server(options.listen) as server:
        print("forwarding %s:%d to %s:%d" % (server.getsockname()[:2] + options.target), flush=True)
        while True:
            client, _ = server.accept()
            try:
                node = socket.create_connection(options.target)
            except OSError as error:
                print(f"no node there: {error}", file=sys.stderr)
                client.close()
                continue
            path = Path(changes)
            for sock in (client, node):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=forward, args=(path, client, node, False), daemon=True).start()
            threading.Thread(target=forward, args=(path, node, client, True), daemon=True).start()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
