// SPDX-License-Identifier: Apache-2.0
//! Users of each block of a cache's memory: guards of this program, and operations of the library.
//!
//! A cell is one block in one tensor. It is free, read by some, or written by one. Claims that are forgotten
//! (`mem::forget`) stay: their blocks are refused from then on, never aliased.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result, Status};
use crate::memory::Memory;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Any number of readers.
    Read,
    /// One writer.
    Write,
}

/// For each cell how many read it, or -1 for a writer.
pub(crate) struct Ledger {
    cells: Mutex<Box<[i32]>>,
    blocks: usize,
}

/// The blocks `ids` of the tensors [first, first + n).
#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) first: usize,
    pub(crate) n: usize,
    pub(crate) ids: Vec<u32>,
}

impl Ledger {
    pub(crate) fn new(tensors: usize, blocks: usize) -> Self {
        Ledger { cells: Mutex::new(vec![0; tensors * blocks].into_boxed_slice()), blocks }
    }

    fn cells_of<'a>(&'a self, regions: &'a [Region]) -> impl Iterator<Item = usize> + 'a {
        regions.iter().flat_map(move |r| {
            (r.first..r.first + r.n).flat_map(move |tensor| {
                // An id that names no block claims none; the library refuses or skips it.
                r.ids
                    .iter()
                    .map(|id| *id as usize)
                    .filter(|id| *id < self.blocks)
                    .map(move |id| tensor * self.blocks + id)
            })
        })
    }

    /// Claims all blocks or none. A block to write that is named twice is refused too.
    pub(crate) fn claim(&self, access: Access, regions: &[Region]) -> Result<()> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        for (taken, cell) in self.cells_of(regions).enumerate() {
            let uses = &mut cells[cell];
            match (access, *uses) {
                (Access::Read, 0..) => *uses += 1,
                (Access::Write, 0) => *uses = -1,
                (_, now) => {
                    self.cells_of(regions).take(taken).for_each(|cell| give(&mut cells, access, cell));
                    return Err(self.refusal(access, cell, now));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn release(&self, access: Access, regions: &[Region]) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        self.cells_of(regions).for_each(|cell| give(&mut cells, access, cell));
    }

    fn refusal(&self, access: Access, cell: usize, now: i32) -> Error {
        let (tensor, block) = (cell / self.blocks, cell % self.blocks);
        let wanted = if access == Access::Read { "read" } else { "written" };
        let used = if now < 0 { "written by a load or a mutable borrow" } else { "read by a store or a borrow" };
        Error::new(Status::IN_USE, format!("block {block} of tensor {tensor} cannot be {wanted}: it is {used}"))
    }
}

fn give(cells: &mut [i32], access: Access, cell: usize) {
    match access {
        Access::Read => cells[cell] -= 1,
        Access::Write => cells[cell] = 0,
    }
}

/// Regions that an operation of the library uses until this is dropped; keeps their memory.
pub(crate) struct Claim {
    memory: Arc<Memory>,
    access: Access,
    regions: Vec<Region>,
}

impl Claim {
    pub(crate) fn take(memory: &Arc<Memory>, access: Access, regions: Vec<Region>) -> Result<Claim> {
        memory.ledger.claim(access, &regions)?;
        Ok(Claim { memory: memory.clone(), access, regions })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.memory.ledger.release(self.access, &self.regions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(ids: &[u32]) -> Vec<Region> {
        vec![Region { first: 0, n: 2, ids: ids.to_vec() }]
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let ledger = Ledger::new(2, 4);
        ledger.claim(Access::Read, &region(&[0, 1])).unwrap();
        ledger.claim(Access::Read, &region(&[1, 2])).unwrap();
        assert_eq!(ledger.claim(Access::Write, &region(&[3, 2])).unwrap_err().status(), Status::IN_USE);
        ledger.claim(Access::Write, &region(&[3])).unwrap();
        assert!(ledger.claim(Access::Read, &region(&[0, 3])).is_err());
        ledger.release(Access::Read, &region(&[0, 1]));
        ledger.claim(Access::Write, &region(&[0])).unwrap();
        assert!(ledger.claim(Access::Write, &region(&[1])).is_err());
        ledger.release(Access::Read, &region(&[1, 2]));
        ledger.claim(Access::Write, &region(&[1, 2])).unwrap();
    }

    #[test]
    fn a_refused_claim_leaves_nothing_behind() {
        let ledger = Ledger::new(2, 4);
        assert!(ledger.claim(Access::Write, &region(&[1, 2, 1])).is_err());
        ledger.claim(Access::Write, &region(&[1, 2, u32::MAX, 9])).unwrap();
        ledger.release(Access::Write, &region(&[1, 2, u32::MAX, 9]));
        assert!(ledger.cells.lock().unwrap().iter().all(|c| *c == 0));
    }
}
