// SPDX-License-Identifier: Apache-2.0
//! Passes blocks between processes of any language: `store` puts them into a tier set or offers them as a node, `fetch`
//! finds them and verifies every byte. bindings/rust/relay runs it.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libkvbm::{Context, Key, LookupOptions, Manager, ManagerOptions, Namespace, NamespaceOptions, Part, Result, Tier};

const BLOCK_BYTES: usize = 65536;
const BLOCK_TOKENS: u32 = 16;

#[derive(Default)]
struct Arguments {
    store: bool,
    tier: Option<PathBuf>,
    seed: u32,
    blocks: usize,
    settings: Vec<(String, String)>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments =
        Arguments { store: words.next().filter(|w| w == "store" || w == "fetch")? == "store", ..Default::default() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--tier" => arguments.tier = Some(words.next()?.into()),
            "--seed" => arguments.seed = words.next()?.parse().ok()?,
            "--blocks" => arguments.blocks = words.next()?.parse().ok()?,
            setting => {
                let (key, value) = setting.split_once('=')?;
                arguments.settings.push((key.into(), value.into()));
            }
        }
    }
    Some(arguments)
}

struct World {
    manager: Manager,
    ns: Namespace,
    keys: Vec<Key>,
}

fn open(arguments: &Arguments) -> Result<World> {
    let context = Context::with_settings(arguments.settings.clone())?;
    let tier = |path: &PathBuf| Tier::disk(path, 256 << 20);
    let tiers = arguments.tier.as_ref().map(|path| vec![tier(path)]);
    let options = ManagerOptions { block_bytes: BLOCK_BYTES as u64, tiers, ..Default::default() };
    let manager = Manager::new(&context, &options)?;
    let who = NamespaceOptions {
        tenant: "relay".into(),
        model: "relay-model".into(),
        secret: Some([7; 32]),
        ..Default::default()
    };
    let ns = Namespace::open(&manager, &who)?;
    let first = arguments.seed.wrapping_mul(1_000_003);
    let tokens: Vec<u32> = (0..arguments.blocks as u32 * BLOCK_TOKENS).map(|i| first.wrapping_add(i)).collect();
    let keys = ns.key_chain(None, &tokens, BLOCK_TOKENS)?;
    Ok(World { manager, ns, keys })
}

fn byte(seed: u32, block: usize, at: usize) -> u8 {
    (seed as usize + 31 * block + 7 * at + (at >> 8)) as u8
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    // The reader may be gone; the store continues until its input ends.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn store(arguments: &Arguments) -> Result<()> {
    let World { manager, ns, keys } = open(arguments)?;
    let mut blocks = manager.allocate(&ns, keys.len())?;
    for (i, view) in blocks.views_mut()?.into_slices().enumerate() {
        view.iter_mut().enumerate().for_each(|(j, b)| *b = byte(arguments.seed, i, j));
    }
    let blocks = blocks.complete()?.register(&ns, &keys)?;
    manager.flush(Some(Duration::from_secs(30)))?;
    say(&format!("stored {}", blocks.len()));
    let address = manager.node_address()?;
    if !address.is_empty() {
        say(&format!("node {address}"));
    }
    say("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    blocks.release()
}

fn fetch(arguments: &Arguments) -> Result<usize> {
    let World { manager, ns, keys } = open(arguments)?;
    let options = LookupOptions { ask_nodes: Duration::from_secs(2), ..Default::default() };
    let until = Instant::now() + Duration::from_secs(10);
    while manager.lookup(&ns, &keys, &options)?.hits() < keys.len() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    manager.prefetch(&ns, Part::default(), &keys)?;
    let found = manager.lookup(&ns, &keys, &options)?;
    let present = found.present(0, 0..found.hits())?;
    let views = present.blocks.views()?;
    let right = |(view, block): (&[u8], &usize)| {
        view.len() == BLOCK_BYTES && view.iter().enumerate().all(|(j, b)| *b == byte(arguments.seed, *block, j))
    };
    Ok(views.iter().zip(&present.indices).filter(|pair| right(*pair)).count())
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("usage: relay store|fetch [--tier DIR] --seed S --blocks N KEY=VALUE...");
        return ExitCode::from(2);
    };
    let done = if arguments.store { store(&arguments).map(|()| arguments.blocks) } else { fetch(&arguments) };
    match done {
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Ok(_) if arguments.store => ExitCode::SUCCESS,
        Ok(verified) => {
            say(&format!("verified {verified} of {}", arguments.blocks));
            if verified == arguments.blocks {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
