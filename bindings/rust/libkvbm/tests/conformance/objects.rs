// SPDX-License-Identifier: Apache-2.0
//! The objects of a running scenario, and the arguments of a call.

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::time::Duration;

use libkvbm::{
    sys, Cache, Context, Error, Geometry, Key, Manager, Match, Namespace, Offer, Part, Session, Shard, Status,
};
use serde_json::{json, Map, Value};

use crate::fake::Fake;
use crate::value::unhex;
use crate::{Failure, Results};

/// Arguments of a step; notes which ones were asked for.
pub struct Call {
    arguments: Map<String, Value>,
    used: RefCell<HashSet<String>>,
}

impl Call {
    pub fn new(arguments: Map<String, Value>) -> Self {
        Call { arguments, used: RefCell::default() }
    }
    pub fn all_used(&self) -> Result<(), String> {
        let used = self.used.borrow();
        match self.arguments.keys().find(|name| !used.contains(*name)) {
            Some(name) => Err(format!("this runner does not know the argument {name}")),
            None => Ok(()),
        }
    }
    /// An argument, unless it is null or left out.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.used.borrow_mut().insert(name.into());
        self.arguments.get(name).filter(|v| !v.is_null())
    }
    pub fn need(&self, name: &str) -> Result<&Value, String> {
        self.get(name).ok_or_else(|| format!("no argument {name}"))
    }
    pub fn number(&self, name: &str) -> Result<u64, String> {
        number(self.need(name)?)
    }
    pub fn number_or(&self, name: &str, default: u64) -> Result<u64, String> {
        self.get(name).map_or(Ok(default), number)
    }
    pub fn u32_or(&self, name: &str, default: u32) -> Result<u32, String> {
        self.number_or(name, default.into())?.try_into().map_err(|e| format!("{name}: {e}"))
    }
    pub fn flag(&self, name: &str) -> Result<bool, String> {
        Ok(self.number_or(name, 0)? != 0)
    }
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(Value::as_str).map(str::to_string)
    }
    pub fn list(&self, name: &str) -> Result<Vec<Value>, String> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => Ok(list.clone()),
            Some(other) => Err(format!("{name} is {other}, and no list")),
        }
    }
    pub fn numbers<T: TryFrom<u64>>(&self, name: &str) -> Result<Vec<T>, String>
    where
        T::Error: Display,
    {
        let one = |v: &Value| T::try_from(number(v)?).map_err(|e| format!("{v} in {name}: {e}"));
        self.list(name)?.iter().map(one).collect()
    }
    pub fn timeout(&self, name: &str) -> Result<Option<Duration>, String> {
        Ok(self.get(name).map(number).transpose()?.map(Duration::from_nanos))
    }
    pub fn keys(&self, name: &str) -> Result<Vec<Key>, String> {
        self.list(name)?.iter().map(key).collect()
    }
    pub fn key(&self, name: &str) -> Result<Option<Key>, String> {
        self.get(name).map(key).transpose()
    }
    pub fn holds(&self, name: &str) -> Result<Vec<u64>, String> {
        let one = |v: &Value| match v.get("@hold").and_then(Value::as_str) {
            Some(text) => text.parse().map_err(|e| format!("{v}: {e}")),
            None => number(v),
        };
        self.list(name)?.iter().map(one).collect()
    }
    pub fn part(&self, name: &str) -> Result<Part, String> {
        self.get(name).map_or(Ok(Part::default()), part)
    }
    pub fn enumerated<T: TryFrom<u32, Error = Error> + Default>(&self, name: &str) -> Result<T, Failure> {
        match self.get(name) {
            Some(value) => {
                Ok(T::try_from(u32::try_from(number(value)?).map_err(|e| format!("{value} of {name}: {e}"))?)?)
            }
            None => Ok(T::default()),
        }
    }
    pub fn sixteen(&self, name: &str) -> Result<[u8; 16], String> {
        unhex(&self.text(name).ok_or(format!("no {name}"))?)?.try_into().map_err(|_| format!("{name} is not 16 bytes"))
    }
}

pub fn number(value: &Value) -> Result<u64, String> {
    let wide: i128 = match value {
        Value::String(text) => text.parse().map_err(|e| format!("{text}: {e}"))?,
        _ => {
            value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)).ok_or(format!("{value} is no number"))?
        }
    };
    wide.try_into().map_err(|e| format!("{wide}: {e}"))
}

fn key(value: &Value) -> Result<Key, String> {
    let bytes = unhex(value.as_str().ok_or_else(|| format!("{value} is no key"))?)?;
    Ok(Key(bytes.try_into().map_err(|_| format!("{value} is not 16 bytes"))?))
}

/// A member of an object; 0 unless it is there.
pub fn field(object: &Value, name: &str) -> Result<u64, String> {
    object.get(name).filter(|v| !v.is_null()).map_or(Ok(0), number)
}

pub fn shard(value: &Value) -> Result<Shard, String> {
    let short = |name| field(value, name).map(|n| n as u16);
    Ok(Shard {
        first_layer: short("first_layer")?,
        layers: short("layers")?,
        first_head: short("first_head")?,
        heads: short("heads")?,
        replicated: field(value, "replicated")? != 0,
    })
}

pub fn part(value: &Value) -> Result<Part, String> {
    let shard = value.get("shard").filter(|v| !v.is_null()).map_or(Ok(Shard::default()), shard)?;
    Ok(Part { component: field(value, "component")? as u32, shard })
}

/// Memory that is aligned as a cache's: the host's, or of a device of the fake, which keeps it.
pub struct Memory {
    pub data: *mut u8,
    pub layout: Layout,
    pub owned: bool,
}
impl Drop for Memory {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: allocated with this layout; caches are released before.
            unsafe { std::alloc::dealloc(self.data, self.layout) };
        }
    }
}

/// A queue of the raw layer, and what the safe one of its context prints as.
pub struct RawQueue(pub *mut sys::kvbm_queue, pub String);
impl Drop for RawQueue {
    fn drop(&mut self) {
        // SAFETY: an owned reference.
        unsafe { sys::kvbm_queue_release(self.0) };
    }
}

pub enum Object {
    Context(Context),
    Manager(Manager),
    Namespace(Namespace),
    Geometry(Geometry),
    Cache(Cache),
    Match(Match),
    Queue(RawQueue),
    Memory(Memory),
    /// Statuses that the library writes; never freed, for it may do so late.
    Items(&'static [std::sync::atomic::AtomicI32]),
    Offer(Offer),
    Session(Session),
}

#[derive(Default)]
pub struct Objects {
    all: Vec<Option<Object>>,
    /// For scenarios that need it.
    pub fake: Option<Fake>,
}

impl Drop for Objects {
    fn drop(&mut self) {
        // The newest first.
        while self.all.pop().is_some() {}
    }
}

macro_rules! getters {
    ($($name:ident: $variant:ident($kind:ty)),* $(,)?) => {
        $(pub fn $name(&self, call: &Call, name: &str) -> Result<&$kind, String> {
            match self.object(call.need(name)?)? {
                Object::$variant(found) => Ok(found),
                _ => Err(format!("{name} is another kind of object")),
            }
        })*
    };
}

impl Objects {
    getters! {
        context: Context(Context), manager: Manager(Manager), namespace: Namespace(Namespace),
        geometry: Geometry(Geometry), cache: Cache(Cache), found: Match(Match), queue: Queue(RawQueue),
        memory: Memory(Memory), items: Items(&'static [std::sync::atomic::AtomicI32]), offer: Offer(Offer),
        session: Session(Session),
    }

    fn index(value: &Value) -> Result<usize, String> {
        value.get("@object").and_then(Value::as_u64).map(|i| i as usize).ok_or_else(|| format!("{value} is no object"))
    }
    pub fn object(&self, value: &Value) -> Result<&Object, String> {
        self.all.get(Objects::index(value)?).and_then(Option::as_ref).ok_or("a released object".into())
    }
    pub fn memory_of(&self, value: &Value) -> Result<&Memory, String> {
        match self.object(value)? {
            Object::Memory(memory) => Ok(memory),
            _ => Err("not memory".into()),
        }
    }
    pub fn add(&mut self, object: Object) -> Value {
        self.all.push(Some(object));
        json!({"@object": self.all.len() - 1})
    }
    pub fn text(&self, value: &Value) -> Result<String, String> {
        Ok(match self.object(value)? {
            Object::Context(it) => format!("{it:?}"),
            Object::Manager(it) => format!("{it:?}"),
            Object::Namespace(it) => format!("{it:?}"),
            Object::Geometry(it) => format!("{it:?}"),
            Object::Cache(it) => format!("{it:?}"),
            Object::Match(it) => format!("{it:?}"),
            Object::Queue(it) => it.1.clone(),
            Object::Offer(it) => format!("{it:?}"),
            Object::Session(it) => format!("{it:?}"),
            Object::Memory(_) | Object::Items(_) => return Err("this has no text".into()),
        })
    }
    pub fn release(&mut self, value: &Value) -> Result<(), String> {
        let slot = self.all.get_mut(Objects::index(value)?).ok_or("no such object")?;
        slot.take().map(drop).ok_or("released already".into())
    }

    pub fn call(&mut self, kind: &str, call: &Call) -> Results {
        let done = self.set_up_step(kind, call).transpose();
        let done = done.or_else(|| self.pool_step(kind, call).transpose());
        let done = done.or_else(|| self.cache_step(kind, call).transpose());
        let done = done.or_else(|| self.raw_step(kind, call).transpose());
        done.unwrap_or_else(|| Err(Failure::Wrong(format!("this runner does not know the step {kind}"))))
    }
}

/// Result of a step kind: `None` if another file implements it.
pub type Known = Result<Option<Map<String, Value>>, Failure>;

/// Results from a JSON object.
pub fn results(value: Value) -> Known {
    match value {
        Value::Object(members) => Ok(Some(members)),
        _ => Ok(Some(Map::new())),
    }
}

/// The text of a row, in lower case.
pub fn shown(row: &impl Debug) -> String {
    format!("{row:?}").to_lowercase()
}

pub fn statuses(list: &[Status]) -> Value {
    list.iter().map(|s| json!(s.0)).collect()
}
