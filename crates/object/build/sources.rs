//! Where the sources of the object are: in the checkout, or in the published package, as a folder
//! `object`. Cargo leaves out nested packages, so their manifests have another name there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Failure, copy, variable};

/// The folder of the published package.
const PACKAGED: &str = "object";
/// The name of a manifest there.
const PACKAGED_MANIFEST: &str = "Cargo.toml.in";
/// What the object is built from, in both.
const INPUTS: [&str; 7] = ["Cargo.toml", "Cargo.lock", "crates/abi", "crates/sys", "crates/core", "crates/ublk", "crates/attach"];

/// The folder with the workspace that has the object's package.
pub(crate) fn prepare(out: &Path) -> Result<PathBuf, Failure> {
    let own = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let packaged = own.join(PACKAGED);
    if packaged.is_dir() {
        println!("cargo:rerun-if-changed={}", packaged.display());
        let folder = out.join("sources");
        unpack(&packaged, &folder)?;
        return Ok(folder);
    }
    let checkout = own.join("../..").canonicalize().map_err(|error| format!("looking for the checkout: {error}"))?;
    for input in INPUTS {
        let input = checkout.join(input);
        if !input.exists() {
            return Err(format!("there is neither {} nor {}", packaged.display(), input.display()));
        }
        println!("cargo:rerun-if-changed={}", input.display());
    }
    Ok(checkout)
}

/// Copies a folder and gives manifests their name. The package's own folder may not be changed.
fn unpack(from: &Path, to: &Path) -> Result<(), Failure> {
    let failed = |error| format!("copying {} to {}: {error}", from.display(), to.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if entry.path().is_dir() {
            unpack(&entry.path(), &to.join(name))?;
        } else {
            let name = if name == PACKAGED_MANIFEST { "Cargo.toml".into() } else { name };
            copy(&entry.path(), &to.join(name))?;
        }
    }
    Ok(())
}
