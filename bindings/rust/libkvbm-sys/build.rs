// SPDX-License-Identifier: Apache-2.0
//! Finds libkvbm: in $LIBKVBM_PREFIX, through pkg-config, or, with the feature `bundled`, by building the repository.
//!
//! Without $LIBKVBM_PREFIX it takes $KVBM_PREFIX, the name in the other bindings. libkvbm itself ignores both variables.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["LIBKVBM_PREFIX", "KVBM_PREFIX", "LIBKVBM_SOURCE", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if env::var_os("CARGO_FEATURE_BUNDLED").is_some() {
        build_from_source();
        return;
    }
    let prefix = |name| env::var_os(name).filter(|p| !p.is_empty());
    if let Some(prefix) = prefix("LIBKVBM_PREFIX").or_else(|| prefix("KVBM_PREFIX")) {
        link_prefix(Path::new(&prefix));
        return;
    }
    let (major, minor) = version_wanted();
    let probed = pkg_config::Config::new()
        .range_version(format!("{major}.{minor}.0").as_str()..format!("{major}.{}.0", minor + 1).as_str())
        .probe("kvbm");
    match probed {
        Ok(library) => library.link_paths.iter().for_each(|path| export(path)),
        Err(error) => panic!(
            "libkvbm {major}.{minor} was not found. Install it, or set LIBKVBM_PREFIX to where it is installed, \
             or build it with the feature `bundled`.\n{error}"
        ),
    }
}

/// Before 1.0 every minor version may break the ABI, so the library has the same one as the declarations.
fn version_wanted() -> (u32, u32) {
    let part = |name: &str| env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(0);
    (part("CARGO_PKG_VERSION_MAJOR"), part("CARGO_PKG_VERSION_MINOR"))
}

fn export(library_dir: &Path) {
    println!("cargo:libdir={}", library_dir.display());
}

fn link_prefix(prefix: &Path) {
    let folder = ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"]
        .iter()
        .map(|name| prefix.join(name))
        .find(|path| path.join("libkvbm.so").exists());
    let Some(folder) = folder else {
        panic!("the prefix is {}, and there is no libkvbm.so in its lib folder", prefix.display());
    };
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib=kvbm");
    println!("cargo:rerun-if-changed={}", folder.join("libkvbm.so").display());
    export(&folder);
}

fn source_folder() -> PathBuf {
    if let Some(source) = env::var_os("LIBKVBM_SOURCE") {
        return PathBuf::from(source);
    }
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    here.join("../../..")
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} ended with {status}"),
        Err(error) => panic!("{command:?} could not be started: {error}"),
    }
}

fn build_from_source() {
    let source = source_folder();
    if !source.join("include/kvbm.h").exists() {
        panic!(
            "the feature `bundled` builds kvbm's repository, which is not at {}; set LIBKVBM_SOURCE to it",
            source.display()
        );
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let (build, prefix) = (out.join("core"), out.join("installed"));
    for watched in ["lib", "include", "CMakeLists.txt"] {
        println!("cargo:rerun-if-changed={}", source.join(watched).display());
    }
    run(Command::new("cmake").arg("-S").arg(&source).arg("-B").arg(&build).args([
        "-DCMAKE_BUILD_TYPE=Release",
        "-DKVBM_BUILD_TESTS=OFF",
        "-DKVBM_BUILD_TOOLS=OFF",
        "-DKVBM_WITH_UCX=off",
        "-DCMAKE_INSTALL_LIBDIR=lib",
        &format!("-DCMAKE_INSTALL_PREFIX={}", prefix.display()),
    ]));
    let jobs = env::var("NUM_JOBS").unwrap_or_else(|_| "2".into());
    run(Command::new("cmake").arg("--build").arg(&build).args(["--parallel", &jobs]));
    run(Command::new("cmake").arg("--install").arg(&build));
    link_prefix(&prefix);
}
