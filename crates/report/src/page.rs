// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that need nothing but a browser: a template with holes, and what may stand in them.

/// The template with its holes filled, in one pass: what a hole is filled with is not looked at
/// again, whatever it contains.
pub(crate) fn fill(template: &str, holes: &[(&str, String)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("a hole ends");
        let (_, text) = holes.iter().find(|(hole, _)| *hole == name).expect("a known hole");
        page += before;
        page += text;
        rest = after;
    }
    page + rest
}

/// JSON that can stand in a script element: `</script>` and `<!--` in a string would end or change
/// it. `<` occurs in JSON inside of strings only, where its escape means the same.
pub(crate) fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Text that can stand between tags.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
