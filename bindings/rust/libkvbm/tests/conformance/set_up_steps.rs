// SPDX-License-Identifier: Apache-2.0
//! Steps of the runner itself, of contexts, geometries, keys, managers and namespaces.

use std::alloc::{alloc_zeroed, Layout};

use libkvbm::{
    config_reference, sys, version, Component, Context, ContextOptions, Error, Geometry, LocateOptions, Manager,
    ManagerOptions, Namespace, NamespaceOptions, Status, Tier, TierPlace,
};
use serde_json::{json, Map, Value};

use crate::device_steps::devices;
use crate::objects::{field, part, results, shard, shown, Call, Known, Memory, Object, Objects};
use crate::value::{hex, pattern, unhex};
use crate::Failure;

fn text_member(object: &Value, name: &str) -> Option<String> {
    object.get(name).and_then(Value::as_str).map(str::to_string)
}

fn member<T: TryFrom<u32, Error = Error>>(object: &Value, name: &str) -> Result<T, Failure> {
    Ok(T::try_from(field(object, name)? as u32)?)
}

/// Where each row of memory.fill begins.
fn rows(call: &Call) -> Result<Vec<usize>, String> {
    let mut offsets = vec![call.number_or("offset", 0)? as usize];
    for dim in call.list("dims")? {
        let pair = dim.as_array().filter(|p| p.len() == 2).ok_or("a dim is [count, stride]")?;
        let (count, stride) = (crate::objects::number(&pair[0])? as usize, crate::objects::number(&pair[1])? as usize);
        offsets = offsets.iter().flat_map(|at| (0..count).map(move |i| at + i * stride)).collect();
    }
    Ok(offsets)
}

impl Objects {
    fn memory_step(&mut self, kind: &str, call: &Call) -> Known {
        if kind == "memory.create" {
            let layout =
                Layout::from_size_align(call.number("bytes")?.max(1) as usize, 4096).map_err(|e| e.to_string())?;
            // SAFETY: the size is not zero.
            let data = unsafe { alloc_zeroed(layout) };
            let memory = self.add(Object::Memory(Memory { data, layout, owned: true }));
            return results(json!({ "memory": memory }));
        }
        let memory = self.memory(call, "memory")?;
        if kind == "memory.clear" {
            let value = call.number_or("value", 0)? as u8;
            // SAFETY: all of the memory; scenarios do so while nothing else uses it.
            unsafe { memory.data.write_bytes(value, memory.layout.size()) };
            return results(Value::Null);
        }
        let (bytes, seed) = (call.number("bytes")? as usize, call.number("seed")? as u32);
        for (row, at) in rows(call)?.into_iter().enumerate() {
            if at + bytes > memory.layout.size() {
                return Err(format!("row {row} at {at} lies outside of the memory").into());
            }
            for j in 0..bytes {
                let wanted = pattern(seed.wrapping_add(row as u32), j as u32);
                // SAFETY: within the memory, as checked.
                let byte = unsafe { &mut *memory.data.add(at + j) };
                if kind == "memory.fill" {
                    *byte = wanted;
                } else if *byte != wanted {
                    return Err(format!("byte {j} of row {row} is {byte:02x}, not {wanted:02x}").into());
                }
            }
        }
        results(Value::Null)
    }

    fn runner_step(&mut self, kind: &str, call: &Call) -> Known {
        match kind {
            "release" => {
                self.release(call.need("it")?)?;
                results(Value::Null)
            }
            "file.write" => {
                let (path, text) =
                    (call.text("path").ok_or("no path".to_string())?, call.text("text").unwrap_or_default());
                std::fs::write(&path, text).map_err(|e| format!("{path}: {e}"))?;
                results(Value::Null)
            }
            "show" => results(json!({ "text": self.text(call.need("it")?)? })),
            "status.name" => {
                let number = call.need("status")?.as_i64().ok_or("a status is a number".to_string())?;
                let status = Status(number as i32);
                let band = match number {
                    -699..=-100 => number / 100,
                    _ => 0,
                };
                results(json!({"name": status.name(), "text": status.text(), "band": band}))
            }
            "version" => {
                // SAFETY: no arguments.
                let number = unsafe { sys::kvbm_version() };
                results(json!({"number": number, "text": version()}))
            }
            _ => Ok(None),
        }
    }

    pub fn set_up_step(&mut self, kind: &str, call: &Call) -> Known {
        match kind.split('.').next() {
            Some("codec") => crate::codec_steps::codec_step(kind, call),
            Some("memory") => self.memory_step(kind, call),
            Some("device") => self.device_step(kind, call),
            Some("context" | "config") => self.context_step(kind, call),
            Some("geometry") => self.geometry_step(kind, call),
            Some("key") => self.key_step(kind, call),
            Some("namespace") => self.namespace_step(kind, call),
            Some("manager") => self.manager_step(kind, call),
            _ => self.runner_step(kind, call),
        }
    }

    fn context_step(&mut self, kind: &str, call: &Call) -> Known {
        match kind {
            "context.create" => {
                let none = Map::new();
                let settings = call.get("settings").and_then(Value::as_object).unwrap_or(&none);
                let text = |v: &Value| v.as_str().unwrap_or("").to_string();
                let context = Context::new(&ContextOptions {
                    threads: call.u32_or("threads", 0)?,
                    config_file: call.text("config_file").map(Into::into),
                    settings: settings.iter().map(|(k, v)| (k.clone(), text(v))).collect(),
                    ..Default::default()
                })?;
                let context = self.add(Object::Context(context));
                results(json!({ "context": context }))
            }
            "context.config" => results(json!({"text": self.context(call, "context")?.config()?})),
            "config.reference" => results(json!({"text": config_reference()?})),
            _ => Ok(None),
        }
    }

    fn geometry_step(&mut self, kind: &str, call: &Call) -> Known {
        match kind {
            "geometry.create" => {
                let mut components = Vec::new();
                for c in call.list("components")? {
                    components.push(Component {
                        kind: member(&c, "kind")?,
                        element: member(&c, "element")?,
                        layers: field(&c, "layers")? as u32,
                        heads: field(&c, "heads")? as u32,
                        head_dim: field(&c, "head_dim")? as u32,
                        window_tokens: field(&c, "window_tokens")? as u32,
                        state_bytes: field(&c, "state_bytes")?,
                    });
                }
                let (tokens, units) = (call.u32_or("tokens_per_block", 0)?, call.u32_or("units", 0)?);
                let geometry = Geometry::new(tokens, units, &components)?;
                let fingerprint = format!("{:016x}", geometry.fingerprint());
                let geometry = self.add(Object::Geometry(geometry));
                results(json!({"geometry": geometry, "fingerprint": fingerprint}))
            }
            "geometry.record_bytes" => {
                let shard = call.get("shard").map(shard).transpose()?;
                let bytes = self.geometry(call, "geometry")?.record_bytes(call.u32_or("component", 0)?, shard)?;
                results(json!({ "bytes": bytes }))
            }
            _ => Ok(None),
        }
    }

    fn key_step(&mut self, kind: &str, call: &Call) -> Known {
        let ns = self.namespace(call, "namespace")?;
        let keys = if kind == "key.from_hashes" {
            let hashes = unhex(&call.text("hashes").unwrap_or_default())?;
            ns.key_from_hashes(&hashes, call.number("hash_bytes")? as usize)?
        } else {
            let tokens = call.need("tokens")?;
            let step = tokens.get("step").map_or(Ok(1), crate::objects::number)? as u32;
            let (first, count) = (field(tokens, "first")? as u32, field(tokens, "count")? as u32);
            let tokens: Vec<u32> = (0..count).map(|i| first.wrapping_add(i.wrapping_mul(step))).collect();
            let extras =
                call.list("extras")?.iter().map(|e| unhex(e.as_str().unwrap_or("?"))).collect::<Result<Vec<_>, _>>()?;
            let extras: Vec<&[u8]> = extras.iter().map(Vec::as_slice).collect();
            let block_tokens = call.u32_or("block_tokens", 0)?;
            match kind {
                "key.chain" => ns.key_chain_with(call.key("previous")?, &tokens, block_tokens, &extras)?,
                "key.content" => ns.key_content(&tokens, block_tokens, &extras)?,
                _ => return Ok(None),
            }
        };
        let list: Vec<Value> = keys.iter().map(|k| hex(&k.0)).collect();
        results(json!({"n": list.len(), "keys": list}))
    }

    fn namespace_step(&mut self, kind: &str, call: &Call) -> Known {
        if kind == "namespace.open" {
            let secret = call.text("secret").map(|s| unhex(&s)).transpose()?;
            let options = NamespaceOptions {
                tenant: call.text("tenant").unwrap_or_default(),
                model: call.text("model").unwrap_or_default(),
                adapter: call.text("adapter"),
                geometry: call.get("geometry").map(|_| self.geometry(call, "geometry").cloned()).transpose()?,
                secret: secret.map(|s| s.try_into().map_err(|_| "a secret has 32 bytes".to_string())).transpose()?,
                epoch: call.number_or("epoch", 0)?,
                quota_bytes: call.number_or("quota_bytes", 0)?,
                quota_mode: call.enumerated("quota_mode")?,
                codec: call.text("codec"),
                allow_lossy: call.number_or("allow_lossy", 0)? != 0,
                weak_hashes: call.number_or("weak_hashes", 0)? != 0,
            };
            let ns = Namespace::open(self.manager(call, "manager")?, &options)?;
            let id = hex(&ns.id());
            let ns = self.add(Object::Namespace(ns));
            return results(json!({"namespace": ns, "id": id}));
        }
        let ns = self.namespace(call, "namespace")?;
        match kind {
            "namespace.id" => return results(json!({"id": hex(&ns.id())})),
            "namespace.invalidate" => ns.invalidate()?,
            "namespace.reset" => ns.reset()?,
            "namespace.set_quota" => ns.set_quota(call.number("quota_bytes")?, call.enumerated("quota_mode")?)?,
            _ => return Ok(None),
        }
        results(Value::Null)
    }

    fn create_manager(&mut self, call: &Call) -> Known {
        let flags = call.number_or("flags", 0)?;
        if flags & !u64::from(sys::KVBM_MANAGER_SHARE) != 0 {
            return Err(Failure::Wrong(format!("flags {flags} are not known")));
        }
        let mut tiers = Vec::new();
        for tier in call.list("tiers")? {
            let place = match (text_member(&tier, "path"), text_member(&tier, "url")) {
                (Some(path), None) => TierPlace::Disk(path.into()),
                (None, Some(url)) => TierPlace::Store(url),
                _ => return Err(Failure::Wrong("a tier has a path or a url".to_string())),
            };
            tiers.push(Tier {
                place,
                capacity_bytes: field(&tier, "capacity_bytes")?,
                write_bytes_per_s: field(&tier, "write_bytes_per_s")?,
                read_bytes_per_s: field(&tier, "read_bytes_per_s")?,
                admission: member(&tier, "admission")?,
                admission_uses: field(&tier, "admission_uses")? as u32,
                codec: text_member(&tier, "codec"),
                codec_goal: field(&tier, "codec_goal")? as u32,
            });
        }
        let options = ManagerOptions {
            share: flags != 0,
            block_bytes: call.number_or("block_bytes", 0)?,
            host_capacity_bytes: call.number_or("host_capacity_bytes", 0)?,
            host_file: call.text("host_file").map(Into::into),
            policy: call.text("policy"),
            tiers: call.get("tiers").map(|_| tiers),
        };
        let manager = Manager::new(self.context(call, "context")?, &options)?;
        let manager = self.add(Object::Manager(manager));
        results(json!({ "manager": manager }))
    }

    fn manager_step(&mut self, kind: &str, call: &Call) -> Known {
        if kind == "manager.create" {
            return self.create_manager(call);
        }
        let manager = self.manager(call, "manager")?;
        match kind {
            "manager.reset" => {
                manager.reset()?;
                results(Value::Null)
            }
            "manager.flush" => results(json!({"status": manager.flush(call.timeout("timeout_ns")?)?.0})),
            "manager.flush_durable" => {
                results(json!({"status": manager.flush_durable(call.timeout("timeout_ns")?)?.0}))
            }
            "manager.metrics" => results(json!({"text": manager.metrics()?})),
            "manager.node_address" => results(json!({"address": manager.node_address()?})),
            "manager.wait_for_peers" => {
                manager.wait_for_peers(call.timeout("timeout_ns")?)?;
                results(Value::Null)
            }
            "manager.stats" => results(stats(manager)?),
            "manager.scan" => results(json!({"rows": scan(manager, call.number("page")? as usize)?})),
            "manager.nodes" => results(nodes(manager)?),
            "manager.devices" => results(devices(manager)?),
            "manager.share" => results(share(manager)?),
            "manager.locate" => {
                let options = LocateOptions {
                    parts: call.list("parts")?.iter().map(part).collect::<Result<_, _>>()?,
                    request_keys: call.numbers("request_keys")?,
                    ask_nodes: call.timeout("ask_nodes_ns")?.unwrap_or_default(),
                };
                let found = manager.locate(self.namespace(call, "namespace")?, &call.keys("keys")?, &options)?;
                let row = |r: &libkvbm::Location| {
                    json!({"node": hex(&r.node.unwrap_or_default()), "request": r.request, "tier": r.tier.0,
                           "n_prefix": r.n_prefix, "n_in_tier": r.n_in_tier, "bytes": r.bytes, "text": shown(r)})
                };
                let rows: Vec<Value> = found.rows.iter().map(row).collect();
                let status = if found.complete { sys::KVBM_OK } else { sys::KVBM_PARTIAL };
                results(json!({"status": status, "n": rows.len(), "rows": rows}))
            }
            _ => Ok(None),
        }
    }
}

macro_rules! fields {
    ($from:expr; $($name:ident),* $(,)?) => { json!({$(stringify!($name): $from.$name),*}) };
}
pub(crate) use fields;

fn stats(manager: &Manager) -> Result<Value, Error> {
    let stats = manager.stats()?;
    let tier = |t: &libkvbm::TierStats| {
        fields!(t; capacity_bytes, used_bytes, blocks, payload_bytes, hits, hit_bytes, misses, stores, store_bytes, loads,
                load_bytes, evictions, damaged, errors, metadata_bytes, disabled)
    };
    let tiers: Vec<Value> = stats.tiers.iter().map(tier).collect();
    let mut all = fields!(stats; lookups, keys_looked_up, keys_hit, holds, pins, matches, operations_in_flight,
        stores_refused_room, stores_refused_quota, deadline_missed, position_mismatches, verify_failures,
        offloads_skipped, loads_weighed, load_predicted_ns, load_actual_ns, loads_not_started, blocks_left,
        compute_saved_ns, compute_lost_ns, lossy_refused);
    let codec = |t: &libkvbm::TierCodecStats| {
        let mut value = fields!(t; coded, plain_bytes, stored_bytes, sealed, left_plain, encode_ns, decode_ns, decoded,
            decoded_bytes, refused_lossy, missing_keys, damaged, stepped_down, probes, mode);
        value["automatic"] = json!(u32::from(t.automatic));
        value
    };
    all["codec"] = json!(stats.codec.iter().map(codec).collect::<Vec<Value>>());
    all["n_tiers"] = json!(tiers.len());
    all["tiers"] = json!(tiers);
    Ok(all)
}

fn scan(manager: &Manager, page: usize) -> Result<Vec<Value>, Error> {
    let (mut cursor, mut all) = (0, Vec::new());
    loop {
        for row in manager.scan_page(&mut cursor, page)? {
            let mut value = fields!(row; bytes, component, uses, holds, pins);
            value["tier"] = json!(row.tier.0);
            value["text"] = json!(shown(&row));
            value["key"] = hex(&row.key.0);
            value["namespace_id"] = hex(&row.namespace_id);
            all.push(value);
        }
        if cursor == 0 {
            return Ok(all);
        }
    }
}

fn nodes(manager: &Manager) -> Result<Value, Error> {
    let rows = manager.nodes()?;
    let row = |r: &libkvbm::NodeRow| {
        let mut value = fields!(r; address, state, capacity_bytes, used_bytes, records, fetched_bytes, served_bytes, path,
            path_reason, local_bytes);
        value["node"] = hex(&r.node.unwrap_or_default());
        value
    };
    Ok(json!({"n": rows.len(), "rows": rows.iter().map(row).collect::<Vec<_>>()}))
}

fn share(manager: &Manager) -> Result<Value, Error> {
    let share = manager.share()?;
    let mut value = fields!(share; owner_pid, clients, takeovers, owners_lost, silent_lookups);
    value["role"] = json!(share.role as u32);
    Ok(value)
}
