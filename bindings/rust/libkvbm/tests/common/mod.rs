// SPDX-License-Identifier: Apache-2.0
//! A small world for tests: a context, a manager, a namespace and a cache.
#![allow(dead_code)] // each test program uses some of it

use libkvbm::*;

pub const BLOCK: usize = 8192;

pub struct World {
    pub context: Context,
    pub manager: Manager,
    pub ns: Namespace,
}

pub fn world_of(settings: &[(&str, &str)], options: ManagerOptions) -> World {
    let context = Context::with_settings(settings.iter().copied()).unwrap();
    let manager = Manager::new(&context, &options).unwrap();
    let ns = Namespace::open(&manager, &NamespaceOptions { model: "test".into(), ..Default::default() }).unwrap();
    World { context, manager, ns }
}

/// Host room for about so many blocks.
pub fn world(host_blocks: u64) -> World {
    let host_capacity_bytes = 4096 + host_blocks * (BLOCK as u64 + 384);
    world_of(&[], ManagerOptions { block_bytes: BLOCK as u64, host_capacity_bytes, ..Default::default() })
}

impl World {
    pub fn keys(&self, first: u32, n: u32) -> Vec<Key> {
        let tokens: Vec<u32> = (0..n * 4).map(|i| first + i).collect();
        self.ns.key_chain(None, &tokens, 4).unwrap()
    }
    pub fn cache(&self, n_blocks: u32) -> Cache {
        Cache::attach(&self.manager, &self.ns, CacheMemory::opaque(n_blocks, BLOCK).unwrap()).unwrap()
    }
    pub fn registered(&self, keys: &[Key], fill: u8) -> RegisteredBlocks {
        let mut blocks = self.manager.allocate(&self.ns, keys.len()).unwrap();
        blocks.views_mut().unwrap().into_slices().for_each(|bytes| bytes.fill(fill));
        blocks.complete().unwrap().register(&self.ns, keys).unwrap()
    }
    pub fn hits(&self, keys: &[Key]) -> usize {
        self.manager.lookup(&self.ns, keys, &LookupOptions::default()).unwrap().hits()
    }
}
