// SPDX-License-Identifier: Apache-2.0
//! Steps of coding buffers.

use libkvbm::codec::{self, Form, Mode};
use libkvbm::CodeOptions;
use serde_json::{json, Value};

use crate::device_steps::stream_of;
use crate::objects::{results, Call, Known, Objects};
use crate::value::{hex, pattern, unhex};
use crate::Failure;

fn bytes(call: &Call, name: &str) -> Result<Vec<u8>, String> {
    unhex(&call.text(name).ok_or(format!("no {name}"))?)
}

fn form(call: &Call) -> Result<Form, Failure> {
    Ok(Form {
        element: call.enumerated("element")?,
        row_elements: call.u32_or("row_elements", 0)?,
        rows: call.u32_or("rows", 0)?,
    })
}

/// Which blocks of a cache, but for the stream.
fn how(call: &Call) -> Result<CodeOptions, Failure> {
    Ok(CodeOptions { part: call.u32_or("part", 0)?, form: form(call)?, stream: None })
}

pub fn codec_step(kind: &str, call: &Call) -> Known {
    match kind {
        "codec.mode" => {
            let mode: Mode = call.text("name").unwrap_or_default().parse()?;
            results(json!({"mode": mode as u32}))
        }
        "codec.encode" => {
            let raw = match call.get("raw") {
                Some(_) => bytes(call, "raw")?,
                None => {
                    let (n, seed) = (call.number("bytes")? as u32, call.number("seed")? as u32);
                    (0..n).map(|j| pattern(seed, j)).collect()
                }
            };
            let coded = codec::encode(&raw, call.enumerated("mode")?, form(call)?)?;
            results(json!({"coded": hex(&coded), "n": coded.len()}))
        }
        "codec.inspect" => {
            let info = codec::inspect(&bytes(call, "coded")?)?;
            results(json!({"mode": info.mode as u32, "element": info.form.element as u32,
                "row_elements": info.form.row_elements, "rows": info.form.rows, "lossy": u32::from(info.lossy),
                "leaves": info.leaves, "raw_leaves": info.raw_leaves, "raw_bytes": info.raw_bytes,
                "coded_bytes": info.coded_bytes, "error_ppb": info.error_ppb}))
        }
        "codec.decode" => {
            let raw = codec::decode(&bytes(call, "coded")?, call.number_or("allow_lossy", 0)? != 0)?;
            results(json!({"raw": hex(&raw), "n": raw.len()}))
        }
        _ => Ok(None),
    }
}

impl Objects {
    pub fn block_coding_step(&self, kind: &str, call: &Call) -> Known {
        let cache = self.cache(call, "cache")?;
        if kind == "cache.code_room" {
            return results(json!({"bytes": cache.code_room(call.number("n_blocks")? as usize, &how(call)?)?}));
        }
        let (ids, how) = (call.numbers::<u32>("block_ids")?, CodeOptions { stream: stream_of(call)?, ..how(call)? });
        if kind == "cache.encode" {
            let mode = call.enumerated("mode")?;
            let coded = match call.get("capacity") {
                None => cache.encode(&ids, mode, &how)?,
                Some(_) => {
                    let mut room = vec![0; call.number("capacity")? as usize];
                    let n = cache.encode_into(&ids, mode, &how, &mut room)?;
                    room.truncate(n);
                    room
                }
            };
            return results(json!({"coded": hex(&coded), "n": coded.len()}));
        }
        let mut coded = bytes(call, "coded")?;
        let n = call.number_or("coded_bytes", coded.len() as u64)? as usize;
        if n > coded.len() {
            return Err(Failure::Wrong("coded_bytes is more than there are".into()));
        }
        coded.truncate(n);
        cache.decode(&coded, &ids, call.flag("allow_lossy")?, &how)?;
        results(Value::Null)
    }
}
