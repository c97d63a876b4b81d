// SPDX-License-Identifier: Apache-2.0
//! Steps of blocks, lookups and matches. Holds are numbers in scenarios, because some use them after their end; each step
//! takes them over into the type of their state, and gives them up again.

use libkvbm::{
    CompleteBlocks, Error, LookupOptions, Manager, Match, PartialBlocks, Present, RegisterOptions, RegisteredBlocks,
    Status, WeakBlocks,
};
use serde_json::{json, Value};

use crate::cache_steps::positions;
use crate::objects::{part, results, shown, statuses, Call, Known, Object, Objects};
use crate::value::{hex, hold, pattern};
use crate::Failure;

fn holds(list: &[u64]) -> Value {
    list.iter().map(|h| hold(*h)).collect()
}

fn given_up(blocks: RegisteredBlocks) -> Vec<u64> {
    blocks.into_raw().unwrap_or_else(|_| panic!("nothing shares them"))
}

/// Holds of those that are present, 0 for the others.
fn with_gaps(present: Present, n: usize) -> Value {
    let mut list = vec![0; n];
    let found = present.indices.len();
    for (index, hold) in present.indices.iter().zip(given_up(present.blocks)) {
        list[*index] = hold;
    }
    json!({"blocks": holds(&list), "present": found})
}

// SAFETY of the from_raw calls below: no two live values have the same holds, because each releases them before its
// step ends. Views are read or written within the step. The library refuses holds in another state.

fn complete(manager: &Manager, list: Vec<u64>, bytes: Option<Vec<u64>>) -> Result<(), Error> {
    // SAFETY: see above.
    let blocks = unsafe { PartialBlocks::from_raw(manager, list) };
    let done = match bytes {
        Some(bytes) => blocks.complete_with(&bytes),
        None => blocks.complete(),
    };
    match done {
        Ok(blocks) => {
            blocks.into_raw();
            Ok(())
        }
        Err(refused) => {
            refused.blocks.into_raw();
            Err(refused.error)
        }
    }
}

fn view(manager: &Manager, call: &Call, list: Vec<u64>) -> Known {
    let (mut bytes, mut slots) = (Vec::new(), Vec::new());
    if let Some(seed) = call.get("fill") {
        let seed = crate::objects::number(seed)? as u32;
        // SAFETY: see above.
        let mut blocks = unsafe { PartialBlocks::from_raw(manager, list.clone()) };
        let done = blocks.views_mut().map(|views| {
            for (i, view) in views.into_slices().enumerate() {
                view.iter_mut().enumerate().for_each(|(j, b)| *b = pattern(seed.wrapping_add(i as u32), j as u32));
            }
        });
        blocks.into_raw();
        done?;
    }
    // SAFETY: see above.
    let blocks = unsafe { CompleteBlocks::from_raw(manager, list) };
    let compare = call.get("compare").map(crate::objects::number).transpose()?;
    let done = blocks.views().map(|views| {
        for (i, view) in views.iter().enumerate() {
            bytes.push(view.len());
            slots.push(views.slot(i));
            let right = |seed: u64| {
                let seed = (seed as u32).wrapping_add(i as u32);
                view.iter().enumerate().all(|(j, b)| *b == pattern(seed, j as u32))
            };
            if compare.is_some_and(|seed| !right(seed)) {
                return Err(format!("block {i} has other bytes"));
            }
        }
        Ok(())
    });
    blocks.into_raw();
    done??;
    results(json!({"bytes": bytes, "slots": slots}))
}

fn register(objects: &Objects, manager: &Manager, call: &Call) -> Known {
    let options = RegisterOptions {
        duplicates: call.enumerated("duplicates")?,
        part: call.part("part")?,
        parent: call.key("parent")?,
        unchained: call.flag("unchained")?,
        priority: call.enumerated("priority")?,
        positions: positions(call)?,
    };
    let ns = objects.namespace(call, "namespace")?;
    // SAFETY: see above.
    let blocks = unsafe { CompleteBlocks::from_raw(manager, call.holds("blocks")?) };
    match blocks.register_with(ns, &call.keys("keys")?, &options) {
        Err(refused) => {
            refused.blocks.into_raw();
            Err(refused.error.into())
        }
        Ok(done) => {
            let (mut found, mut refused) = (given_up(done.blocks).into_iter(), done.refused.into_raw().into_iter());
            let next = |s: &Status| match *s {
                Status::OK | Status::EXISTS => found.next(),
                _ => refused.next(),
            };
            let list: Vec<u64> = done.item_status.iter().filter_map(next).collect();
            match done.item_status.iter().find(|s| !matches!(**s, Status::OK | Status::EXISTS)) {
                Some(failed) => Err(Error::from(*failed).into()),
                None => results(json!({"blocks": holds(&list), "items": statuses(&done.item_status)})),
            }
        }
    }
}

/// Steps on Registered or weak holds.
fn shared_step(kind: &str, manager: &Manager, list: Vec<u64>) -> Known {
    let n = list.len();
    if kind == "block.upgrade" {
        // SAFETY: see above.
        let weak = unsafe { WeakBlocks::from_raw(manager, list) };
        let present = weak.upgrade();
        weak.into_raw();
        return results(with_gaps(present?, n));
    }
    // SAFETY: see above.
    let blocks = unsafe { RegisteredBlocks::from_raw(manager, list) };
    let done = match kind {
        "block.release" => return blocks.release().map_err(Failure::from).and_then(|()| results(Value::Null)),
        "block.clone" => blocks.try_clone().map(given_up),
        _ => blocks.downgrade().map(WeakBlocks::into_raw),
    };
    given_up(blocks);
    results(json!({"blocks": holds(&done?)}))
}

pub fn lookup_options(call: &Call) -> Result<LookupOptions, Failure> {
    Ok(LookupOptions {
        mode: call.enumerated("mode")?,
        parts: call.list("parts")?.iter().map(part).collect::<Result<_, _>>()?,
        host_only: call.flag("host_only")?,
        no_use: call.flag("no_use")?,
        unit_keys: call.keys("unit_keys")?,
        ask_nodes: call.timeout("ask_nodes_ns")?.unwrap_or_default(),
    })
}

impl Objects {
    pub fn add_match(&mut self, found: Match) -> Known {
        let n = found.hits();
        let found = if found.as_raw().is_null() { Value::Null } else { self.add(Object::Match(found)) };
        results(json!({"match": found, "n": n}))
    }

    pub fn pool_step(&mut self, kind: &str, call: &Call) -> Known {
        if kind.starts_with("match.") {
            return self.match_step(kind, call);
        }
        if !(kind.starts_with("block.") || kind.starts_with("manager.")) {
            return Ok(None);
        }
        let manager = self.manager(call, "manager")?;
        match kind {
            "manager.allocate" => {
                let n = call.number("n")? as usize;
                let made = manager.allocate_with(self.namespace(call, "namespace")?, n, 64)?;
                let evicted: Vec<Value> = made.evicted.iter().map(|k| hex(&k.0)).collect();
                let blocks = holds(&made.blocks.into_raw());
                results(json!({"blocks": blocks, "n_evicted": made.n_evicted, "evicted": evicted}))
            }
            "manager.complete" => {
                let bytes = call.get("bytes").map(|_| call.numbers("bytes")).transpose()?;
                complete(manager, call.holds("blocks")?, bytes)?;
                results(Value::Null)
            }
            "manager.register" => register(self, manager, call),
            "manager.lookup" => {
                let found =
                    manager.lookup(self.namespace(call, "namespace")?, &call.keys("keys")?, &lookup_options(call)?)?;
                self.add_match(found)
            }
            "block.view" => view(manager, call, call.holds("blocks")?),
            "block.clone" | "block.release" | "block.downgrade" | "block.upgrade" => {
                shared_step(kind, manager, call.holds("blocks")?)
            }
            _ => Ok(None),
        }
    }

    fn match_step(&mut self, kind: &str, call: &Call) -> Known {
        let found = self.found(call, "match")?;
        match kind {
            "match.items" => {
                let item = |i: &libkvbm::MatchItem| {
                    json!({"tier": i.tier.map_or(u32::MAX, |tier| tier.0), "parts_needed": i.parts_needed,
                           "bytes": i.bytes, "below_bytes": i.below_bytes, "text": shown(i)})
                };
                let items: Vec<Value> = found.items(0..found.count())?.iter().map(item).collect();
                results(json!({"count": found.count(), "units": found.units(), "items": items}))
            }
            "match.blocks" => {
                let (first, n) = (call.number("first")? as usize, call.number("n")? as usize);
                let present = found.present(call.u32_or("part", 0)?, first..first + n)?;
                results(with_gaps(present, n))
            }
            _ => Ok(None),
        }
    }
}
