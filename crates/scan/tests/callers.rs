// SPDX-License-Identifier: MIT OR Apache-2.0
//! The call graph, on libraries that are assembled here: which marks cover a function.

mod common;

use common::{Built, function};
use scan::{Callers, Limits, Reach, ScanError, Start, Uncovered, callers};

/// A function whose address is in data.
const STORED: &str = "
    .data
    .quad stored
    .text
stored: ret
";

struct Library {
    graph: Callers,
    symbols: std::collections::HashMap<String, u64>,
}

/// A library with these functions, of which only `api` is exported.
fn library(functions: &[(&str, &str)]) -> Library {
    use object::{Object, ObjectSymbol};
    let built = Built::new();
    let hide = |name: &str| match name {
        "api" => String::new(),
        name => format!(".hidden {name}\n"),
    };
    let one = |(name, body): &(&str, &str)| function(name, body) + &hide(name);
    let text: String = functions.iter().map(one).collect();
    let bytes = built.link("a.so", &(STORED.to_owned() + &text));
    let file = object::File::parse(&*bytes).unwrap();
    let symbols =
        file.symbols().map(|symbol| (symbol.name().unwrap().to_owned(), symbol.address()));
    let symbols = symbols.collect();
    Library { graph: callers(&bytes, &Limits::default()).unwrap(), symbols }
}

impl Library {
    /// The functions to mark for `name`, if only `markable` can be marked.
    fn cover(&self, name: &str, markable: &[&str]) -> Result<Vec<u64>, Uncovered> {
        let markable: Vec<u64> = markable.iter().map(|name| self.symbols[*name]).collect();
        let is_markable = |start: Start| markable.contains(&start.address);
        let marks = self.graph.cover(self.symbols[name], 4, is_markable)?;
        Ok(marks.into_iter().map(|start| start.address).collect())
    }

    fn addresses(&self, names: &[&str]) -> Vec<u64> {
        let mut addresses: Vec<u64> = names.iter().map(|name| self.symbols[*name]).collect();
        addresses.sort_unstable();
        addresses
    }
}

/// All callers are marked, by call and by tail jump, each at the nearest that can be.
#[test]
fn callers_cover_a_function() {
    let library = library(&[
        ("leaf", "ret"),
        ("one", "push %rbx\n call leaf\n pop %rbx\n ret"),
        ("tail", "mov $1, %eax\n jmp leaf"),
        ("two", "push %rbx\n call tail\n pop %rbx\n ret"),
        ("unrelated", "push %rbx\n pop %rbx\n ret"),
        ("main", "call one\n call two\n call unrelated\n ret"),
    ]);
    let marks = library.cover("leaf", &["one", "two", "unrelated"]);
    assert_eq!(marks, Ok(library.addresses(&["one", "two"])));
    let nearest = library.cover("leaf", &["one", "tail", "two"]);
    assert_eq!(nearest, Ok(library.addresses(&["one", "tail"])));
    let above = library.graph.above(&[library.symbols["leaf"]], 1);
    let above: Vec<u64> = above.into_iter().map(|start| start.address).collect();
    assert_eq!(above, library.addresses(&["leaf", "one", "tail"]));
}

/// Two functions that call each other are entered from elsewhere, which is marked.
#[test]
fn recursion_ends() {
    let library = library(&[
        ("looped", "call partner\n ret"),
        ("partner", "call looped\n ret"),
        ("entry", "push %rbx\n call partner\n pop %rbx\n ret"),
        ("main", "call entry\n ret"),
    ]);
    assert_eq!(library.cover("looped", &["entry"]), Ok(library.addresses(&["entry"])));
}

/// A return probe takes what is on top of the stack for the return address. So no mark is at code
/// that is jumped to, such as the seldom executed part of a function, and none is at a function
/// that has a second entry, which its mark would not see.
#[test]
fn marks_are_at_entries() {
    let library = library(&[
        ("leaf", "ret"),
        ("cold", "call leaf\n pop %rbx\n ret"),
        ("hot", "push %rbx\n jne cold\n pop %rbx\n ret"),
        ("twice", "nop\n call leaf\n ret"),
        ("inside", "jmp twice+1"),
        ("main", "call hot\n call twice\n call inside\n ret"),
        ("root", "call main\n ret"),
    ]);
    let marks = library.cover("leaf", &["cold", "hot", "twice", "inside", "main"]);
    assert_eq!(marks, Ok(library.addresses(&["hot", "inside", "main"])));
    let is_part = |name: &str| library.graph.is_part(library.symbols[name]);
    assert!(is_part("cold"));
    assert!(["leaf", "hot", "twice", "main"].iter().all(|name| !is_part(name)));
    assert!(library.graph.is_part(library.symbols["twice"] + 1), "the middle of a function");
}

/// Where other code can call a function, marks at its callers do not cover it.
#[test]
fn unknown_callers_fail() {
    let library = library(&[
        ("api", "call leaf\n ret"),
        ("leaf", "ret"),
        ("taken", "call leaf\n ret"),
        ("takes", "lea taken(%rip), %rax\n jmp *%rax"),
        ("user", "call stored\n call taken\n ret"),
        ("orphan", "ret"),
        ("itself", "call itself\n ret"),
    ]);
    let reached = |name: &str, reach| Err(Uncovered::Reached(library.symbols[name], reach));
    assert_eq!(library.cover("api", &["leaf"]), reached("api", Reach::Export));
    assert_eq!(library.cover("leaf", &["taken"]), reached("api", Reach::Export));
    assert_eq!(library.cover("leaf", &["api"]), reached("taken", Reach::Pointer));
    assert_eq!(library.cover("stored", &["user"]), reached("stored", Reach::Pointer));
    for name in ["orphan", "itself"] {
        let none = Err(Uncovered::NoCaller(library.symbols[name]));
        assert_eq!(library.cover(name, &[]), none, "{name}");
    }
    assert_eq!(library.graph.cover(1, 4, |_| true), Err(Uncovered::NoCaller(1)));
}

/// A chain of calls is followed as far as the limit.
#[test]
fn too_many_levels_fail() {
    let chain = [
        ("leaf", "ret"),
        ("b", "call leaf\n ret"),
        ("c", "call b\n ret"),
        ("deep", "call c\n ret"),
        ("main", "call deep\n ret"),
    ];
    let library = library(&chain);
    let (leaf, deep) = (library.symbols["leaf"], library.symbols["deep"]);
    let is_deep = |start: Start| start.address == deep;
    assert_eq!(library.graph.cover(leaf, 2, is_deep), Err(Uncovered::TooFar));
    assert_eq!(library.graph.cover(leaf, 3, is_deep).unwrap()[0].address, deep);
}

/// Calls through the linkage table and the offset table lead to the function of the file. It is
/// exported, so that it has unknown callers too; its callers are known nevertheless.
#[test]
fn stubs_are_seen_through() {
    let library = library(&[
        ("api", "ret"),
        ("stub", "push %rbx\n call api@plt\n pop %rbx\n ret"),
        ("slot", "push %rbx\n call *api@GOTPCREL(%rip)\n pop %rbx\n ret"),
    ]);
    let above = library.graph.above(&[library.symbols["api"]], 1);
    let above: Vec<u64> = above.into_iter().map(|start| start.address).collect();
    assert_eq!(above, library.addresses(&["api", "stub", "slot"]));
}

/// What is no linked program has no graph, or is refused as by a scan.
#[test]
fn other_files_have_none_fail() {
    let built = Built::new();
    let object = built.assemble("a.o", &function("leaf", "ret"));
    let graph = callers(&object, &Limits::default()).unwrap();
    assert_eq!(graph.cover(0, 4, |_| true), Err(Uncovered::NoCaller(0)));
    assert!(matches!(callers(b"rubbish", &Limits::default()), Err(ScanError::NotElf)));
}

/// A damaged file gives an error or a graph, never a panic.
#[test]
fn damaged_files_do_not_panic_fail() {
    let built = Built::new();
    let api = function("api", "call api@plt\n call stored\n ret");
    let whole = built.link("a.so", &(STORED.to_owned() + &api));
    let mut answers = 0;
    for at in 0..whole.len().min(4096) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        answers += usize::from(callers(&bytes, &Limits::default()).is_ok());
    }
    assert!(answers > 100, "{answers}");
}
