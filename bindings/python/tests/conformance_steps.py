"""The step kinds of the conformance scenarios, one function each."""
from __future__ import annotations

import ctypes
import dataclasses
import mmap
import time
from pathlib import Path
from typing import Any, Optional

import libkvbm
from conformance import (
    Failure, Runner, Step, hex_keys, holds_of, ids_memory, keys_of, kind, number, options_of, part_of, rows_of,
    tokens_of,
)
from libkvbm import _native as raw
from libkvbm import _raw
from libkvbm.constants import status_names
from libkvbm.geometry import part_memory
from libkvbm.key import position_memory
from libkvbm.memory import statuses as status_memory

Results = dict[str, Any]
ROOM = 64


# ---- of the runner

@kind("release")
def release(r: Runner, a: Step) -> Results:
    it = a["it"]
    if hasattr(it, "release"):
        it.release()
    elif hasattr(it, "close") and not isinstance(it, mmap.mmap):
        it.close()
    return {}


@kind("memory.create")
def memory_create(r: Runner, a: Step) -> Results:
    return {"memory": mmap.mmap(-1, a["bytes"])}


@kind("memory.fill")
def memory_fill(r: Runner, a: Step) -> Results:
    for row, part in rows_of(view_of(a["memory"]), a):
        part[:] = r.pattern(a["seed"] + row, a["bytes"])
    return {}


@kind("memory.compare")
def memory_compare(r: Runner, a: Step) -> Results:
    for row, part in rows_of(view_of(a["memory"]), a):
        if part != r.pattern(a["seed"] + row, a["bytes"]):
            raise Failure(f"row {row} is not what was written")
    return {}


@kind("memory.clear")
def memory_clear(r: Runner, a: Step) -> Results:
    view = view_of(a["memory"])
    view[:] = bytes([a.get("value", 0)]) * view.nbytes
    return {}


@kind("file.write")
def file_write(r: Runner, a: Step) -> Results:
    Path(a["path"]).write_text(a["text"])
    return {}


# ---- devices, on the fake of their driver

class DevicePages:
    """Device memory, which is memory of the process: the steps of memory read and write it, tensors are its address."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.view = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def view_of(memory: Any) -> memoryview:
    return memory.view if isinstance(memory, DevicePages) else memoryview(memory)


@kind("device.memory")
def device_memory(r: Runner, a: Step) -> Results:
    return {"memory": DevicePages(r.fake.allocate(a["bytes"], a["device"]), a["bytes"])}


@kind("device.stream")
def device_stream(r: Runner, a: Step) -> Results:
    return {"stream": str(r.fake.stream(a["device"]))}


@kind("device.copy")
def device_copy(r: Runner, a: Step) -> Results:
    origin, to = a["from"], a["to"]
    if origin.size != to.size:
        raise Failure("the memories are not as large as each other")
    r.fake.copy_later(number(a["stream"]), to.address, origin.address, to.size)
    return {}


@kind("device.hold")
def device_hold(r: Runner, a: Step) -> Results:
    r.fake.hold(number(a["stream"]), bool(a["on"]))
    return {}


@kind("device.capture")
def device_capture(r: Runner, a: Step) -> Results:
    r.fake.capture(number(a["stream"]), bool(a["on"]))
    return {}


@kind("device.waits")
def device_waits(r: Runner, a: Step) -> Results:
    r.fake.apply(f"waits={a['on']}")
    return {}


@kind("device.synchronize")
def device_synchronize(r: Runner, a: Step) -> Results:
    r.fake.synchronize(number(a["stream"]))
    return {}


@kind("queue.events")
def queue_events(r: Runner, a: Step) -> Results:
    end = time.monotonic_ns() + a["timeout_ns"]
    events: list[libkvbm.Event] = []
    while True:
        events += a["queue"].poll_events(a["n"] - len(events))
        if len(events) >= a["n"] or time.monotonic_ns() >= end:
            return {"events": [named(event) for event in events]}
        time.sleep(0.001)


@kind("items.read")
def items_read(r: Runner, a: Step) -> Results:
    return {"items": list(a["items"]), "text": status_names(a["items"]).lower()}


@kind("show")
def show(r: Runner, a: Step) -> Results:
    return {"text": repr(a["it"])}


@kind("status.name")
def status_name(r: Runner, a: Step) -> Results:
    status = a["status"]
    band = -(-status // 100) if -699 <= status <= -100 else 0
    return {"name": raw.kvbm_status_name(status), "text": raw.kvbm_status_text(status), "band": band}


@kind("version")
def version(r: Runner, a: Step) -> Results:
    return {"number": raw.kvbm_version(), "text": raw.kvbm_version_string()}


# ---- context, queue

@kind("context.create")
def context_create(r: Runner, a: Step) -> Results:
    return {"context": libkvbm.Context(a.get("settings"), **options_of(a, "config_file", "threads"))}


@kind("context.config")
def context_config(r: Runner, a: Step) -> Results:
    return {"text": a["context"].config()}


@kind("config.reference")
def config_reference(r: Runner, a: Step) -> Results:
    return {"text": libkvbm.config_reference()}


@kind("queue.create")
def queue_create(r: Runner, a: Step) -> Results:
    return {"queue": libkvbm.Queue(a["context"], a["depth"])}


@kind("queue.wait")
def queue_wait(r: Runner, a: Step) -> Results:
    queue, n, timeout_ns = a["queue"], a["n"], a["timeout_ns"]
    end = time.monotonic_ns() + timeout_ns
    found = queue.poll(n)
    while len(found) < n and time.monotonic_ns() < end:
        found += queue.wait(end - time.monotonic_ns(), n - len(found))
    rows = [named(completion) for completion in found]
    for row in rows:
        row["operation"] = str(row["operation"])
        row["user_data"] = row["user_data"] or 0
    return {"completions": rows}


@kind("queue.cancel")
def queue_cancel(r: Runner, a: Step) -> Results:
    # An operation that was bound as a number: Operation.cancel is the same call.
    raw.kvbm_queue_cancel(a["queue"]._core.handle, number(a["operation"]))
    return {}


# ---- geometry, keys

@kind("geometry.create")
def geometry_create(r: Runner, a: Step) -> Results:
    components = [libkvbm.Component(**{"kind": 0, "element": 0, "layers": 0, "heads": 0, **item})
                  for item in a["components"]]
    geometry = libkvbm.Geometry(a["tokens_per_block"], components, units=a["units"])
    return {"geometry": geometry, "fingerprint": f"{geometry.fingerprint:016x}"}


@kind("geometry.record_bytes")
def geometry_record_bytes(r: Runner, a: Step) -> Results:
    shard = libkvbm.Shard(**a["shard"]) if "shard" in a else None
    a.get("shard")
    return {"bytes": a["geometry"].record_bytes(a["component"], shard)}


def extras_of(a: Step) -> Optional[list[Optional[bytes]]]:
    extras = a.get("extras")
    return None if extras is None else [bytes.fromhex(item) or None for item in extras]


@kind("key.chain")
def key_chain(r: Runner, a: Step) -> Results:
    keys = libkvbm.Keys.chain(a["namespace"], tokens_of(a["tokens"]), a["block_tokens"], extras=extras_of(a),
                              **options_of(a, previous=bytes.fromhex))
    return {"keys": hex_keys(keys), "n": len(keys)}


@kind("key.content")
def key_content(r: Runner, a: Step) -> Results:
    keys = libkvbm.Keys.content(a["namespace"], tokens_of(a["tokens"]), a["block_tokens"], extras=extras_of(a))
    return {"keys": hex_keys(keys), "n": len(keys)}


@kind("key.from_hashes")
def key_from_hashes(r: Runner, a: Step) -> Results:
    keys = libkvbm.Keys.from_hashes(a["namespace"], bytes.fromhex(a["hashes"]), a["hash_bytes"])
    return {"keys": hex_keys(keys)}


# ---- manager

@kind("manager.create")
def manager_create(r: Runner, a: Step) -> Results:
    tiers = [libkvbm.Tier(**tier) for tier in a["tiers"]] if "tiers" in a else None
    a.get("tiers")
    flags = a.get("flags", 0)
    if flags not in (0, raw.KVBM_MANAGER_SHARE):
        raise Failure("the layer has no such flag")
    return {"manager": libkvbm.Manager(a["context"], tiers=tiers, share=bool(flags), **options_of(
        a, "block_bytes", "host_capacity_bytes", "host_file", "policy"))}


@kind("manager.reset")
def manager_reset(r: Runner, a: Step) -> Results:
    a["manager"].reset()
    return {}


@kind("manager.flush")
def manager_flush(r: Runner, a: Step) -> Results:
    return {"status": a["manager"].flush(number(a["timeout_ns"]))}


@kind("manager.flush_durable")
def manager_flush_durable(r: Runner, a: Step) -> Results:
    return {"status": a["manager"].flush(number(a["timeout_ns"]), durable=True)}


@kind("manager.stats")
def manager_stats(r: Runner, a: Step) -> Results:
    stats = dataclasses.asdict(a["manager"].stats())
    tiers = [{**tier, "disabled": int(tier["disabled"])} for tier in stats["tiers"]]
    coding = [{**tier, "mode": int(tier["mode"]), "automatic": int(tier["automatic"]),
               "setting": int(tier["setting"]), "seals": int(tier["seals"])} for tier in stats["codec"]]
    return {**stats, "tiers": tiers, "codec": coding, "n_tiers": len(tiers)}


@kind("manager.metrics")
def manager_metrics(r: Runner, a: Step) -> Results:
    return {"text": a["manager"].metrics()}


@kind("manager.subscribe")
def manager_subscribe(r: Runner, a: Step) -> Results:
    a["manager"].subscribe(a.get("queue"))
    return {}


@kind("manager.scan")
def manager_scan(r: Runner, a: Step) -> Results:
    rows, cursor = [], 0
    while True:  # as Manager.scan, with pages of this size
        _, cursor, n, page = raw.kvbm_manager_scan(a["manager"]._handle, cursor, a["page"])
        if len(page) > a["page"] or n != len(page):
            raise Failure("the page is too long")
        rows += [named(libkvbm.ScanRow(*row[:3], libkvbm.TierNumber(row[3]), *row[4:])) for row in page]
        if cursor == 0:
            return {"rows": rows}


@kind("manager.nodes")
def manager_nodes(r: Runner, a: Step) -> Results:
    rows = [named(row) for row in a["manager"].nodes()]
    return {"n": len(rows), "rows": rows}


@kind("manager.devices")
def manager_devices(r: Runner, a: Step) -> Results:
    rows = [named(row) | {"lost": int(row.lost), "gathers": named(row.gathers), "scatters": named(row.scatters)}
            for row in a["manager"].devices()]
    return {"n": len(rows), "rows": rows}


@kind("manager.node_address")
def manager_node_address(r: Runner, a: Step) -> Results:
    return {"address": a["manager"].node_address()}


@kind("manager.wait_for_peers")
def manager_wait_for_peers(r: Runner, a: Step) -> Results:
    a["manager"].wait_for_peers(number(a["timeout_ns"]) / 1e9)
    return {}


@kind("manager.locate")
def manager_locate(r: Runner, a: Step) -> Results:
    rows = a["manager"].locate(a["namespace"], keys_of(a["keys"]), **options_of(
        a, "request_keys", parts=parts_of, ask_nodes_ns=number))
    return {"status": rows.status, "n": len(rows), "rows": [named(row) for row in rows]}


@kind("manager.share")
def manager_share(r: Runner, a: Step) -> Results:
    return named(a["manager"].share())


# ---- namespace

@kind("namespace.open")
def namespace_open(r: Runner, a: Step) -> Results:
    ns = libkvbm.Namespace(a["manager"], a["model"], **options_of(
        a, "tenant", "adapter", "geometry", "quota_bytes", "quota_mode", "codec", secret=bytes.fromhex, epoch=number,
        allow_lossy=bool, weak_hashes=bool))
    return {"namespace": ns, "id": ns.id.hex()}


@kind("namespace.id")
def namespace_id(r: Runner, a: Step) -> Results:
    return {"id": a["namespace"].id.hex()}


@kind("namespace.invalidate")
def namespace_invalidate(r: Runner, a: Step) -> Results:
    a["namespace"].invalidate()
    return {}


@kind("namespace.reset")
def namespace_reset(r: Runner, a: Step) -> Results:
    a["namespace"].reset()
    return {}


@kind("namespace.set_quota")
def namespace_set_quota(r: Runner, a: Step) -> Results:
    a["namespace"].set_quota(a["quota_bytes"], a["quota_mode"])
    return {}


# ---- blocks of a managed pool: single holds, through the raw layer

@kind("manager.allocate")
def manager_allocate(r: Runner, a: Step) -> Results:
    room = raw.Memory(ROOM * 16)
    _, ids, n = raw.kvbm_manager_allocate(a["manager"]._handle, a["namespace"]._handle, a["n"], room)
    evicted = libkvbm.Keys(memoryview(room)[:min(n, ROOM) * 16])
    return {"blocks": holds_of(ids), "n_evicted": n, "evicted": hex_keys(evicted)}


@kind("manager.complete")
def manager_complete(r: Runner, a: Step) -> Results:
    sizes = ids_memory(a["bytes"]) if a.get("bytes") is not None else None
    raw.kvbm_manager_complete(a["manager"]._handle, ids_memory(a["blocks"]), sizes)
    return {}


@kind("manager.register")
def manager_register(r: Runner, a: Step) -> Results:
    holds, keys = ids_memory(a["blocks"]), keys_of(a["keys"])
    if len(keys) != len(a["blocks"]):
        raise Failure("as many keys as blocks")
    items, part = status_memory(len(keys)), part_memory(part_of(a.get("part")))
    parent = keys_of([a["parent"]]) if a.get("parent") is not None else None
    options = _raw.kvbm_register_options_t()
    options.duplicates, options.unchained = a.get("duplicates", 0), a.get("unchained", 0)
    options.priority, options.item_status, options.part, options.parent = a.get("priority", 0), items, part, parent
    where = position_memory(positions_of(a["positions"]), len(keys)) if a.get("positions") is not None else None
    options.positions = where
    raw.kvbm_manager_register(a["manager"]._handle, a["namespace"]._handle, holds, keys, len(keys), options)
    return {"blocks": holds_of(holds), "items": list(memoryview(items))}


@kind("block.view")
def block_view(r: Runner, a: Step) -> Results:
    fill, compare = a.get("fill"), a.get("compare")
    holds = raw.Holds(a["manager"]._handle, ids_memory(a["blocks"]), fill is not None)
    try:
        views = holds.views(0, len(a["blocks"]))
        slots = holds.slots(0, len(a["blocks"]))
        sizes = [view.nbytes for view in views]
        for i, view in enumerate(views):
            if fill is not None:
                view[:] = r.pattern(fill + i, view.nbytes)
            if compare is not None and view != r.pattern(compare + i, view.nbytes):
                raise Failure(f"the bytes of block {i} are others")
    finally:
        view = views = None  # type: ignore[assignment]
        holds.take()  # the scenario owns the holds
    return {"bytes": sizes, "slots": slots}


def more_holds(name: str, call: Any) -> None:
    @kind(name)
    def more(r: Runner, a: Step) -> Results:
        made = holds_of(call(a["manager"]._handle, ids_memory(a["blocks"]))[1])
        return {"blocks": made, "present": sum(hold != 0 for hold in made)}


more_holds("block.clone", raw.kvbm_block_clone)
more_holds("block.downgrade", raw.kvbm_block_downgrade)
more_holds("block.upgrade", raw.kvbm_block_upgrade)


@kind("block.release")
def block_release(r: Runner, a: Step) -> Results:
    raw.kvbm_block_release(a["manager"]._handle, ids_memory(a["blocks"]))
    return {}


# ---- lookup and matches

def parts_of(values: list[dict[str, Any]]) -> list[Optional[libkvbm.Part]]:
    return [part_of(value) for value in values]


def lookup_arguments(a: Step) -> dict[str, Any]:
    return options_of(a, "mode", "host_only", "no_use", unit_keys=keys_of, ask_nodes_ns=number)


@kind("manager.lookup")
def manager_lookup(r: Runner, a: Step) -> Results:
    given = lookup_arguments(a) | options_of(a, parts=parts_of)
    match = a["manager"].lookup(a["namespace"], keys_of(a["keys"]), **given)
    return {"match": match or None, "n": match.hits}


@kind("match.items")
def match_items(r: Runner, a: Step) -> Results:
    match = a["match"]
    return {"count": len(match), "units": match.units, "items": [named(item) for item in match.items()]}


@kind("match.blocks")
def match_blocks(r: Runner, a: Step) -> Results:
    made = holds_of(raw.kvbm_match_blocks(a["match"]._handle, a.get("part", 0), a["first"], a["n"])[1])
    return {"blocks": made, "present": sum(hold != 0 for hold in made)}


# ---- attached caches

def tensor_of(value: dict[str, Any]) -> libkvbm.Tensor:
    memory, first, size = value["memory"], value.get("offset", 0), value["bytes"]
    if first + size > view_of(memory).nbytes:
        raise Failure("a tensor is outside its memory")
    data: Any = view_of(memory)[first:first + size]
    if isinstance(memory, DevicePages):
        data = libkvbm.DeviceMemory(memory.address + first, size)
    return libkvbm.Tensor(data, value.get("block_stride", 0), value.get("page_bytes", 0))


@kind("cache.attach")
def cache_attach(r: Runner, a: Step) -> Results:
    parts = [libkvbm.CachePart([tensor_of(tensor) for tensor in part["tensors"]], part["form"],
                               part_of(part) or libkvbm.Part()) for part in a["parts"]]
    where = options_of(a, "device", memory=libkvbm.MemoryKind)
    return {"cache": libkvbm.Cache(a["manager"], a["namespace"], a["n_blocks"], parts, **where)}


@kind("cache.lookup")
def cache_lookup(r: Runner, a: Step) -> Results:
    match = a["cache"].lookup(keys_of(a["keys"]), **lookup_arguments(a))
    return {"match": match or None, "n": match.hits}


def positions_of(values: list[dict[str, int]]) -> list[libkvbm.Position]:
    return [libkvbm.Position(value.get("first_token", 0), value.get("rotation", 0), value.get("left_context", 0))
            for value in values]


def submitted(a: Step, blocking: Any, submitting: Any) -> Results:
    queue, user_data = a.get("queue"), a.get("user_data", 0)
    if queue is None:
        outcome = blocking()
        return {"status": outcome.status, "items": outcome.item_status}
    operation = submitting(queue, user_data)
    return {"status": 0, "operation": str(operation.number), "items": operation.item_status}


@kind("cache.store")
def cache_store(r: Runner, a: Step) -> Results:
    keys = keys_of(a["keys"])
    given = options_of(a, "priority", "unchained", parent=bytes.fromhex, positions=positions_of, timeout_ns=number,
                       unit_keys=keys_of, stream=number)
    return submitted(a, lambda: a["cache"].store(keys, a["block_ids"], **given),
                     lambda queue, data: a["cache"].store_submit(keys, a["block_ids"], queue, user_data=data, **given))


@kind("cache.load")
def cache_load(r: Runner, a: Step) -> Results:
    given = options_of(a, "first_key", "any_position", "first_layer", "n_layers", "keep_below", positions=positions_of,
                       timeout_ns=number, compute_block_ns=number, stream=number, wait_layers=number)
    match = a.get("match")
    if match is None:
        match = a["cache"].lookup([])
    return submitted(a, lambda: a["cache"].load(match, a["block_ids"], **given),
                     lambda queue, data: a["cache"].load_submit(match, a["block_ids"], queue, user_data=data, **given))


@kind("cache.wait_layer")
def cache_wait_layer(r: Runner, a: Step) -> Results:
    # By a number, also one of no load: Cache.wait_layer takes the Operation.
    raw.kvbm_cache_wait_layer(a["cache"]._handle, number(a["operation"]), a["layer"], number(a["stream"]))
    return {}


# ---- care of blocks

@kind("manager.prefetch")
def manager_prefetch(r: Runner, a: Step) -> Results:
    manager, space, keys, part = a["manager"], a["namespace"], keys_of(a["keys"]), part_of(a.get("part"))
    queue, user_data = a.get("queue"), a.get("user_data", 0)
    if queue is None:
        return {"status": manager.prefetch(space, keys, part=part)}
    manager.prefetch_submit(space, keys, queue, part=part, user_data=user_data)
    return {"status": 0}


@kind("manager.offload")
def manager_offload(r: Runner, a: Step) -> Results:
    manager, space, keys, part = a["manager"], a["namespace"], keys_of(a["keys"]), part_of(a.get("part"))
    queue, user_data, tier = a.get("queue"), a.get("user_data", 0), a["tier"]
    if queue is None:
        return {"status": manager.offload(space, keys, tier, part=part)}
    manager.offload_submit(space, keys, queue, tier, part=part, user_data=user_data)
    return {"status": 0}


@kind("manager.drop")
def manager_drop(r: Runner, a: Step) -> Results:
    return {"n": a["manager"].drop(a["namespace"], keys_of(a["keys"]), part=part_of(a.get("part")))}


@kind("manager.hint")
def manager_hint(r: Runner, a: Step) -> Results:
    a["manager"].hint(a["namespace"], keys_of(a["keys"]), a["priority"], part=part_of(a.get("part")))
    return {}


@kind("manager.pin")
def manager_pin(r: Runner, a: Step) -> Results:
    pin = a["manager"].pin(a["namespace"], keys_of(a["keys"]), number(a["owner"]), number(a["timeout_ns"]),
                           part=part_of(a.get("part")))
    return {"pin": str(pin.number), "n": pin.keys}


@kind("manager.unpin")
def manager_unpin(r: Runner, a: Step) -> Results:
    a["manager"].unpin(libkvbm.Pin(number(a["pin"]), 0))
    return {}


@kind("manager.unpin_owner")
def manager_unpin_owner(r: Runner, a: Step) -> Results:
    return {"n": a["manager"].unpin_owner(number(a["owner"]))}


# ---- offers and sessions

RANGE = ("rank", "first_position", "begin", "end", "user_data")


@kind("offer.open")
def offer_open(r: Runner, a: Step) -> Results:
    return {"offer": libkvbm.Offer(a["cache"], bytes.fromhex(a["request"]), a["block_ids"], queue=a.get("queue"),
                                   **options_of(a, *RANGE, timeout_ns=number))}


@kind("offer.publish")
def offer_publish(r: Runner, a: Step) -> Results:
    a["offer"].publish(a["component"], a["first_layer"], a["n_layers"], a["begin"], a["end"])
    return {}


@kind("offer.publish_on_stream")
def offer_publish_on_stream(r: Runner, a: Step) -> Results:
    a["offer"].publish_on_stream(number(a["stream"]), a["component"], a["first_layer"], a["n_layers"], a["begin"],
                                 a["end"])
    return {}


@kind("offer.publish_all")
def offer_publish_all(r: Runner, a: Step) -> Results:
    a["offer"].publish_all()
    return {}


@kind("offer.abort")
def offer_abort(r: Runner, a: Step) -> Results:
    a["offer"].abort(a.get("reason"))
    return {}


def waited(ended: bool) -> Results:
    if not ended:
        raise libkvbm.errors.error_of(raw.KVBM_ERR_AGAIN)  # the layer returns False for this
    return {}


@kind("offer.wait")
def offer_wait(r: Runner, a: Step) -> Results:
    return waited(a["offer"].wait(number(a["timeout_ns"])))


@kind("session.open")
def session_open(r: Runner, a: Step) -> Results:
    sources = [libkvbm.Source(source["node"], source.get("rank", 0)) for source in a["sources"]]
    given = options_of(a, *RANGE, "ranks", "no_layers", "budget_bytes", timeout_ns=number, stream=number)
    return {"session": libkvbm.Session(a["cache"], bytes.fromhex(a["request"]), a["block_ids"], sources,
                                       queue=a.get("queue"), **given)}


@kind("session.wait")
def session_wait(r: Runner, a: Step) -> Results:
    return waited(a["session"].wait(number(a["timeout_ns"])))


@kind("session.wait_layer")
def session_wait_layer(r: Runner, a: Step) -> Results:
    return waited(a["session"].wait_layer(a["layer"], a["component"], number(a["timeout_ns"])))


@kind("session.abort")
def session_abort(r: Runner, a: Step) -> Results:
    a["session"].abort(a.get("reason"))
    return {}


def named(row: Any) -> dict[str, Any]:
    """A named tuple as an object of JSON, and as text."""
    members = {name: value.hex() if isinstance(value, bytes) else value for name, value in row._asdict().items()}
    return members | {"text": repr(row).lower()}


# ---- coding of buffers

@kind("codec.mode")
def codec_mode(r: Runner, a: Step) -> Results:
    return {"mode": int(libkvbm.codec.mode_by_name(a["name"]))}


@kind("codec.encode")
def codec_encode(r: Runner, a: Step) -> Results:
    raw_bytes = bytes.fromhex(a["raw"]) if "raw" in a else r.pattern(a["seed"], a["bytes"])
    coded = libkvbm.codec.encode(raw_bytes, a["mode"], **options_of(a, "element", "rows"), row=a.get("row_elements", 0))
    return {"coded": coded.hex(), "n": len(coded)}


@kind("codec.inspect")
def codec_inspect(r: Runner, a: Step) -> Results:
    info = libkvbm.codec.inspect(bytes.fromhex(a["coded"]))
    named_fields = {name: int(value) for name, value in info._asdict().items()}
    return {**named_fields, "row_elements": named_fields.pop("row")}


@kind("codec.decode")
def codec_decode(r: Runner, a: Step) -> Results:
    raw_bytes = libkvbm.codec.decode(bytes.fromhex(a["coded"]), allow_lossy=bool(a.get("allow_lossy", 0)))
    return {"raw": raw_bytes.hex(), "n": len(raw_bytes)}


def coded_as(a: Step) -> dict[str, Any]:
    return {**options_of(a, "part", "element", "rows"), "row": a.get("row_elements", 0)}


@kind("cache.code_room")
def cache_code_room(r: Runner, a: Step) -> Results:
    return {"bytes": a["cache"].code_room(a["n_blocks"], **coded_as(a))}


@kind("cache.encode")
def cache_encode(r: Runner, a: Step) -> Results:
    ids, mode, how = a["block_ids"], a["mode"], {**coded_as(a), **options_of(a, stream=number)}
    if "capacity" in a:
        into = bytearray(a["capacity"])
        coded = bytes(into[:a["cache"].encode(ids, mode, into=into, **how)])
    else:
        coded = a["cache"].encode(ids, mode, **how)
    return {"coded": coded.hex(), "n": len(coded)}


@kind("cache.decode")
def cache_decode(r: Runner, a: Step) -> Results:
    coded = bytes.fromhex(a["coded"])
    if "coded_bytes" in a:
        if a["coded_bytes"] > len(coded):
            raise Failure("coded_bytes is more than there are")
        coded = coded[:a["coded_bytes"]]
    a["cache"].decode(coded, a["block_ids"], allow_lossy=bool(a.get("allow_lossy", 0)), **coded_as(a),
                      **options_of(a, stream=number))
    return {}
