// SPDX-License-Identifier: MIT OR Apache-2.0
//! Existing names that are similar to a mistyped one. Here because every crate that takes a name
//! (of a machine, scenario, policy, setting or function) uses this one.

/// How many names are suggested.
const SUGGESTIONS: usize = 3;

/// Up to three of `names` that resemble `wanted`: by edit distance (at most a third of the
/// length), and names that contain it or are contained in it. Best first.
pub fn near_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let lower = wanted.to_lowercase();
    let mut found: Vec<(usize, &str)> = names
        .filter(|name| !name.is_empty())
        .filter_map(|name| Some((distance_if_near(&lower, &name.to_lowercase())?, name)))
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(SUGGESTIONS).map(|(_, name)| name.to_string()).collect()
}

/// What was probably meant, as the start of advice: `did you mean "slice"? If not, `. Empty if
/// nothing resembles it.
pub fn did_you_mean<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    match near_names(wanted, names).first() {
        Some(near) => format!("did you mean \"{near}\"? If not, "),
        None => String::new(),
    }
}

fn distance_if_near(wanted: &str, name: &str) -> Option<usize> {
    let difference = wanted.len().abs_diff(name.len());
    let limit = wanted.len().div_ceil(3);
    if difference <= limit {
        let distance = edit_distance(wanted.as_bytes(), name.as_bytes());
        if distance <= limit {
            return Some(distance);
        }
    }
    // After every name that is merely mistyped: a fragment of a longer one.
    let fragment = wanted.len() >= 4 && (name.contains(wanted) || wanted.contains(name));
    fragment.then_some(limit + difference).filter(|_| name.len() >= 4)
}

/// Levenshtein distance, one row at a time.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, byte_a) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, byte_b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(byte_a != byte_b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Typing errors come before fragments, and strangers do not come at all.
    #[test]
    fn suggests_what_is_close() {
        let names = ["EVP_EncryptUpdate", "EVP_EncryptFinal", "EVP_EncryptUpdate_ex", "free"];
        let near = |wanted| near_names(wanted, names.iter().copied());
        assert_eq!(near("EVP_EncryptUpdat")[0], "EVP_EncryptUpdate");
        assert_eq!(near("evp_encryptupdate")[0], "EVP_EncryptUpdate");
        assert_eq!(near("EncryptUpdate"), ["EVP_EncryptUpdate", "EVP_EncryptUpdate_ex"]);
        assert!(near("malloc_usable_size").is_empty());
    }

    /// The distance counts insertions, deletions and replacements.
    #[test]
    fn distance_counts_edits() {
        for (a, b, distance) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)] {
            assert_eq!(edit_distance(a.as_bytes(), b.as_bytes()), distance);
        }
    }
}
