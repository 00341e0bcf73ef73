//! Builds `liburinglet.so` by a cargo of its own: it is another kind of program than the one that
//! embeds it (no libc, `panic = "abort"`, link arguments), so cargo cannot build both at once.
//!
//! `URINGLET_OBJECT` at build time: a path takes that file; `none` embeds nothing, and
//! `URINGLET_LIB` has to name the object at run time.

mod nested;
mod sources;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const VARIABLE: &str = "URINGLET_OBJECT";

type Failure = String;

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    match embed() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("uringlet-object: {failure}");
            eprintln!("uringlet-object: {VARIABLE}=PATH takes a liburinglet.so that is built already; {VARIABLE}=none embeds none");
            ExitCode::FAILURE
        }
    }
}

fn embed() -> Result<(), Failure> {
    let out = PathBuf::from(variable("OUT_DIR")?);
    let object = object(&out)?;
    let value = match object {
        None => "None".to_owned(),
        Some(path) => {
            check(&path)?;
            let embedded = out.join("liburinglet.so");
            copy(&path, &embedded)?;
            "Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/liburinglet.so\")))".to_owned()
        }
    };
    let text = format!("/// The content of `liburinglet.so`; `None`: it was built without.\npub const OBJECT: Option<&[u8]> = {value};\n");
    let to = out.join("object.rs");
    fs::write(&to, text).map_err(|error| format!("writing {}: {error}", to.display()))
}

/// The file to embed.
fn object(out: &Path) -> Result<Option<PathBuf>, Failure> {
    match env::var_os(VARIABLE) {
        Some(value) if value == "none" => Ok(None),
        Some(value) if !value.is_empty() => {
            println!("cargo:rerun-if-changed={}", value.display());
            Ok(Some(value.into()))
        }
        // docs.rs has no network, and needs no object.
        _ if env::var_os("DOCS_RS").is_some() || !is_supported()? => Ok(None),
        _ => nested::build(&sources::prepare(out)?, out).map(Some),
    }
}

/// Elsewhere the crate is built, and `init` answers that it cannot help.
fn is_supported() -> Result<bool, Failure> {
    Ok(variable("CARGO_CFG_TARGET_OS")? == "linux" && variable("CARGO_CFG_TARGET_ARCH")? == "x86_64")
}

/// An ELF object of 64 bits for x86-64.
fn check(path: &Path) -> Result<(), Failure> {
    const ET_DYN: u8 = 3;
    const EM_X86_64: u8 = 62;
    let bytes = fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    let is_object = bytes.starts_with(b"\x7fELF\x02\x01") && bytes.get(16) == Some(&ET_DYN) && bytes.get(18) == Some(&EM_X86_64);
    if is_object { Ok(()) } else { Err(format!("{} is no shared object for x86-64", path.display())) }
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::copy(from, to).map(drop).map_err(|error| format!("copying {} to {}: {error}", from.display(), to.display()))
}

fn variable(name: &str) -> Result<String, Failure> {
    env::var(name).map_err(|_| format!("cargo has not set {name}"))
}
