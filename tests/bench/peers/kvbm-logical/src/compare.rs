//! Runs `kvbm bench index` and `measure` (which lies beside this program) in turn, alternating which one starts. Prints
//! the medians of both as a table, or with --json as an array of {name, value, unit, limit, limit_name, ratio}. Values
//! are times, and the ratio says how many times as long the crate takes.
//!   compare --command KVBM [--rounds N] [--json]
use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{json, Value};

const LIMIT_NAME: &str = "kvbm-logical 1.6.1";

type Failure = Box<dyn Error>;

struct Options {
    command: PathBuf,
    rounds: usize,
    json: bool,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options { command: PathBuf::new(), rounds: 7, json: false };
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--command" => options.command = arguments.next().ok_or("--command needs a path")?.into(),
            "--rounds" => {
                let text = arguments.next().ok_or("--rounds needs a number")?;
                options.rounds = text.parse().ok().filter(|n| *n > 0).ok_or("--rounds needs a number above 0")?;
            }
            "--json" => options.json = true,
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    if options.command.as_os_str().is_empty() {
        return Err("--command is wanted: the kvbm command to measure".into());
    }
    Ok(options)
}

fn rows_of(program: &Path, arguments: &[&str]) -> Result<Vec<Value>, Failure> {
    let done = Command::new(program).args(arguments).output().map_err(|e| format!("{}: {e}", program.display()))?;
    if !done.status.success() {
        return Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(serde_json::from_slice(&done.stdout)?)
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// One figure of both sides, a sample a round.
#[derive(Default)]
struct Figure {
    name: String,
    ours: Vec<f64>,
    theirs: Vec<(String, Vec<f64>)>, // by backend, the default first
}

impl Figure {
    /// Two rows: against the backend that is best at this and against the default one.
    fn rows(mut self) -> [Value; 2] {
        let value = median(&mut self.ours);
        let row = |name: String, limit: f64, limit_name: String| {
            json!({"name": name, "value": value, "unit": "ns", "limit": limit, "limit_name": limit_name,
                   "ratio": limit / value})
        };
        let limits: Vec<f64> = self.theirs.iter_mut().map(|(_, samples)| median(samples)).collect();
        let least = limits.iter().copied().fold(f64::INFINITY, f64::min);
        [
            row(format!("{}_vs_kvbm_logical", self.name), least, LIMIT_NAME.to_owned()),
            row(
                format!("{}_vs_kvbm_logical_default", self.name),
                limits.first().copied().unwrap_or(f64::INFINITY),
                format!("{LIMIT_NAME}, its default backend"),
            ),
        ]
    }
}

fn number(row: &Value) -> Result<f64, Failure> {
    Ok(row["value"].as_f64().ok_or_else(|| format!("{}: no number", row["name"]))?)
}

/// Adds a round; the figures are those that the crate's side tells.
fn note(figures: &mut Vec<Figure>, ours: &[Value], theirs: &[Value]) -> Result<(), Failure> {
    for row in theirs {
        let (name, backend) = (row["name"].as_str().unwrap_or_default(), row["backend"].as_str().unwrap_or_default());
        let at = figures.iter().position(|figure| figure.name == name).unwrap_or_else(|| {
            figures.push(Figure { name: name.to_owned(), ..Figure::default() });
            figures.len() - 1
        });
        let of_backends = &mut figures[at].theirs;
        match of_backends.iter_mut().find(|(known, _)| known == backend) {
            Some((_, samples)) => samples.push(number(row)?),
            None => of_backends.push((backend.to_owned(), vec![number(row)?])),
        }
    }
    for figure in figures {
        let mine = ours.iter().find(|row| row["name"] == figure.name && row["unit"] == "ns");
        figure.ours.push(number(mine.ok_or_else(|| format!("kvbm does not tell {} in ns", figure.name))?)?);
    }
    Ok(())
}

/// Ours takes a seventh of the time or less: with seven rounds in one run both sides watch the machine about as long.
fn compare(options: &Options) -> Result<Vec<Value>, Failure> {
    let peer = env::current_exe()?.with_file_name("measure");
    let mut figures = Vec::new();
    for round in 0..options.rounds {
        eprintln!("peers: round {} of {}", round + 1, options.rounds);
        let run_ours = || rows_of(&options.command, &["bench", "index", "--json", "--rounds", "7"]);
        let run_theirs = || rows_of(&peer, &["1"]);
        if round % 2 == 0 {
            let ours = run_ours()?;
            note(&mut figures, &ours, &run_theirs()?)?;
        } else {
            let theirs = run_theirs()?;
            note(&mut figures, &run_ours()?, &theirs)?;
        }
    }
    Ok(figures.into_iter().flat_map(Figure::rows).collect())
}

fn print_table(rows: &[Value]) {
    println!("{:<48}  {:>8}  {:<4}  {:>8}  {:>6}  the limit is", "what", "value", "unit", "limit", "ratio");
    for row in rows {
        println!(
            "{:<48}  {:>8.1}  {:<4}  {:>8.1}  {:>6.2}  {}",
            row["name"].as_str().unwrap_or_default(),
            row["value"].as_f64().unwrap_or_default(),
            row["unit"].as_str().unwrap_or_default(),
            row["limit"].as_f64().unwrap_or_default(),
            row["ratio"].as_f64().unwrap_or_default(),
            row["limit_name"].as_str().unwrap_or_default()
        );
    }
    println!("\nratio: 1 is the limit, higher is better");
}

fn main() -> ExitCode {
    let run = || -> Result<(), Failure> {
        let options = options()?;
        let rows = compare(&options)?;
        if options.json {
            println!("{:#}", Value::from(rows));
        } else {
            print_table(&rows);
        }
        Ok(())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: error: {error}");
            ExitCode::FAILURE
        }
    }
}
