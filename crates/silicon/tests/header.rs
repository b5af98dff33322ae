// SPDX-License-Identifier: MIT OR Apache-2.0
//! include/silicon.h is what cbindgen makes of src/abi.rs. `UPDATE=1` makes it so.

use std::path::Path;

/// The header in the tree is the generated one.
#[test]
fn header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/abi.rs"))
        .with_src(root.join("src/machine/mod.rs"))
        .with_src(root.join("src/clocks.rs"))
        .with_src(root.join("src/settings.rs"))
        .generate()
        .unwrap();
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    let path = root.join("include/silicon.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &generated).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == generated,
        "include/silicon.h is stale. Run: UPDATE=1 cargo test -p silicon --test header"
    );
}
