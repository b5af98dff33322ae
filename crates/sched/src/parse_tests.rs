// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `parse.rs`: every form, every refusal, and both directions.

use proptest::prelude::*;

use super::*;

fn refusal<T: FromStr<Err = ParseError> + fmt::Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

/// Each unit, whole and fractional.
#[test]
fn durations_of_every_unit() {
    for (text, ns) in [
        ("7ns", 7),
        ("500us", 500_000),
        ("5ms", 5_000_000),
        ("5 ms", 5_000_000),
        ("1.5ms", 1_500_000),
        ("2s", 2_000_000_000),
        ("0.000000001s", 1),
        ("0ns", 0),
        ("5min", 300_000_000_000),
        ("1.5h", 5_400_000_000_000),
    ] {
        assert_eq!(duration_ns(text), Ok(ns), "{text}");
    }
}

/// A bare number is refused with the three things it may have meant.
#[test]
fn durations_without_sense_fail() {
    let refusal = |text: &str| duration_ns(text).unwrap_err().to_string();
    assert_eq!(refusal("5"), "\"5\" has no unit; write it as 5us, 5ms or 5s");
    assert_eq!(refusal("5d"), "\"d\" is not a unit of time; use ns, us, ms, s, min or h");
    assert_eq!(refusal("ms"), "\"ms\" is not a duration; write it as 500us, 5ms or 1s");
    assert_eq!(refusal("-5ms"), "\"-5ms\" is not a duration; write it as 500us, 5ms or 1s");
    for text in ["1.2.3ms", ".ms", "1.ms", ".5ms"] {
        assert!(refusal(text).contains("is not a number"), "{text}: {}", refusal(text));
    }
    for text in ["0.5ns", "99999999999s", "0.0000000001s"] {
        assert!(refusal(text).contains("too long or finer"), "{text}: {}", refusal(text));
    }
}

/// A number is a count of cores; CPUs are a list or carry `cpu:`.
#[test]
fn wide_cpus_of_every_form() {
    let list = |cpus: &str| Ok(WideCpus::List(cpus.parse().unwrap()));
    assert_eq!("auto".parse(), Ok(WideCpus::Auto));
    assert_eq!("2".parse(), Ok(WideCpus::Cores(2)));
    assert_eq!("0".parse(), Ok(WideCpus::Cores(0)));
    assert_eq!("2-3".parse::<WideCpus>(), list("2,3"));
    assert_eq!("1,5".parse::<WideCpus>(), list("1,5"));
    assert_eq!("cpu:3".parse::<WideCpus>(), list("3"));
    assert_eq!("cpu:0-1".parse::<WideCpus>(), list("0-1"));
}

/// Refusals name the bad part and show every form.
#[test]
fn wide_cpus_without_sense_fail() {
    for (text, why) in [
        ("", "the set of wide CPUs is empty; write auto"),
        ("cpu:", "the set of wide CPUs is empty; write auto"),
        ("2000", "2000 cores are more than any machine has; "),
        ("2-x", "\"x\" in \"2-x\" is not a CPU number; "),
        ("all", "\"all\" in \"all\" is not a CPU number; "),
    ] {
        assert!(
            refusal::<WideCpus>(text).starts_with(why),
            "{text}: {}",
            refusal::<WideCpus>(text)
        );
    }
}

/// The ends that are always on may be named, the others are switched on.
#[test]
fn remigrate_of_every_form() {
    assert_eq!("hint".parse(), Ok(Remigrate::default()));
    assert_eq!(
        "syscall-entry, context-switch,timeout:50ms".parse(),
        Ok(Remigrate {
            syscall_entry: true,
            context_switch: true,
            timeout_ns: Some(50_000_000),
            ..Remigrate::default()
        })
    );
    assert_eq!("gap,hint".parse(), Ok(Remigrate { gap: true, ..Remigrate::default() }));
    let last = Remigrate { last_syscall: true, ..Remigrate::default() };
    assert_eq!("last-syscall".parse(), Ok(last));
    assert_eq!(Remigrate::default().to_string(), "hint,uprobe-return");
}

/// Refusals of words, timeouts and durations.
#[test]
fn remigrate_without_sense_fail() {
    for (text, why) in [
        ("", "\"\" does not end a wide period; choose from hint"),
        ("syscall", "\"syscall\" does not end a wide period; choose from hint"),
        ("hint:5ms", "\"hint:5ms\" does not end a wide period; choose from hint"),
        ("timeout", "timeout has no duration; write it as timeout:50ms"),
        ("timeout:50", "\"50\" has no unit; write it as 50us, 50ms or 50s"),
        ("timeout:0ms", "a timeout of 0 ends"),
        ("timeout:1ms,timeout:2ms", "two different timeouts"),
    ] {
        let refusal = refusal::<Remigrate>(text);
        assert!(refusal.starts_with(why), "{text}: {refusal}");
    }
}

/// Symbols, offsets, levels, colons in names.
#[test]
fn marks_of_every_form() {
    let mark = |file: &str, site, level| {
        Ok(Mark { file: file.into(), site, level, filter: None, build_id: None })
    };
    let symbol = |name: &str| MarkSite::Symbol(name.into());
    assert_eq!("/l/a.so:f".parse::<Mark>(), mark("/l/a.so", symbol("f"), 1));
    assert_eq!("a.so:f@2".parse::<Mark>(), mark("a.so", symbol("f"), 2));
    assert_eq!("a:+0x1f@3".parse::<Mark>(), mark("a", MarkSite::Offset(0x1f), 3));
    assert_eq!("a:n::f".parse::<Mark>(), mark("a", symbol("n::f"), 1));
    assert_eq!("a:b:f".parse::<Mark>(), mark("a:b", symbol("f"), 1));
    assert_eq!("a,b:f".parse::<Mark>(), mark("a,b", symbol("f"), 1));
    let filtered = |site, level, arg, least| {
        let filter = Some(MinArg { arg, least });
        Ok(Mark { file: "a".into(), site, level, filter, build_id: None })
    };
    assert_eq!("a:f@2,min-arg5=1024".parse::<Mark>(), filtered(symbol("f"), 2, 5, 1024));
    assert_eq!("a:f,min-arg1=1".parse::<Mark>(), filtered(symbol("f"), 1, 1, 1));
    let offset = MarkSite::Offset(16);
    let filtered = filtered(offset.clone(), 1, 6, u32::MAX);
    assert_eq!("a:+0x10,min-arg6=4294967295".parse::<Mark>(), filtered);
    let build_id = BuildId::of_digits("00aabbccdd");
    let built = Mark { build_id, ..filtered.unwrap() };
    for text in
        ["min-arg6=4294967295,build-id=00aabbccdd", "build-id=00AABBCCDD,min-arg6=4294967295"]
    {
        assert_eq!(format!("a:+0x10,{text}").parse(), Ok(built.clone()), "{text}");
    }
}

/// Names that a mark would read as something else have no site; all others read back.
#[test]
fn only_plain_names_are_sites() {
    for name in ["", "+0x10", "n::f", "f@2", "f@plt", "f,g", "f,min-arg1=5", "f #", "operator ()"] {
        assert_eq!(MarkSite::of_name(name), None, "{name}");
    }
    for name in ["f", "_ZN1n1fEv", "f.cold", "f+1", "f<int>", "$f"] {
        let site = MarkSite::of_name(name).expect(name);
        let mark = Mark { file: "a,b:c@d".into(), site, level: 2, filter: None, build_id: None };
        assert_eq!(mark.to_string().parse(), Ok(mark), "{name}");
    }
}

/// Refusals of marks.
#[test]
fn marks_without_sense_fail() {
    for (text, why) in [
        ("a.so", "\"a.so\" names no function"),
        (":f", "\":f\" names no file"),
        ("a:", "\"a:\" names no function"),
        ("a:@2", "\"a:@2\" names no function"),
        ("a:f@4", "\"4\" is not a licence level"),
        ("a:f@0", "\"0\" is not a licence level"),
        ("a:f@heavy", "\"heavy\" is not a licence level"),
        ("a:+12", "\"+12\" is not a file offset; write it in hexadecimal"),
        ("a:+0xzz", "\"+0xzz\" is not a file offset; write it in hexadecimal"),
        ("a:,min-arg1=5", "\"a:,min-arg1=5\" names no function"),
        ("a:f@2,", "\"\" is not an option of a mark; write ,min-arg3=64"),
        ("a:f,max-arg1=5", "\"max-arg1=5\" is not an option of a mark; write ,min-arg3=64"),
        ("a:f,min-arg5", "\"min-arg5\" is not an option of a mark"),
        ("a:f,min-arg=5", "\"\" is not the number of an argument in a register"),
        ("a:f,min-arg0=5", "\"0\" is not the number of an argument in a register"),
        ("a:f,min-arg7=5", "\"7\" is not the number of an argument in a register; write min-arg1"),
        ("a:f,min-arg5=0", "min-arg with a value of 0 ignores no call; leave it out"),
        ("a:f,min-arg5=1k", "\"1k\" is not the value of an argument; write a number from 1"),
        ("a:f,min-arg5=-1", "\"-1\" is not the value of an argument"),
        ("a:f,min-arg5=4294967296", "\"4294967296\" is not the value of an argument"),
        ("a:f,min-arg5=1,min-arg4=1", "\"min-arg5=1,min-arg4=1\" has an option twice"),
        (
            "a:+0x1,build-id=12345678,build-id=12345678",
            "\"build-id=12345678,build-id=12345678\" has",
        ),
        (
            "a:+0x1,build-id=1234567",
            "\"1234567\" is not the beginning of a build id; write its first 8",
        ),
        ("a:+0x1,build-id=1234567g", "\"1234567g\" is not the beginning of a build id"),
        ("a:f,build-id=12345678", "build-id is for marks by offset"),
        ("a:f,min-arg5=1@2", "\"1@2\" is not the value of an argument"),
    ] {
        assert!(refusal::<Mark>(text).starts_with(why), "{text}: {}", refusal::<Mark>(text));
    }
}

/// The words of the two enumerations, both directions.
#[test]
fn words_of_every_kind() {
    for mode in ["scx", "affinity", "auto"] {
        assert_eq!(mode.parse::<Mode>().unwrap().to_string(), mode);
    }
    for kind in ["default", "scalar"] {
        assert_eq!(kind.parse::<Unclassified>().unwrap().to_string(), kind);
    }
    assert_eq!(
        refusal::<Mode>("SCX"),
        "\"SCX\" is not one of its values; did you mean \"scx\"? If not, choose from: scx affinity auto"
    );
}

fn any_wide_cpus() -> impl Strategy<Value = WideCpus> {
    prop_oneof![
        Just(WideCpus::Auto),
        (0..=cpumodel::MAX_CPUS).prop_map(WideCpus::Cores),
        proptest::collection::btree_set(0..cpumodel::MAX_CPUS, 1..20)
            .prop_map(|cpus| WideCpus::List(cpus.into_iter().collect())),
    ]
}

fn any_remigrate() -> impl Strategy<Value = Remigrate> {
    (any::<[bool; 5]>(), proptest::option::of(1..u64::MAX)).prop_map(
        |([syscall_entry, syscall_return, context_switch, gap, last_syscall], timeout_ns)| {
            Remigrate {
                syscall_entry,
                syscall_return,
                context_switch,
                timeout_ns,
                gap,
                last_syscall,
            }
        },
    )
}

fn any_mark() -> impl Strategy<Value = Mark> {
    let site = prop_oneof![
        "[A-Za-z_.$][A-Za-z0-9_.$]{0,20}(::[a-z]{1,5})?".prop_map(MarkSite::Symbol),
        any::<u64>().prop_map(MarkSite::Offset),
    ];
    let filter = (1..=policy::MARK_ARGS, 1..=u32::MAX);
    let filter = filter.prop_map(|(arg, least)| MinArg { arg, least });
    let filter = proptest::option::of(filter);
    let build_id = proptest::option::of("[0-9a-f]{8,40}");
    ("/?[a-z0-9._ ,-]{1,10}(/[a-z0-9.:]{0,5}[a-z])?", site, 1..=MAX_LEVEL, filter, build_id)
        .prop_map(|(file, site, level, filter, build_id)| {
            let build_id = build_id.filter(|_| matches!(site, MarkSite::Offset(_)));
            let build_id = build_id.and_then(|digits| BuildId::of_digits(&digits));
            Mark { file: file.into(), site, level, filter, build_id }
        })
}

proptest! {
    /// What is printed reads back as the same setting.
    #[test]
    fn round_trips(wide in any_wide_cpus(), ends in any_remigrate(), mark in any_mark(), ns: u64) {
        prop_assert_eq!(wide.to_string().parse::<WideCpus>().unwrap(), wide);
        prop_assert_eq!(ends.to_string().parse::<Remigrate>().unwrap(), ends);
        prop_assert_eq!(mark.to_string().parse::<Mark>().unwrap(), mark);
        prop_assert_eq!(duration_ns(&DurationText(ns).to_string()).unwrap(), ns);
    }

    /// No text makes a parser panic.
    #[test]
    fn any_text_is_safe(text in "\\PC{0,20}") {
        _ = text.parse::<WideCpus>();
        _ = text.parse::<Remigrate>();
        _ = text.parse::<Mark>();
        _ = duration_ns(&text);
    }
}
