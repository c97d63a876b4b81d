// SPDX-License-Identifier: Apache-2.0
//! Steps of devices, on the fake of their driver.

use std::alloc::Layout;
use std::ffi::c_void;

use libkvbm::{Error, Manager, MemoryKind, Stream};
use serde_json::{json, Value};

use crate::fake::Fake;
use crate::objects::{results, Call, Known, Memory, Object, Objects};
use crate::set_up_steps::fields;
use crate::Failure;

/// The argument `stream`.
pub fn stream_of(call: &Call) -> Result<Option<Stream>, String> {
    let given = call.get("stream").map(crate::objects::number).transpose()?;
    // SAFETY: a stream of the fake, which lives as long as the process, or the legacy one.
    Ok(given.map(|raw| unsafe { Stream::from_raw(raw as usize as *mut c_void) }))
}

fn needed_stream(call: &Call) -> Result<Stream, String> {
    stream_of(call)?.ok_or("no argument stream".into())
}

/// Where a cache's tensors lie.
pub fn memory_kind(call: &Call) -> Result<MemoryKind, String> {
    let device = call.u32_or("device", 0)?;
    match (call.u32_or("memory", libkvbm::sys::KVBM_MEMORY_AUTO)?, device) {
        (libkvbm::sys::KVBM_MEMORY_AUTO, 0) => Ok(MemoryKind::Auto),
        (libkvbm::sys::KVBM_MEMORY_HOST, 0) => Ok(MemoryKind::Host),
        (libkvbm::sys::KVBM_MEMORY_CUDA, _) => Ok(MemoryKind::Cuda(device)),
        (memory, _) => Err(format!("memory {memory} of device {device} cannot be said")),
    }
}

impl Objects {
    fn fake(&self) -> Result<&Fake, String> {
        self.fake.as_ref().ok_or("the scenario does not need cuda_driver".into())
    }

    pub fn device_step(&mut self, kind: &str, call: &Call) -> Known {
        match kind {
            "device.memory" => {
                let bytes = call.number("bytes")? as usize;
                let data = self.fake()?.allocate(call.u32_or("device", 0)?, bytes);
                let layout = Layout::from_size_align(bytes, 1).map_err(|e| e.to_string())?;
                let memory = self.add(Object::Memory(Memory { data, layout, owned: false }));
                return results(json!({ "memory": memory }));
            }
            "device.stream" => {
                let stream = self.fake()?.stream(call.u32_or("device", 0)?);
                return results(json!({"stream": (stream.as_raw() as usize).to_string()}));
            }
            "device.copy" => {
                let (from, to) = (self.memory(call, "from")?, self.memory(call, "to")?);
                let bytes = to.layout.size();
                if from.layout.size() != bytes {
                    return Err(Failure::Wrong("the memories are not as large as each other".into()));
                }
                if !self.fake()?.copy(to.data, from.data, bytes, needed_stream(call)?) {
                    return Err(Failure::Wrong("there is no such stream".into()));
                }
            }
            "device.hold" => self.fake()?.hold(needed_stream(call)?, call.flag("on")?),
            "device.capture" => self.fake()?.capture(needed_stream(call)?, call.flag("on")?),
            "device.waits" => self.fake()?.apply(if call.flag("on")? { "waits=1" } else { "waits=0" }),
            "device.synchronize" => self.fake()?.synchronize(needed_stream(call)?),
            _ => return Ok(None),
        }
        results(Value::Null)
    }
}

pub fn devices(manager: &Manager) -> Result<Value, Error> {
    let moves = |m: &libkvbm::DeviceMoves| {
        fields!(m; batches, leaves, bytes, bad_leaves, mapped_leaves, staged_leaves, straight_leaves, bounced_leaves,
            device_ns)
    };
    let rows = manager.devices()?;
    let row = |r: &libkvbm::DeviceRow| {
        let mut value = fields!(r; ordinal, name, pci, state, memory_bytes, pinned_bytes);
        value["lost"] = json!(u32::from(r.lost));
        value["gathers"] = moves(&r.gathers);
        value["scatters"] = moves(&r.scatters);
        value
    };
    Ok(json!({"n": rows.len(), "rows": rows.iter().map(row).collect::<Vec<_>>()}))
}
