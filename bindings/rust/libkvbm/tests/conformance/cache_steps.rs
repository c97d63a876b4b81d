// SPDX-License-Identifier: Apache-2.0
//! Steps of attached caches, of care, and of offers and sessions. Those with a queue are submitted in `raw_steps`.

use std::time::Duration;

use libkvbm::{
    Cache, Form, LoadOptions, Offer, OfferOptions, Outcome, Pin, Position, RawPart, RawTensor, RequestId, Session,
    SessionOptions, Source, StoreOptions,
};
use serde_json::{json, Value};

use crate::device_steps::{memory_kind, stream_of};
use crate::objects::{field, part, results, statuses, Call, Known, Object, Objects};
use crate::pool_steps::lookup_options;
use crate::Failure;

pub(crate) fn positions(call: &Call) -> Result<Vec<Position>, String> {
    let one = |p: &Value| {
        Ok(Position {
            first_token: field(p, "first_token")?,
            rotation: field(p, "rotation")?,
            left_context: field(p, "left_context")?,
        })
    };
    call.list("positions")?.iter().map(one).collect()
}

pub fn store_options(call: &Call) -> Result<StoreOptions, Failure> {
    Ok(StoreOptions {
        priority: call.enumerated("priority")?,
        parent: call.key("parent")?,
        unchained: call.flag("unchained")?,
        positions: positions(call)?,
        timeout: call.timeout("timeout_ns")?,
        unit_keys: call.keys("unit_keys")?,
        stream: stream_of(call)?,
    })
}

pub fn load_options(call: &Call) -> Result<LoadOptions, Failure> {
    Ok(LoadOptions {
        first_key: call.u32_or("first_key", 0)?,
        any_position: call.flag("any_position")?,
        first_layer: call.u32_or("first_layer", 0)?,
        n_layers: call.u32_or("n_layers", 0)?,
        keep_below: call.flag("keep_below")?,
        positions: positions(call)?,
        timeout: call.timeout("timeout_ns")?,
        compute_block: Some(call.number_or("compute_block_ns", 0)?).filter(|ns| *ns != 0).map(Duration::from_nanos),
        stream: stream_of(call)?,
        wait_layers: call.enumerated("wait_layers")?,
    })
}

pub fn sources(call: &Call) -> Result<Vec<Source>, String> {
    let one = |s: &Value| {
        let node = s.get("node").and_then(Value::as_str).ok_or("a source has a node")?.to_string();
        Ok(Source { node, rank: field(s, "rank")? as u32 })
    };
    call.list("sources")?.iter().map(one).collect()
}

pub fn session_options(call: &Call) -> Result<SessionOptions, Failure> {
    Ok(SessionOptions {
        rank: call.u32_or("rank", 0)?,
        ranks: call.u32_or("ranks", 0)?,
        no_layers: call.flag("no_layers")?,
        first_position: call.number_or("first_position", 0)?,
        begin: call.number_or("begin", 0)?,
        end: call.number_or("end", 0)?,
        timeout: call.timeout("timeout_ns")?,
        budget_bytes: call.number_or("budget_bytes", 0)?,
        stream: stream_of(call)?,
    })
}

pub fn offer_options(call: &Call) -> Result<OfferOptions, Failure> {
    Ok(OfferOptions {
        rank: call.u32_or("rank", 0)?,
        first_position: call.number_or("first_position", 0)?,
        begin: call.number_or("begin", 0)?,
        end: call.number_or("end", 0)?,
        timeout: call.timeout("timeout_ns")?,
    })
}

fn outcome(done: Outcome) -> Known {
    results(json!({"status": done.status.0, "items": {"@statuses": statuses(&done.item_status)}}))
}

impl Objects {
    fn attach(&mut self, call: &Call) -> Known {
        let mut parts = Vec::new();
        for given in call.list("parts")? {
            let mut tensors = Vec::new();
            for tensor in given.get("tensors").and_then(Value::as_array).ok_or("no tensors".to_string())? {
                let memory = self.memory_of(tensor.get("memory").unwrap_or(&Value::Null))?;
                let (offset, bytes) = (field(tensor, "offset")?, field(tensor, "bytes")?);
                if offset.saturating_add(bytes) > memory.layout.size() as u64 {
                    return Err(Failure::Wrong("the tensor lies outside of its memory".into()));
                }
                tensors.push(RawTensor {
                    // SAFETY: within the memory, as checked.
                    data: unsafe { memory.data.add(offset as usize) },
                    bytes,
                    block_stride: field(tensor, "block_stride")?,
                    page_bytes: field(tensor, "page_bytes")?,
                });
            }
            parts.push(RawPart { part: part(&given)?, form: Form::try_from(field(&given, "form")? as u32)?, tensors });
        }
        let (manager, ns) = (self.manager(call, "manager")?, self.namespace(call, "namespace")?);
        let (n_blocks, place) = (call.u32_or("n_blocks", 0)?, memory_kind(call)?);
        // SAFETY: the memory is released after the cache; scenarios do not touch blocks that operations use.
        let cache = unsafe { Cache::attach_in(manager, ns, n_blocks, &parts, place, None) }?;
        let cache = self.add(Object::Cache(cache));
        results(json!({ "cache": cache }))
    }

    pub fn cache_step(&mut self, kind: &str, call: &Call) -> Known {
        let queued = call.get("queue").is_some();
        match kind {
            "cache.attach" => self.attach(call),
            "cache.lookup" => {
                let found = self.cache(call, "cache")?.lookup(&call.keys("keys")?, &lookup_options(call)?)?;
                self.add_match(found)
            }
            "cache.store" if !queued => {
                call.get("user_data");
                let cache = self.cache(call, "cache")?;
                outcome(cache.store(&call.keys("keys")?, &call.numbers("block_ids")?, &store_options(call)?)?)
            }
            "cache.load" if !queued => {
                call.get("user_data");
                let cache = self.cache(call, "cache")?;
                let nothing = cache.lookup(&[], &libkvbm::LookupOptions::default())?;
                let found =
                    if call.get("match").map_or(true, Value::is_null) { &nothing } else { self.found(call, "match")? };
                outcome(cache.load(found, &call.numbers("block_ids")?, &load_options(call)?)?)
            }
            "cache.code_room" | "cache.encode" | "cache.decode" => self.block_coding_step(kind, call),
            _ if kind.starts_with("manager.") && !queued => self.care_step(kind, call),
            _ if kind.starts_with("offer.") || kind.starts_with("session.") => self.session_step(kind, call, queued),
            _ => Ok(None),
        }
    }

    fn care_step(&mut self, kind: &str, call: &Call) -> Known {
        let manager = self.manager(call, "manager")?;
        match kind {
            "manager.unpin" => {
                manager.unpin(Pin(call.number("pin")?))?;
                return results(Value::Null);
            }
            "manager.unpin_owner" => return results(json!({"n": manager.unpin_owner(call.number("owner")?)?})),
            "manager.prefetch" | "manager.offload" | "manager.drop" | "manager.hint" | "manager.pin" => {}
            _ => return Ok(None),
        }
        let (ns, part, keys) = (self.namespace(call, "namespace")?, call.part("part")?, call.keys("keys")?);
        call.get("user_data");
        match kind {
            "manager.prefetch" => results(json!({"status": manager.prefetch(ns, part, &keys)?.0})),
            "manager.offload" => {
                results(json!({"status": manager.offload(ns, part, &keys, call.u32_or("tier", 0)?)?.0}))
            }
            "manager.drop" => results(json!({"n": manager.drop_keys(ns, part, &keys)?})),
            "manager.hint" => {
                manager.hint(ns, part, &keys, call.enumerated("priority")?)?;
                results(Value::Null)
            }
            _ => {
                let pinned = manager.pin(ns, part, &keys, call.number("owner")?, call.timeout("timeout_ns")?)?;
                let (pin, n) = pinned.unwrap_or((Pin(0), 0));
                results(json!({"pin": pin.0.to_string(), "n": n}))
            }
        }
    }

    fn session_step(&mut self, kind: &str, call: &Call, queued: bool) -> Known {
        let wait = |call: &Call| call.timeout("timeout_ns").map(|t| t.or(Some(Duration::ZERO)));
        match kind {
            "offer.open" if !queued => {
                call.get("user_data");
                let (cache, ids) = (self.cache(call, "cache")?, call.numbers("block_ids")?);
                let offer = Offer::open(cache, RequestId(call.sixteen("request")?), &ids, &offer_options(call)?, None)?;
                let offer = self.add(Object::Offer(offer));
                return results(json!({ "offer": offer }));
            }
            "session.open" if !queued => {
                call.get("user_data");
                let (cache, ids) = (self.cache(call, "cache")?, call.numbers("block_ids")?);
                let (request, options) = (RequestId(call.sixteen("request")?), session_options(call)?);
                let session = Session::open(cache, request, &ids, &sources(call)?, &options, None)?;
                let session = self.add(Object::Session(session));
                return results(json!({ "session": session }));
            }
            "offer.publish" => self.offer(call, "offer")?.publish(
                call.u32_or("component", 0)?,
                call.u32_or("first_layer", 0)?,
                call.u32_or("n_layers", 0)?,
                call.number_or("begin", 0)?,
                call.number_or("end", 0)?,
            )?,
            "offer.publish_on_stream" => self.offer(call, "offer")?.publish_on_stream(
                call.u32_or("component", 0)?,
                call.u32_or("first_layer", 0)?,
                call.u32_or("n_layers", 0)?,
                call.number_or("begin", 0)?,
                call.number_or("end", 0)?,
                stream_of(call)?.ok_or("no argument stream".to_string())?,
            )?,
            "offer.publish_all" => self.offer(call, "offer")?.publish_all()?,
            "offer.abort" => self.offer(call, "offer")?.abort(&call.text("reason").unwrap_or_default())?,
            "offer.wait" => self.offer(call, "offer")?.wait(wait(call)?)?,
            "session.wait" => self.session(call, "session")?.wait(wait(call)?)?,
            "session.wait_layer" => {
                let (component, layer) = (call.u32_or("component", 0)?, call.u32_or("layer", 0)?);
                self.session(call, "session")?.wait_layer(component, layer, wait(call)?)?;
            }
            "session.abort" => self.session(call, "session")?.abort(&call.text("reason").unwrap_or_default())?,
            _ => return Ok(None),
        }
        results(Value::Null)
    }
}
