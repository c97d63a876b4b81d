"""The part of the store for Mooncake that runs in a process of its own, with the Python of Mooncake's package.

store.cc starts it as `python3 -c`, with a socket as descriptor 3, shared memory as 4, and the settings as arguments. It
does what the requests say and answers each of them once, in any order. When the socket ends, it ends.
"""
import json
import mmap
import os
import random
import socket
import struct
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

REQUEST = struct.Struct("<QIIQQQ")  # id, kind, flags, place in the memory, bytes, offset; the name and `after` follow
ANSWER = struct.Struct("<QIIQ")  # id, status, more, done; a message follows
PUT, GET, REMOVE, LIST = 1, 2, 3, 4
LISTED = 1
OK, MISS, AGAIN, IO, DEADLINE, FULL = range(6)
MARK = b"\1"  # before each object, because Mooncake stores no empty object

# Largest value of a directory, decompressed: others may write what inflates to any size, and JSON takes 30 times its size
# as Python objects. The largest of ours is the newest names of a process. It has names of 131,072 epochs (58 bytes each,
# 7.3 MiB: a host believes no more), 31,250 numbers of values with 128 names each (17 bytes each, 0.5 MiB: a listing has
# no more than 4,000,000 names) and 128 names.
MOST_OF_A_VALUE = 8 << 20

# Mooncake's return values (ErrorCode of its types.h).
INVALID = -600
NOT_READY = -703
NOT_THERE = -704
MEANINGS = {
    NOT_THERE: (MISS, "no such object"),
    NOT_READY: (MISS, "it is being written"),
    -710: (MISS, "it has no replica"),
    -712: (MISS, "its replica is gone"),
    -200: (FULL, "Mooncake has no memory left, or no process lends it any: run mooncake_client, or set lend"),
    -706: (AGAIN, "it is being read"),
    -708: (AGAIN, "it is being copied"),
    -714: (AGAIN, "it is being used"),
    -707: (DEADLINE, "the lease ended before the bytes were there"),
    -800: (IO, "the process whose memory it lies in does not answer"),
    -900: (IO, "the master does not answer"),
    -901: (DEADLINE, "the master did not answer in time"),
}


class Failed(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def check(code):
    """Returns the code, or raises Failed if it is an error."""
    if code < 0:
        raise Failed(*MEANINGS.get(code, (IO, "Mooncake's error %d" % code)))
    return code


class Pool:
    """Mooncake's client, and our names in it."""

    def __init__(self, settings, memory, address, say):
        self.settings, self.say = settings, say
        self.memory, self.address = memory, address
        self.client = None
        self.reason = "the master at %s has not answered yet" % settings["master"]
        self.tried = threading.Event()
        threading.Thread(target=self._connect, daemon=True).start()

    def key(self, name):
        return "%s/%s" % (self.settings["prefix"], name)

    def get(self):
        if self.client is None:
            self.tried.wait(5.0)
        if self.client is None:
            raise Failed(IO, self.reason)
        return self.client

    # ---- the client

    def _connect(self):
        said = None
        while True:
            try:
                self.reason = self._try()
            except Exception as error:  # the loop tries again
                self.reason = "%s: %s" % (type(error).__name__, error)
            self.tried.set()
            if self.reason is None:
                if said is not None:
                    self.say(2, "Mooncake: the master at %s answers" % self.settings["master"])
                return
            if self.reason != said:
                said = self.reason
                self.say(1, "Mooncake: " + said)
            time.sleep(0.5)

    def _try(self):
        from mooncake.store import MooncakeDistributedStore
        settings = self.settings
        host, _, port = settings["master"].rpartition(":")
        # Mooncake's own attempts take half a minute, and block everything else meanwhile.
        try:
            with socket.create_connection((host.strip("[]"), int(port)), 2.0) as probe:
                own = settings["host"] or probe.getsockname()[0]
        except OSError as error:
            return "the master at %s cannot be reached: %s" % (settings["master"], error.strerror or error)
        client = MooncakeDistributedStore()
        code = client.setup(own, settings["metadata"], settings["lend"], 16 << 20, settings["protocol"],
                            settings["device"], settings["master"])
        if code != 0:
            return ("Mooncake's client could not be set up with the master at %s (%d): is it mooncake_master's RPC port, "
                    "and are protocol and device right?" % (settings["master"], code))
        code = client.register_buffer(self.address, len(self.memory))
        if code != 0:
            client.close()
            return "Mooncake could not register %d bytes of memory (%d)" % (len(self.memory), code)
        self.client = client
        return None

    def close(self):
        if self.client is not None:
            self.client.close()

    # ---- objects

    def put(self, name, at, size):
        check(self.get().upsert_from(self.key(name), self.address + at, size))

    def read(self, name, at, size, offset):
        """Fewer bytes only at the end of the object."""
        client, key = self.get(), self.key(name)
        code = self._read(client, key, at, size, offset)
        end = time.monotonic() + 1.0
        while code == NOT_READY and time.monotonic() < end:  # an object cannot be read while it is replaced
            time.sleep(0.002)
            code = self._read(client, key, at, size, offset)
        return check(code)

    def _read(self, client, key, at, size, offset):
        code = self._range(client, key, at, size, offset)
        if code != INVALID:
            return code
        there = client.get_size(key)  # the object may end before offset + size
        if there < 0:
            return there
        size = max(0, min(size, there - len(MARK) - offset))
        return self._range(client, key, at, size, offset) if size else 0

    def _range(self, client, key, at, size, offset):
        if offset + len(MARK) + size >= 1 << 63:
            return INVALID
        return client.get_into_ranges([self.address + at], [[key]], [[[0]]], [[[offset + len(MARK)]]], [[[size]]])[0][0][0]

    def remove(self, name):
        code = self.get().remove(self.key(name), True)
        if code != NOT_THERE:
            check(code)

    # ---- small values, of the directories

    def there(self, names):
        """Which of them there are."""
        out = []
        for first in range(0, len(names), 512):
            some = names[first:first + 512]
            codes = self.get().batch_is_exist([self.key(name) for name in some])
            out += [name for name, code in zip(some, codes) if check(code) == 1]
        return out

    def values(self, names):
        """name -> bytes of those that are there."""
        out = {}
        there = self.there(names)
        for first in range(0, len(there), 64):
            some = there[first:first + 64]
            out.update(zip(some, self.get().get_batch([self.key(name) for name in some])))
        empty = [name for name, value in out.items() if not value]
        if self.there(empty):
            raise Failed(IO, "Mooncake did not give a value that is there")
        for name in empty:  # removed a moment ago
            del out[name]
        return out

    def set_value(self, name, value):
        from mooncake.store import ReplicateConfig
        pinned = ReplicateConfig()
        pinned.with_hard_pin = True  # is not evicted
        check(self.get().upsert(self.key(name), value, pinned))


class Directory:
    """The names of objects that are listed: Mooncake itself cannot list.

    Each process that writes has a directory of its own, in one of 256 places with fixed names: value "#7" with the
    newest names, and values "#7/1234" with 128 older ones each, which do not change. The process writes its id and the
    time into it. If a process ended or was silent for a minute, another takes over its place with the names in it. A
    directory is lost when the process with its memory dies or the master restarts: its own process then writes it
    again. When two processes have one place, the one that sees the other's id moves.
    """

    PLACES = 256
    SEGMENT = 128
    GONE_S = 60.0
    BEAT_S = 15.0

    def __init__(self, pool):
        self.pool, self.lock = pool, threading.Lock()
        self.instance = os.urandom(8).hex()
        self.place = None
        self.few = set()  # names of epochs and collecting processes: they change, or must not be lost
        self.open = []
        self.segments = {}  # number -> names, the oldest first
        self.changed = False
        self.rewrite = set()  # segments
        self.wrote = 0.0
        self.known = {}  # segments of other processes: value's name -> names

    # ---- operations

    def add(self, name):
        with self.lock:
            if self.place is None:
                self._claim()
            if name.startswith(("v1/e/", "v1/w/")):
                self.few.add(name)
            elif name not in self.open:
                self.open.append(name)
                if len(self.open) >= self.SEGMENT:
                    self._prune(list(self.segments)[:2])
                    number = random.getrandbits(48)
                    self.segments[number], self.open = self.open, []
                    self.rewrite.add(number)
            self.changed = True
            self._flush()

    def discard(self, name):
        """Removes the name. Other processes see that after the next listing here. Names in their directories stay until they list."""
        with self.lock:
            if name in self.few or name in self.open:
                self.few.discard(name)
                self.open = [each for each in self.open if each != name]
                self.changed = True
                return
            for number, names in self.segments.items():
                if name in names:
                    names.remove(name)
                    self.rewrite.add(number)
                    return

    def names(self, prefix, after):
        with self.lock:
            heads = self._heads()
            self._keep(heads)
            wanted = {}
            found = set(self.few)
            found.update(self.open)
            for names in self.segments.values():
                found.update(names)
            for place, head in heads.items():
                if place == self.place:
                    continue
                found.update(head["few"])
                found.update(head["open"])
                wanted.update(("#%d/%d" % (place, number), None) for number in head["segments"])
            for name, value in self.pool.values([name for name in wanted if name not in self.known]).items():
                self.known[name] = self._names(value)
            self.known = {name: names for name, names in self.known.items() if name in wanted}
            for names in self.known.values():
                if names and max(names) > after:
                    found.update(names)
        return sorted(name for name in found if name.startswith(prefix) and name > after)

    def close(self):
        if self.place is not None and self.pool.client is not None:
            with self.lock:
                self.changed = True
                self._flush(gone=True)

    # ---- maintenance

    def _heads(self):
        heads, left = {}, ["#%d" % place for place in range(self.PLACES)]
        for _ in range(4):  # a head that was being replaced is read again
            found = {name: self._decoded(value) for name, value in self.pool.values(left).items()}
            heads.update((int(name[1:]), head) for name, head in found.items() if head is not None)
            left = [name for name, head in found.items() if head is None]
            if not left:
                break
        return {place: head for place, head in heads.items()
                if isinstance(head, dict) and {"who", "at", "few", "open", "segments"} <= set(head)
                and isinstance(head["at"], (int, float)) and self._are(str, head["few"]) and self._are(str, head["open"])
                and self._are(int, head["segments"])}

    def _keep(self, heads):
        if self.place is None:
            return
        own = heads.get(self.place)
        if own is not None and own["who"] != self.instance:
            self.place = None  # this process was silent for a minute, and another one took the place
            self._claim(heads)
        # An epoch must not be lost with the directory that it was written into.
        epochs = {name for head in heads.values() for name in head["few"] if name.startswith("v1/e/")}
        if not epochs <= self.few:
            self.few |= epochs
            self.changed = True
        lost = own is None
        if lost:
            self._prune_all()
        if lost or time.time() - self.wrote > self.BEAT_S:
            self.changed = True
            there = set(self.pool.there(["#%d/%d" % (self.place, number) for number in self.segments]))
            self.rewrite.update(n for n in self.segments if "#%d/%d" % (self.place, n) not in there)
        self._flush()

    def _claim(self, heads=None):
        heads = self._heads() if heads is None else heads
        for place, head in heads.items():
            if head["at"] < time.time() - self.GONE_S:
                self.place = place
                values = self.pool.values(["#%d/%d" % (place, number) for number in head["segments"]])
                self.few.update(head["few"])
                for number in head["segments"]:
                    self.segments[number] = self._names(values.get("#%d/%d" % (place, number), b""))
                    self.rewrite.add(number)
                self.open = head["open"] + self.open
                self._prune_all()
                break
        else:
            free = [place for place in range(self.PLACES) if place not in heads]
            if not free:
                raise Failed(FULL, "%d processes write with this prefix: give some of them another one" % self.PLACES)
            self.place = free[0] if len(free) < 8 else random.choice(free[:8])
            self.rewrite.update(self.segments)
        self.changed = True
        self._flush()
        head = self._heads().get(self.place)
        if head is not None and head["who"] != self.instance:  # another process claimed it at the same moment
            self.place = None
            raise Failed(AGAIN, "another process took the same place for its directory")

    def _prune(self, numbers):
        """Forgets names of objects that are gone, by eviction or by another's hand."""
        for number in numbers:
            there = self.pool.there(self.segments[number])
            if len(there) != len(self.segments[number]):
                self.segments[number] = there
                self.rewrite.add(number)

    def _prune_all(self):
        """The names of epochs say all that there is to them."""
        self._prune(list(self.segments))
        self.open = self.pool.there(self.open)
        changing = {name for name in self.few if not name.startswith("v1/e/")}
        self.few -= changing.difference(self.pool.there(sorted(changing)))

    def _flush(self, gone=False):
        """Segments before the head that names them."""
        empty = [number for number, names in self.segments.items() if not names]
        for number in sorted(self.rewrite.difference(empty)):
            if number in self.segments:
                self.pool.set_value("#%d/%d" % (self.place, number), self._encoded(self.segments[number]))
            self.rewrite.discard(number)
            self.changed = True
        for number in empty:
            del self.segments[number]
            self.rewrite.discard(number)
            self.changed = True
        if self.changed:
            self.pool.set_value("#%d" % self.place, self._encoded({
                "who": self.instance, "at": 0 if gone else int(time.time()), "few": sorted(self.few), "open": self.open,
                "segments": list(self.segments)}))
            self.changed, self.wrote = False, time.time()
        for number in empty:
            self.pool.remove("#%d/%d" % (self.place, number))

    @staticmethod
    def _encoded(what):
        return zlib.compress(json.dumps(what).encode(), 1)

    @staticmethod
    def _are(kind, what):
        return isinstance(what, list) and all(isinstance(each, kind) for each in what)

    def _names(self, value):
        names = self._decoded(value)
        return names if self._are(str, names) else []

    @staticmethod
    def _decoded(value):
        """None: it is none of ours, or it was being replaced while it was read, which its checksum shows."""
        try:
            inflate = zlib.decompressobj()
            text = inflate.decompress(value, MOST_OF_A_VALUE)
            return json.loads(text) if inflate.eof else None
        except (zlib.error, ValueError, RecursionError):
            return None


class Service:
    def __init__(self, settings, connection, memory):
        import ctypes
        self.connection, self.memory = connection, memory
        self.pool = Pool(settings, memory, ctypes.addressof(ctypes.c_char.from_buffer(memory)), self.say)
        self.directory = Directory(self.pool)
        self.threads = ThreadPoolExecutor(settings["threads"])

    def say(self, level, text):
        self._send(ANSWER.pack(0, level, 0, 0) + text.encode())

    def _send(self, message):
        try:
            self.connection.send(message)
        except OSError:
            pass  # the other side has closed the socket

    def run(self):
        while True:
            message = self.connection.recv(4096)
            if not message:
                return
            self.threads.submit(self._answer, message)

    def _answer(self, message):
        number, kind, flags, at, size, offset = REQUEST.unpack_from(message)
        name, after = message[REQUEST.size:].decode().split("\0")[:2]
        status, done, more, text = OK, 0, 0, ""
        try:
            done, more = self._perform(kind, flags, name, after, at, size, offset)
        except Failed as failed:
            status, text = failed.status, str(failed)
        except Exception as error:  # each request must be answered
            status, text = IO, "%s: %s" % (type(error).__name__, error)
        self._send(ANSWER.pack(number, status, more, done) + text.encode()[:120])

    def _perform(self, kind, flags, name, after, at, size, offset):
        if kind == PUT:
            self.pool.put(name, at, size)
            if flags & LISTED:
                self.directory.add(name)
        elif kind == GET:
            return self.pool.read(name, at, size, offset), 0
        elif kind == REMOVE:
            self.pool.remove(name)
            if flags & LISTED:
                self.directory.discard(name)
        elif kind == LIST:
            done = 0
            for each in self.directory.names(name, after):
                encoded = each.encode() + b"\0"
                if done + len(encoded) > size:
                    return done, 1
                self.memory[at + done:at + done + len(encoded)] = encoded
                done += len(encoded)
            return done, 0
        return 0, 0

    def close(self):
        # A request that hangs must not block the exit.
        end = threading.Timer(2.0, os._exit, (0,))
        end.daemon = True
        end.start()
        self.threads.shutdown()
        try:
            self.directory.close()
        except Failed:
            pass
        self.pool.close()


def lacking():
    """A sentence for people, or ""."""
    try:
        from mooncake.store import MooncakeDistributedStore
    except ModuleNotFoundError:
        return ("%s has no Mooncake: install the package mooncake-transfer-engine there (without a GPU's driver "
                "mooncake-transfer-engine-non-cuda), or name another Python with python=" % sys.executable)
    except ImportError as error:
        return ("Mooncake of %s does not load (%s): without a GPU's driver install mooncake-transfer-engine-non-cuda"
                % (sys.executable, error))
    for name in ("upsert_from", "get_into_ranges", "batch_is_exist", "register_buffer"):
        if not hasattr(MooncakeDistributedStore, name):
            return "Mooncake of %s is too old: install mooncake-transfer-engine 0.3.13 or newer" % sys.executable
    return ""


def main():
    os.closerange(5, 1 << 16)  # descriptors of the parent process
    names = ("master", "prefix", "protocol", "device", "host", "metadata", "lend", "threads")
    settings = dict(zip(names, sys.argv[1:]))
    settings["lend"], settings["threads"] = int(settings["lend"]), int(settings["threads"])
    # Timeouts that default to half a minute, which is too long.
    for name, value in (("MC_RPC_TIMEOUT_MS", "3000"), ("MC_RPC_CONNECT_TIMEOUT_MS", "1000"), ("MC_SLICE_TIMEOUT", "5")):
        os.environ.setdefault(name, value)
    connection = socket.socket(fileno=3)
    sentence = lacking()
    connection.send(b"H" + sentence.encode()[:250])
    if sentence:
        return
    service = Service(settings, connection, mmap.mmap(4, 0))
    service.run()
    service.close()


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path]  # without the current directory
    main()
    os._exit(0)  # does not wait for Mooncake's threads
