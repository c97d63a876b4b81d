"""The directories of the store for Mooncake (stores/mooncake/client.py), over a dictionary in Mooncake's place.

python3 mooncake_directory.py CLIENT_PY
"""
import importlib.util
import json
import sys
import threading
import time
import zlib

spec = importlib.util.spec_from_file_location("client", sys.argv[1])
client = importlib.util.module_from_spec(spec)
spec.loader.exec_module(client)


class FakePool:
    """The part of a Pool that Directory needs. All processes share `values_`."""

    def __init__(self, values):
        self.values_, self.client = values, self

    def there(self, names):
        return [name for name in names if name in self.values_]

    def values(self, names):
        return {name: self.values_[name] for name in names if name in self.values_}

    def set_value(self, name, value):
        self.values_[name] = value

    def remove(self, name):
        self.values_.pop(name, None)


def index(number):
    return "v1/i/%08x" % number


def put(values, directory, name):
    values[name] = b"object"
    directory.add(name)


def world(n):
    values = {}
    return [values] + [client.Directory(FakePool(values)) for _ in range(n)]


def names(directory, prefix="v1/i/", after=""):
    return directory.names(prefix, after)


def age(directory, seconds):
    """As if it had not been there for so long."""
    with directory.lock:
        directory.changed = True
        real, time.time = time.time, lambda: real() - seconds
        directory._flush()
        time.time = real


def what_one_adds_all_list():
    values, a, b = world(2)
    wanted = [index(i) for i in range(1000)]  # in many segments
    for i, name in enumerate(wanted):
        put(values, (a, b)[i % 2], name)
    assert names(a) == names(b) == names(client.Directory(FakePool(values))) == wanted
    assert names(a, after=index(998)) == [index(999)] and names(a, prefix="v1/e/") == []
    assert a.place != b.place


def what_one_removes_leaves():
    values, a, b = world(2)
    for i in range(300):
        put(values, a, index(i))
    a.discard(index(3))
    a.discard(index(299))
    assert len(names(a)) == 298
    # The other one has read that segment before: a segment that is read again has the names that are left.
    assert len(names(client.Directory(FakePool(values)))) == 298
    assert names(b)[-1] == index(298)


def a_lost_directory_is_written_again():
    values, a, b = world(2)
    for i in range(300):
        put(values, a, index(i))
    put(values, a, "v1/e/00-1")
    for name in [name for name in values if name.startswith("#")]:
        del values[name]
    del values[index(7)], values[index(290)], values["v1/e/00-1"]  # gone with the memory that they were in
    assert names(b) == []
    names(a)
    assert names(b) == [index(i) for i in range(300) if i not in (7, 290)]
    assert names(b, "v1/e/") == ["v1/e/00-1"]  # an epoch's name says it all


def a_lost_segment_is_written_again():
    values, a, b = world(2)
    for i in range(300):
        put(values, a, index(i))
    segment = next(name for name in values if "/" in name and name.startswith("#"))
    del values[segment]
    assert len(names(b)) < 300
    a.wrote = 0  # a while later
    names(a)
    assert len(names(client.Directory(FakePool(values)))) == 300


def an_epoch_is_in_every_directory():
    values, a, b = world(2)
    put(values, b, index(1))
    put(values, a, "v1/e/00-1")
    names(b)
    del values["#%d" % a.place]
    assert names(client.Directory(FakePool(values)), "v1/e/") == ["v1/e/00-1"]


def a_place_that_was_left_is_taken_over():
    values, a, b = world(2)
    for i in range(300):
        put(values, a, index(i))
    del values[index(5)]
    a.close()
    put(values, b, index(1000))
    assert b.place == a.place
    assert names(b) == [index(i) for i in range(300) if i != 5] + [index(1000)]
    # One that was only frozen comes back: the one that sees the other's mark moves, and nothing is lost.
    put(values, a, index(2000))
    names(a)
    names(b)
    assert a.place != b.place
    for directory in (a, b):
        assert {index(1000), index(2000), index(4), index(299)} <= set(names(directory))
    c = client.Directory(FakePool(values))
    put(values, c, index(3000))
    assert c.place not in (a.place, b.place)
    age(b, 61)
    d = client.Directory(FakePool(values))
    put(values, d, index(4000))
    assert d.place == b.place


def names_of_what_was_evicted_go():
    values, a = world(1)
    for i in range(5000):
        put(values, a, index(i))
        values.pop(index(i - 100), None)
    assert len(names(a)) < 1000 and len([name for name in values if name.startswith("#")]) < 10


def places_are_bounded():
    values = {}
    before, client.Directory.PLACES = client.Directory.PLACES, 16
    try:
        directories = [client.Directory(FakePool(values)) for _ in range(17)]
        for i, directory in enumerate(directories[:16]):
            put(values, directory, index(i))
        assert len({directory.place for directory in directories[:16]}) == 16
        try:
            put(values, directories[16], index(16))
        except client.Failed as failed:
            assert "16 processes" in str(failed)
        else:
            raise AssertionError("a process too many has a directory")
        assert len(names(directories[16])) == 16
    finally:
        client.Directory.PLACES = before


def what_is_no_directory_is_passed_over():
    values, a, b = world(2)
    put(values, a, index(1))
    values["#100"] = b"another program's"
    values["#101"] = client.Directory._encoded(["no", "directory"])
    values["#102"] = client.Directory._encoded({"who": "x"})
    for place, wrong in enumerate(({"at": "x"}, {"few": [1]}, {"open": {}}, {"segments": 5}), 103):
        values["#%d" % place] = client.Directory._encoded(
            {"who": "x", "at": time.time() + 9, "few": [], "open": [], "segments": []} | wrong)
    values["#107"] = client.Directory._encoded(
        {"who": "x", "at": time.time() + 9, "few": [], "open": [], "segments": [1, 2]})
    values["#107/1"], values["#107/2"] = client.Directory._encoded([1]), client.Directory._encoded(5)
    put(values, b, index(2))
    assert names(a) == names(b) == [index(1), index(2)]


def what_inflates_to_any_size_is_passed_over():
    values, a, b = world(2)
    put(values, a, index(1))
    values["#100"] = zlib.compress(json.dumps({"who": "x" * (65 << 20), "at": time.time() + 9, "few": [], "open": [index(9)],
                                               "segments": []}).encode())
    values["#101"] = zlib.compress(b"[" * (1 << 20))  # deeper than the stack
    # 9 MiB of objects with one entry each take 300 MiB.
    values["#102"] = zlib.compress(b'{"who": "x", "at": 9e9, "few": [], "open": ["v1/i/zz"], "segments": [], "more": ['
                                   + b'{"":0},' * ((9 << 20) // 7) + b"0]}")
    assert names(a) == names(b) == [index(1)]


def as_many_epochs_as_a_host_believes_have_place():
    values, a, b = world(2)
    epochs = {"v1/e/%032x-%016x" % (n, 1) for n in range(131072)}
    a.few |= epochs
    a.segments = {(1 << 47) + n: [index(n)] for n in range(31250)}  # 4,000,000 names, 128 each
    a.open = [index(n) for n in range(40000, 40127)]
    put(values, a, index(50000))
    assert set(names(b, "v1/e/")) == epochs


def many_threads_add():
    values, a, b = world(2)
    some = [threading.Thread(target=lambda d=d, k=k: [put(values, d, index(k * 1000 + i)) for i in range(200)])
            for k, d in enumerate((a, a, b, b))]
    for thread in some:
        thread.start()
    for thread in some:
        thread.join()
    assert len(names(client.Directory(FakePool(values)))) == 800


CHECKS = (what_one_adds_all_list, what_one_removes_leaves, a_lost_directory_is_written_again, a_lost_segment_is_written_again,
          an_epoch_is_in_every_directory, a_place_that_was_left_is_taken_over, names_of_what_was_evicted_go,
          places_are_bounded, what_is_no_directory_is_passed_over, what_inflates_to_any_size_is_passed_over,
          as_many_epochs_as_a_host_believes_have_place, many_threads_add)
for check in CHECKS:
    check()
print("%d checks of directories" % len(CHECKS))
