// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patterns of mnemonics: `{a,b}` means either, `*` at the end any ending.

/// Whether `name` fits `pattern`.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('{') else {
        return match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
    };
    let Some(name) = name.strip_prefix(before) else {
        return false;
    };
    let (choices, rest) = rest.split_once('}').expect("braces in the class table are in pairs");
    choices.split(',').any(|choice| name.strip_prefix(choice).is_some_and(|name| fits(rest, name)))
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn braces_and_endings() {
        for (pattern, name, want) in [
            ("vaddps", "vaddps", true),
            ("vaddps", "vaddpsx", false),
            ("v{add,sub}{ps,pd}", "vsubpd", true),
            ("v{add,sub}{ps,pd}", "vaddsd", false),
            ("v{add,addsub}ps", "vaddsubps", true),
            ("vp{and,or}{,d,q}", "vpand", true),
            ("vcvt*", "vcvtdq2ps", true),
            ("vp{sll,srl}*", "vpsrlvd", true),
            ("vp{sll,srl}*", "vpsravd", false),
        ] {
            assert_eq!(fits(pattern, name), want, "{pattern} {name}");
        }
    }
}
