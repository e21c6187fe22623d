//! Compiles a digest of all Rust sources into the extension, so that the service detects a stale extension at start.
//!
//! `src/adapters/engine/extension_check.py` computes the same digest over a checkout: SHA-256 over, for every file in the order of the paths,
//! the path relative to the checkout with `/`, a zero byte, the content, a zero byte.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    let bindings = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let root = bindings
        .ancestors()
        .nth(2)
        .ok_or_else(|| io::Error::other("the workspace is two folders up"))?;
    let mut files = vec!["Cargo.toml".to_owned(), "Cargo.lock".to_owned()];
    collect(root, Path::new("rust"), &mut files)?;
    files.sort();
    let mut digest = Sha256::new();
    for file in &files {
        digest.update(file.as_bytes());
        digest.update([0]);
        digest.update(fs::read(root.join(file))?);
        digest.update([0]);
    }
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=LATCHBOARD_SOURCE_DIGEST={hex}");
    println!("cargo::rerun-if-changed={}", root.join("rust").display());
    println!("cargo::rerun-if-changed={}", root.join("Cargo.toml").display());
    println!("cargo::rerun-if-changed={}", root.join("Cargo.lock").display());
    Ok(())
}

/// Sources and manifests below `folder`, without build results.
fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = folder.join(&name);
        if entry.file_type()?.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(root, &path, files)?;
            }
        } else if name.ends_with(".rs") || name == "Cargo.toml" {
            files.push(
                path.components()
                    .map(|part| part.as_os_str().to_string_lossy())
                    .collect::<Vec<_>>()
                    .join("/"),
            );
        }
    }
    Ok(())
}
