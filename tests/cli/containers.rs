// SPDX-License-Identifier: MIT OR Apache-2.0
//! What dist/container and dist/kubernetes start is something that the command understands.

use std::fs;

use crate::{root, turbolane};

/// The words of a list such as `[run, --mode, scx]` or `["advise"]`.
fn words(list: &str) -> Vec<String> {
    let list = list.trim().trim_start_matches('[').trim_end_matches(']');
    list.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

/// What follows this key in a file, on lines that begin with it.
fn lists(file: &str, key: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("dist").join(file)).unwrap();
    text.lines().filter_map(|line| line.trim().strip_prefix(key)).map(words).collect()
}

#[test]
fn commands_are_understood() {
    for (file, key) in [
        ("container/Containerfile", "CMD "),
        ("kubernetes/advise.yaml", "args: "),
        ("kubernetes/lane.yaml", "args: "),
    ] {
        let lists = lists(file, key);
        assert_eq!(lists.len(), 1, "{file}");
        // A flag or value that is wrong is refused before the help is printed.
        let output = turbolane().args(&lists[0]).arg("--help").output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{file}: {:?}: {why}", lists[0]);
        let wrong = turbolane().args(&lists[0]).args(["--no-such", "--help"]).output().unwrap();
        assert_eq!(wrong.status.code(), Some(2), "{file}");
    }
}

/// The unit of the package and the pod that runs the lane have the same sockets.
#[test]
fn sockets_are_shared() {
    let pod = fs::read_to_string(root().join("dist/kubernetes/lane.yaml")).unwrap();
    let unit = fs::read_to_string(root().join("dist/turbolane.service")).unwrap();
    assert!(unit.contains("RuntimeDirectory=turbolane"));
    assert_eq!(pod.matches("/run/turbolane").count(), 2, "the mount and the node's folder");
}
