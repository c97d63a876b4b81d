// SPDX-License-Identifier: Apache-2.0
//! Queues and submissions to them, through the raw layer: scenarios see user_data and the order of completions.

use std::ffi::{c_void, CString};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use libkvbm::{sys, Completion, Error, Event, Key, Offer, Position, Queue, Session, Shard, Status, Stream};
use serde_json::{json, Value};

use crate::cache_steps::{load_options, offer_options, session_options, sources, store_options};
use crate::objects::{results, shown, Call, Known, Object, Objects, RawQueue};
use crate::value::hex;
use crate::Failure;

fn keys(list: &[Key]) -> *const sys::kvbm_key_t {
    list.as_ptr().cast()
}
fn positions(list: &[Position]) -> *const sys::kvbm_position_t {
    if list.is_empty() {
        std::ptr::null()
    } else {
        list.as_ptr().cast()
    }
}
fn stream(given: Option<Stream>) -> *mut c_void {
    given.map_or(std::ptr::null_mut(), Stream::as_raw)
}
/// Of a call without a kvbm_error_t, which was made just now: what kvbm_error_last says.
fn checked(status: i32) -> Result<(), Failure> {
    if status >= 0 {
        return Ok(());
    }
    Err(Error::of_last_call(Status(status)).into())
}
fn nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(sys::KVBM_FOREVER, |t| t.as_nanos() as u64)
}
/// A call that takes a kvbm_error_t; a failure of it through the status alone would lose its message.
fn explained(call: impl FnOnce(*mut sys::kvbm_error_t) -> i32) -> Result<(), Failure> {
    let mut err = sys::kvbm_error_t { status: 0, reserved: 0, message: [0; 504] };
    Ok(Status(call(&mut err)).check().map(drop)?)
}

/// Statuses that stay where they are: the library may write them at any time until the completion.
fn item_slots(n: usize) -> &'static [AtomicI32] {
    Box::leak((0..n).map(|_| AtomicI32::new(0)).collect())
}

fn completion(c: &sys::kvbm_completion_t) -> Value {
    let text = shown(&Completion {
        op: c.op.into(),
        status: Status(c.status),
        items_done: c.items_done,
        items: c.items,
        bytes: c.bytes,
        wait: Duration::from_nanos(c.wait_ns),
        service: Duration::from_nanos(c.service_ns),
        item_status: Vec::new(),
    });
    json!({"user_data": c.user_data, "operation": c.operation.to_string(), "op": c.op, "status": c.status,
           "items_done": c.items_done, "items": c.items, "bytes": c.bytes,
           "text": text})
}

fn event(e: &sys::kvbm_event_t) -> Value {
    json!({"sequence": e.sequence, "kind": e.kind, "tier": e.tier, "namespace_id": hex(&e.namespace_id),
           "key": hex(&e.key.bytes), "parent": hex(&e.parent.bytes), "component": e.component,
           "text": shown(&Event::from(e))})
}

// SAFETY of the calls below: handles come from live objects of the scenario, lists have the length that is given with
// them, and what the library writes later is leaked.

impl Objects {
    pub fn raw_step(&mut self, kind: &str, call: &Call) -> Known {
        match kind {
            "queue.create" => {
                let context = self.context(call, "context")?;
                let (mut raw, depth) = (std::ptr::null_mut(), call.u32_or("depth", 0)?);
                explained(|err| unsafe { sys::kvbm_queue_create(context.as_raw(), depth, &mut raw, err) })?;
                let text = format!("{:?}", Queue::new(context, depth)?);
                let queue = self.add(Object::Queue(RawQueue(raw, text)));
                results(json!({ "queue": queue }))
            }
            "queue.wait" => self.wait(call),
            "queue.events" => self.events(call),
            "queue.cancel" => {
                let (queue, operation) = (self.queue(call, "queue")?.0, call.number("operation")?);
                checked(unsafe { sys::kvbm_queue_cancel(queue, operation) })?;
                results(Value::Null)
            }
            "manager.subscribe" => {
                let queue = call.get("queue").map(|_| self.queue(call, "queue")).transpose()?;
                let queue = queue.map_or(std::ptr::null_mut(), |q| q.0);
                checked(unsafe { sys::kvbm_manager_subscribe(self.manager(call, "manager")?.as_raw(), queue) })?;
                results(Value::Null)
            }
            "items.read" => match call.need("items")?.get("@statuses") {
                Some(list) => {
                    let numbers = list.as_array().into_iter().flatten().filter_map(Value::as_i64);
                    let read: Vec<Status> = numbers.map(|n| Status(n as i32)).collect();
                    results(json!({ "items": list, "text": shown(&read) }))
                }
                None => {
                    let read: Vec<i32> = self.items(call, "items")?.iter().map(|i| i.load(Ordering::SeqCst)).collect();
                    let text = shown(&read.iter().copied().map(Status).collect::<Vec<_>>());
                    results(json!({ "items": read, "text": text }))
                }
            },
            "cache.store" => self.store(call),
            "cache.load" => self.load(call),
            // By a number, also one of no load: Cache::wait_layer takes the operation.
            "cache.wait_layer" => {
                let cache = self.cache(call, "cache")?.as_raw();
                let (operation, layer) = (call.number("operation")?, call.u32_or("layer", 0)?);
                let waiting = call.number("stream")? as usize as *mut c_void;
                checked(unsafe { sys::kvbm_cache_wait_layer(cache, operation, layer, waiting) })?;
                results(Value::Null)
            }
            "manager.prefetch" | "manager.offload" => self.care(kind, call),
            "offer.open" => self.open_offer(call),
            "session.open" => self.open_session(call),
            _ => Ok(None),
        }
    }

    fn wait(&self, call: &Call) -> Known {
        let (queue, n, timeout) =
            (self.queue(call, "queue")?.0, call.number("n")? as usize, call.number("timeout_ns")?);
        let mut taken: Vec<Value> = Vec::new();
        let mut room = vec![sys::kvbm_completion_t::default(); n.min(65536)];
        let until = Instant::now() + Duration::from_nanos(timeout);
        loop {
            let left = until.saturating_duration_since(Instant::now()).as_nanos() as u64;
            let capacity = n - taken.len();
            let came = match timeout {
                0 => unsafe { sys::kvbm_queue_poll(queue, room.as_mut_ptr(), capacity) },
                _ => unsafe { sys::kvbm_queue_wait(queue, room.as_mut_ptr(), capacity, left) },
            };
            taken.extend(room[..came].iter().map(completion));
            if timeout == 0 || left == 0 || taken.len() >= n {
                return results(json!({ "completions": taken }));
            }
        }
    }

    fn events(&self, call: &Call) -> Known {
        let (queue, n, timeout) =
            (self.queue(call, "queue")?.0, call.number("n")? as usize, call.number("timeout_ns")?);
        let mut taken: Vec<Value> = Vec::new();
        let mut room = vec![sys::kvbm_event_t::default(); n.min(65536)];
        let until = Instant::now() + Duration::from_nanos(timeout);
        loop {
            let came = unsafe { sys::kvbm_queue_poll_events(queue, room.as_mut_ptr(), n - taken.len()) };
            taken.extend(room[..came].iter().map(event));
            if taken.len() >= n || Instant::now() >= until {
                return results(json!({ "events": taken }));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn submitted(&mut self, status: i32, operation: u64, items: &'static [AtomicI32]) -> Known {
        checked(status)?;
        let items = self.add(Object::Items(items));
        results(json!({"status": status, "operation": operation.to_string(), "items": items}))
    }

    fn store(&mut self, call: &Call) -> Known {
        let (given, list, ids) = (store_options(call)?, call.keys("keys")?, call.numbers::<u32>("block_ids")?);
        let items = item_slots(list.len());
        let operation: &'static mut u64 = Box::leak(Box::new(0));
        let options = sys::kvbm_store_options_t {
            struct_size: std::mem::size_of::<sys::kvbm_store_options_t>() as u32,
            priority: given.priority as u32,
            parent: given.parent.as_ref().map_or(std::ptr::null(), |k| keys(std::slice::from_ref(k))),
            unchained: given.unchained.into(),
            reserved: 0,
            positions: positions(&given.positions),
            timeout_ns: nanoseconds(given.timeout),
            item_status: items.as_ptr().cast_mut().cast(),
            out_operation: operation,
            unit_keys: if given.unit_keys.is_empty() { std::ptr::null() } else { keys(&given.unit_keys) },
            stream: stream(given.stream),
            has_stream: given.stream.is_some().into(),
            ..Default::default()
        };
        let (cache, queue) = (self.cache(call, "cache")?.as_raw(), self.queue(call, "queue")?.0);
        let user_data = call.number_or("user_data", 0)?;
        let status =
            unsafe { sys::kvbm_cache_store(cache, keys(&list), ids.as_ptr(), list.len(), &options, queue, user_data) };
        self.submitted(status, *operation, items)
    }

    fn load(&mut self, call: &Call) -> Known {
        let (given, ids) = (load_options(call)?, call.numbers::<u32>("block_ids")?);
        let items = item_slots(ids.len());
        let operation: &'static mut u64 = Box::leak(Box::new(0));
        let options = sys::kvbm_load_options_t {
            struct_size: std::mem::size_of::<sys::kvbm_load_options_t>() as u32,
            first_key: given.first_key,
            any_position: given.any_position.into(),
            first_layer: given.first_layer,
            n_layers: given.n_layers,
            keep_below: given.keep_below.into(),
            compute_block_ns: given.compute_block.map_or(0, |t| nanoseconds(Some(t))),
            positions: positions(&given.positions),
            timeout_ns: nanoseconds(given.timeout),
            item_status: items.as_ptr().cast_mut().cast(),
            out_operation: operation,
            stream: stream(given.stream),
            has_stream: given.stream.is_some().into(),
            wait_layers: given.wait_layers as u32,
        };
        let cache = self.cache(call, "cache")?;
        let nothing = call.get("match").map_or(true, Value::is_null);
        let found = if nothing { std::ptr::null_mut() } else { self.found(call, "match")?.as_raw() };
        let queue = self.queue(call, "queue")?.0;
        let user_data = call.number_or("user_data", 0)?;
        let n = ids.len() / cache.n_parts();
        let status =
            unsafe { sys::kvbm_cache_load(cache.as_raw(), found, ids.as_ptr(), n, &options, queue, user_data) };
        self.submitted(status, *operation, items)
    }

    fn care(&mut self, kind: &str, call: &Call) -> Known {
        let (manager, ns) = (self.manager(call, "manager")?.as_raw(), self.namespace(call, "namespace")?.as_raw());
        let (part, list, queue) = (call.part("part")?, call.keys("keys")?, self.queue(call, "queue")?.0);
        let Shard { first_layer, layers, first_head, heads, replicated } = part.shard;
        let shard = sys::kvbm_shard_t {
            first_layer,
            layers,
            first_head,
            heads,
            replicated: replicated.into(),
            reserved: [0; 3],
        };
        let part = sys::kvbm_part_t { component: part.component, reserved: 0, shard };
        let (user_data, n) = (call.number_or("user_data", 0)?, list.len());
        let status = if kind == "manager.prefetch" {
            unsafe { sys::kvbm_manager_prefetch(manager, ns, &part, keys(&list), n, queue, user_data) }
        } else {
            let tier = call.u32_or("tier", 0)?;
            unsafe { sys::kvbm_manager_offload(manager, ns, &part, keys(&list), n, tier, queue, user_data) }
        };
        checked(status)?;
        results(json!({ "status": status }))
    }

    fn open_offer(&mut self, call: &Call) -> Known {
        let (given, ids) = (offer_options(call)?, call.numbers::<u32>("block_ids")?);
        let (cache, queue) = (self.cache(call, "cache")?, self.queue(call, "queue")?.0);
        let request = sys::kvbm_request_id_t { bytes: call.sixteen("request")? };
        let (user_data, n, mut raw) =
            (call.number_or("user_data", 0)?, ids.len() / cache.n_parts(), std::ptr::null_mut());
        let options = sys::kvbm_offer_options_t {
            struct_size: std::mem::size_of::<sys::kvbm_offer_options_t>() as u32,
            rank: given.rank,
            first_position: given.first_position,
            begin: given.begin,
            end: given.end,
            timeout_ns: given.timeout.map_or(60_000_000_000, |t| t.as_nanos() as u64),
        };
        explained(|err| unsafe {
            sys::kvbm_offer_open(cache.as_raw(), &request, ids.as_ptr(), n, &options, queue, user_data, &mut raw, err)
        })?;
        // SAFETY: opened just now with a raw queue.
        let offer = unsafe { Offer::from_raw(raw, cache, &ids, given.first_position) }?;
        let offer = self.add(Object::Offer(offer));
        results(json!({ "offer": offer }))
    }

    fn open_session(&mut self, call: &Call) -> Known {
        let (given, ids) = (session_options(call)?, call.numbers::<u32>("block_ids")?);
        let (cache, queue) = (self.cache(call, "cache")?, self.queue(call, "queue")?.0);
        let request = sys::kvbm_request_id_t { bytes: call.sixteen("request")? };
        let sources = sources(call)?;
        let names: Vec<CString> = sources.iter().filter_map(|s| CString::new(s.node.as_str()).ok()).collect();
        let list: Vec<_> = sources
            .iter()
            .zip(&names)
            .map(|(s, name)| sys::kvbm_source_t { node: name.as_ptr(), rank: s.rank, reserved: 0 })
            .collect();
        let options = sys::kvbm_session_options_t {
            struct_size: std::mem::size_of::<sys::kvbm_session_options_t>() as u32,
            rank: given.rank,
            ranks: given.ranks,
            no_layers: given.no_layers.into(),
            first_position: given.first_position,
            begin: given.begin,
            end: given.end,
            timeout_ns: given.timeout.map_or(60_000_000_000, |t| t.as_nanos() as u64),
            budget_bytes: given.budget_bytes,
            stream: stream(given.stream),
            has_stream: given.stream.is_some().into(),
            ..Default::default()
        };
        let (user_data, n, mut raw) =
            (call.number_or("user_data", 0)?, ids.len() / cache.n_parts(), std::ptr::null_mut());
        explained(|err| unsafe {
            let (ids, sources) = (ids.as_ptr(), list.as_ptr());
            sys::kvbm_session_open(
                cache.as_raw(),
                &request,
                ids,
                n,
                sources,
                list.len(),
                &options,
                queue,
                user_data,
                &mut raw,
                err,
            )
        })?;
        // SAFETY: opened just now with a raw queue; scenarios leave its blocks alone.
        let session = unsafe { Session::from_raw(raw, cache) }?;
        let session = self.add(Object::Session(session));
        results(json!({ "session": session }))
    }
}
