// SPDX-License-Identifier: Apache-2.0
//! What a first use of the crate meets: an empty load, what an error says, what objects print as.

use std::time::Duration;

use libkvbm::{
    Context, ContextOptions, Key, LookupOptions, Manager, ManagerOptions, Namespace, NamespaceOptions, Part, Status,
    TierNumber,
};

fn shown<T: std::fmt::Debug>(item: &T) -> String {
    format!("{item:?}")
}

#[test]
fn objects_print_what_they_are_and_peers_are_waited_for() {
    let context = Context::new(&ContextOptions::default()).unwrap();
    let options = ManagerOptions { block_bytes: 4096, host_capacity_bytes: 1 << 20, ..Default::default() };
    let manager = Manager::new(&context, &options).unwrap();
    let secret = NamespaceOptions { model: "m".into(), secret: Some([0x5a; 32]), ..Default::default() };
    assert!(!shown(&secret).contains("90"), "the secret is not shown");
    let ns = Namespace::open(&manager, &secret).unwrap();
    manager.wait_for_peers(Some(Duration::ZERO)).unwrap();
    manager.wait_for_peers(None).unwrap();
    let nothing = manager.lookup(&ns, &[Key([7; 16])], &LookupOptions::default()).unwrap();
    for text in [shown(&context), shown(&manager), shown(&ns)] {
        assert!(text.ends_with(".. }"), "{text}");
    }
    assert_eq!(shown(&nothing), "Match { hits: 0, units: 0, .. }");
    assert_eq!(format!("{:?} {}", Status::OK, Status::MISS), "KVBM_OK KVBM_ERR_MISS");
    assert_eq!(format!("{:?} {}", TierNumber::HOST, TierNumber(2)), "host tier 2");
    let refused = manager.offload(&ns, Part::default(), &[Key([7; 16])], 9).map(drop).unwrap_err();
    assert!(refused.message().contains("tier is 9"), "{refused}");
}
