// SPDX-License-Identifier: Apache-2.0
//! Runs the scenarios of all bindings (bindings/conformance), each as a test with its name. An argument selects names
//! that contain it.
//!
//! Steps go through the safe crate, with two exceptions. Submissions with a queue, and queues, are raw, because the
//! safe queue owns user_data and the order of completions. Cache memory is attached by address, because scenarios share
//! it.

mod cache_steps;
mod codec_steps;
mod device_steps;
#[path = "../common/fake.rs"]
mod fake;
mod objects;
mod pool_steps;
mod raw_steps;
mod set_up_steps;
mod value;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libkvbm::{Band, Error};
use objects::Objects;
use serde_json::{Map, Value};
use value::{matches, resolve, Variables};

/// Why a step did not do what it should.
pub enum Failure {
    /// The library, or the safe crate, refused the call.
    Refused(Error),
    /// The scenario or the runner is wrong, or a comparison failed.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}
impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::Wrong(text)
    }
}

pub type Results = Result<Map<String, Value>, Failure>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

fn read_json(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Fields of a step besides the arguments of its kind.
const OF_ANY_STEP: [&str; 8] = ["do", "as", "expect", "error", "message", "range", "within_ns", "why"];

struct Scenario<'a> {
    objects: Objects,
    variables: Variables,
    constants: &'a HashMap<String, Value>,
}

impl Scenario<'_> {
    fn call(&mut self, kind: &str, step: &Map<String, Value>) -> Results {
        let mut arguments = Map::new();
        for (name, value) in step.iter().filter(|(name, _)| !OF_ANY_STEP.contains(&name.as_str())) {
            arguments.insert(name.clone(), resolve(value, &self.variables, self.constants)?);
        }
        let call = objects::Call::new(arguments);
        let done = self.objects.call(kind, &call);
        match done {
            // An argument that nothing has asked for is one that the runner does not know.
            Ok(results) => call.all_used().map(|()| results).map_err(Failure::Wrong),
            refused => refused,
        }
    }

    /// One try of a step.
    fn try_step(&mut self, step: &Map<String, Value>) -> Result<(), String> {
        let kind = step.get("do").and_then(Value::as_str).ok_or("a step without `do`")?;
        let done = self.call(kind, step);
        if step.contains_key("range") {
            return check_refused_number(done);
        }
        if let Some(wanted) = step.get("error") {
            let message = step.get("message").and_then(Value::as_str);
            return self.check_error(wanted.as_str().unwrap_or(""), message, done);
        }
        let results = done.map_err(|failure| match failure {
            Failure::Refused(error) => error.to_string(),
            Failure::Wrong(text) => text,
        })?;
        let none = Map::new();
        for (name, wanted) in step.get("expect").and_then(Value::as_object).unwrap_or(&none) {
            let got = results.get(name).ok_or_else(|| format!("no result is named {name}"))?;
            let wanted = resolve(wanted, &self.variables, self.constants)?;
            matches(&wanted, got).map_err(|why| format!("{name}: {why}"))?;
        }
        for (name, variable) in step.get("as").and_then(Value::as_object).unwrap_or(&none) {
            let got = results.get(name).ok_or_else(|| format!("no result is named {name}"))?;
            let variable = variable.as_str().ok_or("a variable's name is a string")?;
            self.variables.insert(variable.into(), got.clone());
        }
        Ok(())
    }

    fn check_error(&self, wanted: &str, message: Option<&str>, done: Results) -> Result<(), String> {
        let error = match done {
            Ok(_) => return Err(format!("it was done, and {wanted} was expected")),
            Err(Failure::Wrong(text)) => return Err(text),
            Err(Failure::Refused(error)) => error,
        };
        let number = self.constants.get(wanted).and_then(Value::as_i64).ok_or(format!("{wanted} is no status"))?;
        let band = match number / -100 {
            1 => Band::Caller,
            2 => Band::NoRoom,
            3 => Band::TimeOrPeer,
            4 => Band::Miss,
            5 => Band::Unavailable,
            _ => Band::Internal,
        };
        let status = error.status();
        if status.name() != wanted || i64::from(status.0) != number || error.band() != band {
            return Err(format!("{error}, and {wanted} was expected"));
        }
        match message {
            Some(text) if !error.message().contains(text) => Err(format!("no {text:?} in: {}", error.message())),
            _ => Ok(()),
        }
    }

    fn step(&mut self, step: &Map<String, Value>) -> Result<(), String> {
        let within = step.get("within_ns").and_then(Value::as_u64).unwrap_or(0);
        let until = Instant::now() + Duration::from_nanos(within);
        loop {
            match self.try_step(step) {
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                done => return done,
            }
        }
    }
}

/// Arguments have types that cannot hold such a number: what fails is Rust's own conversion.
fn check_refused_number(done: Results) -> Result<(), String> {
    match done {
        Err(Failure::Wrong(text)) if text.contains("out of range integral type conversion") => Ok(()),
        Err(Failure::Wrong(text)) => Err(text),
        Err(Failure::Refused(error)) => Err(format!("it reached the library: {error}")),
        Ok(_) => Err("it took a number that cannot be".into()),
    }
}

/// Fields of a scenario.
const MEMBERS: [&str; 4] = ["name", "purpose", "needs", "steps"];

fn run(scenario: &Value, constants: &HashMap<String, Value>, tmp: &Path, driver: Option<String>) -> Result<(), String> {
    let members = scenario.as_object().ok_or("a scenario is an object")?;
    if let Some(name) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(format!("a scenario has no {name}"));
    }
    let steps = scenario.get("steps").and_then(Value::as_array).ok_or("no steps")?;
    let mut running = Scenario { objects: Objects::default(), variables: Variables::new(), constants };
    running.variables.insert("tmp".into(), Value::String(tmp.display().to_string()));
    if let Some(driver) = driver {
        let fake = fake::Fake::open(&driver);
        fake.apply("devices=2");
        running.objects.fake = Some(fake);
        running.variables.insert("driver".into(), Value::String(driver));
    }
    for (i, step) in steps.iter().enumerate() {
        let step = step.as_object().ok_or("a step is an object")?;
        running.step(step).map_err(|why| format!("step {i} ({}): {why}", step.get("do").unwrap_or(&Value::Null)))?;
    }
    Ok(())
}

fn run_file(path: &Path, constants: &HashMap<String, Value>, wanted: &[String]) -> Option<Result<(), String>> {
    let scenario = match read_json(path) {
        Ok(scenario) => scenario,
        Err(error) => return Some(Err(error)),
    };
    let name = scenario.get("name").and_then(Value::as_str).unwrap_or("?").to_string();
    if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w.as_str())) {
        return None;
    }
    let driver = match scenario.get("needs").map(|needs| needs == "cuda_driver") {
        None => None,
        Some(false) => return Some(Err(format!("{name}: a need that this runner does not know"))),
        Some(true) => match fake::driver() {
            None => {
                println!("test {name} ... skipped: {}", fake::NOT_BUILT);
                return None;
            }
            found => found,
        },
    };
    let tmp = std::env::temp_dir().join(format!("kvbm-conformance-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&tmp);
    let made = std::fs::create_dir_all(&tmp).map_err(|e| e.to_string());
    let done = made.and_then(|()| run(&scenario, constants, &tmp, driver));
    let _ = std::fs::remove_dir_all(&tmp);
    println!("test {name} ... {}", if done.is_ok() { "ok" } else { "FAILED" });
    Some(done.map_err(|why| format!("{name}: {why}")))
}

/// The declarations' constants are those of constants.json, name by name.
fn check_constants(constants: &HashMap<String, Value>) -> Result<(), String> {
    const DECLARATIONS: &str = include_str!("../../../libkvbm-sys/src/bindings.rs");
    for (name, wanted) in constants.iter().filter(|(name, _)| name.as_str() != "KVBM_FOREVER") {
        let begin = format!("pub const {name}: ");
        let line = DECLARATIONS.lines().find_map(|l| l.strip_prefix(begin.as_str())).ok_or(format!("no {name}"))?;
        let value = line.split_once("= ").map_or("", |(_, value)| value.trim_end_matches(';'));
        if serde_json::from_str::<Value>(value).ok().as_ref() != Some(wanted) {
            return Err(format!("{name} is {value}, not {wanted}"));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    // Settings of the environment are not the scenarios'.
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("KVBM_")) {
        std::env::remove_var(name);
    }
    let constants: HashMap<String, Value> = match read_json(&folder().join("constants.json")) {
        Ok(Value::Object(all)) => all.into_iter().collect(),
        other => panic!("constants.json: {other:?}"),
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder().join("scenarios"))
        .expect("the scenarios' folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    println!("\nrunning {} scenarios", files.len());
    let done: Vec<_> = files.iter().filter_map(|file| run_file(file, &constants, &wanted)).collect();
    let constants_are_right = check_constants(&constants);
    println!("test constants ... {}", if constants_are_right.is_ok() { "ok" } else { "FAILED" });
    let done: Vec<_> = done.into_iter().chain([constants_are_right]).collect();
    let failed: Vec<_> = done.iter().filter_map(|d| d.as_ref().err()).collect();
    failed.iter().for_each(|why| println!("\n---- {why}"));
    let result = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {} passed; {} failed; of the conformance scenarios\n",
        done.len() - failed.len(),
        failed.len()
    );
    if failed.is_empty() && !files.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
