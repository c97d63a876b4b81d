// SPDX-License-Identifier: Apache-2.0
//! Values of scenarios: variables and constants put in, results matched, patterns of bytes.
//!
//! Objects are `{"@object": index}` and holds `{"@hold": "number"}`; both come out of variables alone.

use std::collections::HashMap;

use serde_json::{json, Map, Value};

pub type Variables = HashMap<String, Value>;

fn variable(text: &str, variables: &Variables) -> Result<Value, String> {
    let (name, index) = match text.split_once('[') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(']').ok_or("no closing bracket")?)),
        None => (text, None),
    };
    let value = variables.get(name).ok_or_else(|| format!("no variable {name}"))?;
    let Some(index) = index else { return Ok(value.clone()) };
    let list = value.as_array().ok_or_else(|| format!("{name} is no list"))?;
    let number = |t: &str| t.parse::<usize>().map_err(|e| format!("{text}: {e}"));
    match index.split_once(':') {
        None => list.get(number(index)?).cloned().ok_or_else(|| format!("{text} is not there")),
        Some((from, to)) => {
            let some = list.get(number(from)?..number(to)?).ok_or_else(|| format!("{text} is not there"))?;
            Ok(Value::Array(some.to_vec()))
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn replaced(text: &str, variables: &Variables) -> Result<Value, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let end = rest[at..].find('}').ok_or("no closing brace")? + at;
        out += &rest[..at];
        out += &plain(&variable(&rest[at + 2..end], variables)?);
        rest = &rest[end + 1..];
    }
    Ok(Value::String(out + rest))
}

/// Puts variables and constants in.
pub fn resolve(value: &Value, variables: &Variables, constants: &HashMap<String, Value>) -> Result<Value, String> {
    match value {
        Value::String(text) if text.starts_with("${") => replaced(text, variables),
        Value::String(text) if text.starts_with('$') => variable(&text[1..], variables),
        Value::String(text) if text.starts_with("KVBM_") => {
            constants.get(text).cloned().ok_or_else(|| format!("no constant {text}"))
        }
        Value::String(text) => replaced(text, variables),
        Value::Array(list) => {
            let mut out = Vec::new();
            for element in list {
                let resolved = resolve(element, variables, constants)?;
                let spliced =
                    element.as_str().is_some_and(|t| t.starts_with('$') && t.contains('[') && t.contains(':'));
                match resolved {
                    Value::Array(inner) if spliced => out.extend(inner),
                    other => out.push(other),
                }
            }
            Ok(Value::Array(out))
        }
        Value::Object(members) => {
            let mut out = Map::new();
            for (name, member) in members {
                out.insert(name.clone(), resolve(member, variables, constants)?);
            }
            Ok(Value::Object(out))
        }
        other => Ok(other.clone()),
    }
}

const MATCHERS: [&str; 6] = ["min", "max", "length", "contains", "not", "any_order"];

fn number(value: &Value) -> Result<i128, String> {
    value
        .as_u64()
        .map(i128::from)
        .or_else(|| value.as_i64().map(i128::from))
        .ok_or_else(|| format!("{value} is no number"))
}

/// Says why the result is not what is wanted; both are resolved.
pub fn matches(wanted: &Value, got: &Value) -> Result<(), String> {
    match (wanted, got) {
        (Value::Object(members), _) if members.keys().any(|k| MATCHERS.contains(&k.as_str())) => {
            members.iter().try_for_each(|(name, what)| matcher(name, what, got))
        }
        (Value::Object(members), Value::Object(have)) => members.iter().try_for_each(|(name, what)| {
            let member = have.get(name).ok_or_else(|| format!("{got} has no {name}"))?;
            matches(what, member).map_err(|why| format!("{name}: {why}"))
        }),
        (Value::Array(elements), Value::Array(have)) if elements.len() == have.len() => {
            elements.iter().zip(have).try_for_each(|(what, element)| matches(what, element))
        }
        (Value::Array(elements), Value::Array(_)) => {
            Err(format!("{got}, and {} elements were expected", elements.len()))
        }
        _ if wanted == got => Ok(()),
        _ => Err(format!("{got}, and {wanted} was expected")),
    }
}

fn matcher(name: &str, what: &Value, got: &Value) -> Result<(), String> {
    let holds = match name {
        "min" => number(got)? >= number(what)?,
        "max" => number(got)? <= number(what)?,
        "length" => {
            let length = match got {
                Value::Array(list) => list.len(),
                Value::String(text) => text.chars().count(),
                _ => return Err(format!("{got} has no length")),
            };
            number(what)? == length as i128
        }
        "contains" => match got {
            Value::Array(list) => list.iter().any(|element| matches(what, element).is_ok()),
            Value::String(text) => what.as_str().is_some_and(|part| text.contains(part)),
            _ => false,
        },
        "not" => matches(what, got).is_err(),
        "any_order" => return any_order(what, got),
        other => return Err(format!("no matcher {other}")),
    };
    if holds {
        Ok(())
    } else {
        Err(format!("{got} does not hold {name} {what}"))
    }
}

fn any_order(what: &Value, got: &Value) -> Result<(), String> {
    let (Value::Array(wanted), Value::Array(have)) = (what, got) else { return Err(format!("{got} is no list")) };
    let mut left: Vec<&Value> = have.iter().collect();
    for element in wanted {
        let at = left.iter().position(|h| matches(element, h).is_ok()).ok_or(format!("{got} has no {element}"))?;
        left.remove(at);
    }
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!("{got} has more than {what}"))
    }
}

/// Byte `j` of the pattern of a seed.
pub fn pattern(seed: u32, j: u32) -> u8 {
    let mut x = seed.wrapping_mul(1_000_003).wrapping_add(j);
    x ^= x >> 15;
    x = x.wrapping_mul(2_246_822_519);
    x ^= x >> 13;
    x as u8
}

pub fn hex(bytes: &[u8]) -> Value {
    Value::String(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

pub fn unhex(text: &str) -> Result<Vec<u8>, String> {
    if text.len() % 2 != 0 || !text.is_ascii() {
        return Err(format!("{text} is no hex"));
    }
    let digits = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).map_err(|e| format!("{text}: {e}"));
    (0..text.len()).step_by(2).map(digits).collect()
}

pub fn hold(number: u64) -> Value {
    match number {
        0 => json!(0),
        _ => json!({"@hold": number.to_string()}),
    }
}
