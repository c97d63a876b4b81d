// SPDX-License-Identifier: Apache-2.0
//! Managers as nodes, and as members of a shared tier set.

use std::time::Duration;

use libkvbm_sys as sys;

use crate::error::{check, explained, Error, Result, Status};
use crate::handle::{nanoseconds, options, pointer, read_text};
use crate::key::{raw_keys, Key};
use crate::manager::Manager;
use crate::namespace::Namespace;
use crate::types::{Part, TierNumber};

/// A node that is connected, or an address of `node.peers`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as kvbm_node_row_t
pub struct NodeRow {
    /// `None` until a node has answered at the address.
    pub node: Option<[u8; 16]>,
    pub address: String,
    /// "ready", or in words why it is not.
    pub state: String,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub records: u64,
    pub fetched_bytes: u64,
    pub served_bytes: u64,
    /// "local", "tcp", or "" until known.
    pub path: String,
    pub path_reason: String,
    pub local_bytes: u64,
    /// That large reads are asked with now: the number of a [`crate::codec::Mode`].
    pub codec: u32,
    /// `node.codec = auto` has chosen it.
    pub codec_automatic: bool,
    /// Nothing is taken from it that is not sealed.
    pub codec_sealed: bool,
    /// Records refused on arrival.
    pub codec_refused: u32,
    /// Payload of records that came coded or sealed, after decoding.
    pub codec_plain_bytes: u64,
    /// And as it came.
    pub codec_stored_bytes: u64,
}

pub(crate) fn fixed_text(text: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = text.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl From<&sys::kvbm_node_row_t> for NodeRow {
    fn from(raw: &sys::kvbm_node_row_t) -> Self {
        NodeRow {
            node: Some(raw.node).filter(|n| *n != [0; 16]),
            address: fixed_text(&raw.address),
            state: fixed_text(&raw.state),
            capacity_bytes: raw.capacity_bytes,
            used_bytes: raw.used_bytes,
            records: raw.records,
            fetched_bytes: raw.fetched_bytes,
            served_bytes: raw.served_bytes,
            path: fixed_text(&raw.path),
            path_reason: fixed_text(&raw.path_reason),
            local_bytes: raw.local_bytes,
            codec: u32::from(raw.codec),
            codec_automatic: raw.codec_automatic != 0,
            codec_sealed: raw.codec_sealed != 0,
            codec_refused: raw.codec_refused,
            codec_plain_bytes: raw.codec_plain_bytes,
            codec_stored_bytes: raw.codec_stored_bytes,
        }
    }
}

/// Which requests' keys [`Manager::locate`] is given.
#[derive(Clone, Debug, Default)]
pub struct LocateOptions {
    /// Empty = component 0 of the whole model.
    pub parts: Vec<Part>,
    /// How many of the keys each request has, one request after the other; empty = all are one request's.
    pub request_keys: Vec<usize>,
    /// Ask the nodes that are connected, and wait so long for their answers; zero = own tiers alone.
    pub ask_nodes: Duration,
}

/// How far one node has the keys of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as kvbm_location_t
pub struct Location {
    /// `None`: this manager.
    pub node: Option<[u8; 16]>,
    pub request: u32,
    /// As the node numbers its own.
    pub tier: TierNumber,
    /// Number of leading keys in this tier or faster ones.
    pub n_prefix: u64,
    pub n_in_tier: u64,
    pub bytes: u64,
}

/// Result of [`Manager::locate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// By request, the longest prefix first.
    pub rows: Vec<Location>,
    /// False: some node has not answered all of it in time, and what it did not answer counts as absent.
    pub complete: bool,
}

/// Role of this process in a shared tier set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareRole {
    /// Not shared.
    Off,
    /// Owner: has the disk open.
    Owner,
    /// Client: asks the owner.
    Client,
    /// A client that is looking for the next owner.
    NoOwner,
}

/// How a shared tier set is doing, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as kvbm_share_t
pub struct Share {
    pub role: ShareRole,
    /// 0: none.
    pub owner_pid: u64,
    pub clients: u64,
    pub takeovers: u64,
    pub owners_lost: u64,
    pub silent_lookups: u64,
}

/// Fills a list of rows; their number may grow between calls.
pub(crate) fn read_rows<T: Clone + Default>(
    mut call: impl FnMut(*mut T, usize, *mut usize) -> Result<Status>,
) -> Result<(Vec<T>, Status)> {
    let mut rows = vec![T::default(); 64];
    loop {
        let mut n = 0;
        let status = call(rows.as_mut_ptr(), rows.len(), &mut n)?;
        if n <= rows.len() {
            rows.truncate(n);
            return Ok((rows, status));
        }
        rows.resize(n + 16, T::default());
    }
}

impl Manager {
    /// Waits until every address of `node.peers` is a connected node that has reported its contents. The first lookup
    /// that asks nodes then asks all of them. Returns at once for a manager without `node.peers`. `None`: for ever.
    /// Errors, with the addresses that are not connected and the reasons: DEADLINE; PERMISSION if they refuse this
    /// node.
    pub fn wait_for_peers(&self, timeout: Option<Duration>) -> Result<()> {
        let manager = self.raw()?;
        // SAFETY: the handle is live, and the slot is explained's.
        explained(|err| unsafe { sys::kvbm_manager_wait_for_peers(manager, nanoseconds(timeout), err) }).map(drop)
    }

    /// The nodes that are connected and the addresses that are not; none for a manager that is no node.
    pub fn nodes(&self) -> Result<Vec<NodeRow>> {
        let raw = self.raw()?;
        // SAFETY: the handle is live, and there is room as is said.
        let (rows, _) =
            read_rows(|rows, capacity, n| check(unsafe { sys::kvbm_manager_nodes(raw, rows, capacity, n) }))?;
        Ok(rows.iter().map(|r: &sys::kvbm_node_row_t| r.into()).collect())
    }

    /// The address on which this manager listens, with the port that it got; empty if it does not.
    pub fn node_address(&self) -> Result<String> {
        let raw = self.raw()?;
        // SAFETY: the handle is live, and read_text gives room as it says.
        read_text(|out, capacity, needed| unsafe { sys::kvbm_manager_node_address(raw, out, capacity, needed) })
    }

    /// Says which node has the longest prefix of each request, and in which tiers. Holds nothing: what is there now may
    /// be gone later.
    pub fn locate(&self, ns: &Namespace, keys: &[Key], given: &LocateOptions) -> Result<Located> {
        let parts = Part::raw_list(&given.parts);
        let mut options = options!(kvbm_locate_options_init, kvbm_locate_options_t);
        options.parts = pointer(&parts);
        options.n_parts = parts.len();
        options.request_keys = pointer(&given.request_keys);
        options.n_requests = given.request_keys.len();
        options.ask_nodes_ns = nanoseconds(Some(given.ask_nodes));
        let (raw, ns) = (self.raw()?, ns.raw()?);
        // SAFETY: handles are live, and every list is as long as is said.
        let (rows, status) = read_rows(|rows, capacity, n| {
            check(unsafe { sys::kvbm_manager_locate(raw, ns, raw_keys(keys), keys.len(), &options, rows, capacity, n) })
        })?;
        let location = |r: &sys::kvbm_location_t| Location {
            node: Some(r.node).filter(|n| *n != [0; 16]),
            request: r.request,
            tier: TierNumber(r.tier),
            n_prefix: r.n_prefix,
            n_in_tier: r.n_in_tier,
            bytes: r.bytes,
        };
        Ok(Located { rows: rows.iter().map(location).collect(), complete: status.is_ok() })
    }

    /// Role of this process in a shared tier set.
    pub fn share(&self) -> Result<Share> {
        let handle = self.raw()?;
        let struct_size = std::mem::size_of::<sys::kvbm_share_t>() as u32;
        let mut raw = sys::kvbm_share_t { struct_size, ..Default::default() };
        // SAFETY: the handle is live, and struct_size is set.
        check(unsafe { sys::kvbm_manager_share(handle, &mut raw) })?;
        let role = match raw.role {
            sys::KVBM_SHARE_OFF => ShareRole::Off,
            sys::KVBM_SHARE_OWNER => ShareRole::Owner,
            sys::KVBM_SHARE_CLIENT => ShareRole::Client,
            sys::KVBM_SHARE_NO_OWNER => ShareRole::NoOwner,
            other => return Err(Error::new(Status::UNSUPPORTED, format!("share role {other} is not known here"))),
        };
        Ok(Share {
            role,
            owner_pid: raw.owner_pid,
            clients: raw.clients,
            takeovers: raw.takeovers,
            owners_lost: raw.owners_lost,
            silent_lookups: raw.silent_lookups,
        })
    }
}
