// SPDX-License-Identifier: MIT OR Apache-2.0
//! The class of an instruction: mnemonic and vector length to `cpumodel::InsnClass`, by `data/isa`.
//!
//! Problem: the emulator has opcodes of its own, and knows of each its mnemonic and the vector
//! length that its prefix states. `data/isa` goes by mnemonic, too, but a scalar form such as
//! `vaddss` belongs to the class of its packed one, and its prefix may state any length (static
//! rounding makes it 512).
//!
//! Idea: iced-x86 knows every form of a mnemonic. The length that counts is the longest that a form
//! of this mnemonic has and that the prefix reaches: `vaddss` has none but 128.
//!
//! Instructions are classified once, when the emulator starts: one table by opcode and length.

use std::collections::HashMap;
use std::sync::LazyLock;

use cpumodel::InsnClass;
use iced_x86::{Code, Instruction};
use isa::Weight;

/// By mnemonic: weight, and lengths of its forms.
static FORMS: LazyLock<HashMap<String, (Weight, Vec<u16>)>> = LazyLock::new(|| {
    let mut forms: HashMap<String, (Weight, Vec<u16>)> = HashMap::new();
    for code in Code::values() {
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        if let Some(demand) = isa::demand(&instruction) {
            let name = isa::name(code.mnemonic());
            let form = forms.entry(name).or_insert((demand.class.weight, Vec::new()));
            form.1.push(demand.width_bits);
        }
    }
    forms
});

/// The class of an instruction with this mnemonic (lower case) whose prefix states this length.
/// What `data/isa` does not know is scalar.
#[must_use]
pub fn class_of(mnemonic: &str, width_bits: u16) -> InsnClass {
    let Some((weight, widths)) = forms(mnemonic) else {
        return InsnClass::Scalar;
    };
    let width_bits = widths.iter().copied().filter(|&width| width <= width_bits).max();
    match (weight, width_bits) {
        (Weight::Tile, _) => InsnClass::Amx,
        (Weight::Heavy, Some(512)) => InsnClass::Heavy512,
        (Weight::Light, Some(512)) => InsnClass::Light512,
        (Weight::Heavy, Some(256)) => InsnClass::Heavy256,
        (Weight::Light, Some(256)) => InsnClass::Light256,
        _ => InsnClass::Scalar,
    }
}

/// Whether `data/isa` knows the mnemonic.
#[must_use]
pub(crate) fn is_known(mnemonic: &str) -> bool {
    forms(mnemonic).is_some()
}

/// Bochs leaves out a letter where the manual has `vpgatherdd`, `vpscatterdd` and `vpmaskmovd`.
fn forms(mnemonic: &str) -> Option<&'static (Weight, Vec<u16>)> {
    FORMS.get(mnemonic).or_else(|| FORMS.get(&format!("vp{}", mnemonic.strip_prefix('v')?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each class, and a scalar form whose prefix says 512.
    #[test]
    fn mnemonics_have_classes() {
        for (mnemonic, width_bits, want) in [
            ("vaddps", 512, InsnClass::Heavy512),
            ("vaddps", 256, InsnClass::Heavy256),
            ("vaddps", 128, InsnClass::Scalar),
            ("vaddss", 512, InsnClass::Scalar),
            ("vfmadd231sd", 256, InsnClass::Scalar),
            ("vpaddd", 512, InsnClass::Light512),
            ("vpaddd", 256, InsnClass::Light256),
            ("vpmuludq", 512, InsnClass::Heavy512),
            ("vpscatterdd", 512, InsnClass::Heavy512),
            ("vpmovqb", 512, InsnClass::Light512),
            ("vgatherdd", 512, InsnClass::Light512),
            ("vscatterqq", 512, InsnClass::Heavy512),
            ("tdpbssd", 0, InsnClass::Amx),
            ("addps", 128, InsnClass::Scalar),
            ("mov", 0, InsnClass::Scalar),
        ] {
            assert_eq!(class_of(mnemonic, width_bits), want, "{mnemonic} {width_bits}");
        }
    }

    /// For every form that iced-x86 knows, the class asks for the level that `data/isa` states,
    /// under Skylake-SP's rules.
    #[test]
    fn classes_agree_with_levels() {
        let level = |class| match class {
            InsnClass::Scalar | InsnClass::Light256 => 0,
            InsnClass::Heavy256 | InsnClass::Light512 => 1,
            InsnClass::Heavy512 => 2,
            InsnClass::Amx => 3,
        };
        let mut compared = 0;
        for code in Code::values() {
            let mut instruction = Instruction::default();
            instruction.set_code(code);
            let Some(demand) = isa::demand(&instruction) else { continue };
            let class = class_of(&isa::name(code.mnemonic()), demand.width_bits);
            assert_eq!(level(class), demand.license_level, "{code:?}");
            compared += 1;
        }
        assert!(compared > 2000, "{compared}");
    }
}
