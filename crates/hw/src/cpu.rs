// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which CPU it is and what it can execute, by CPUID.
//!
//! Capabilities are read from feature bits and XCR0, never from family and model: virtual
//! machines falsify the model number, and Intel fuses features off within a model. The model is
//! reported, and used only if there is no other source (see [`crate::license`]).
//!
//! Bit positions: Intel SDM volume 2A, CPUID, leaves 1, 7 and 1Ah.

use crate::{Source, xcr0};

/// Who made the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// `GenuineIntel`.
    Intel,
    /// `AuthenticAMD`, or `HygonGenuine` which shares its designs.
    Amd,
    /// Anybody else.
    Other,
}

/// Instruction sets that a program may use: the CPU has them and the kernel switched on the
/// register state they need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// AVX2: 256-bit integer.
    pub avx2: bool,
    /// FMA3: the 256-bit multiply-add that makes heavy AVX2 heavy.
    pub fma: bool,
    /// AVX-512 foundation.
    pub avx512f: bool,
    /// AVX-512 in 128- and 256-bit form.
    pub avx512vl: bool,
    /// AVX-512 byte and word.
    pub avx512bw: bool,
    /// AVX-512 doubleword and quadword.
    pub avx512dq: bool,
    /// AMX tile registers.
    pub amx_tile: bool,
    /// XSAVES, the compacted image the kernel uses for switching.
    pub xsaves: bool,
    /// XGETBV(1): which states are in use right now.
    pub xgetbv1: bool,
}

impl Features {
    /// The highest licence level that this CPU's code can ask for: 1 heavy AVX2 or light 512-bit, 2
    /// heavy 512-bit, 3 AMX (sources: data/isa/classes.toml).
    pub fn highest_license_level(&self) -> u32 {
        match () {
            () if self.amx_tile => 3,
            () if self.avx512f => 2,
            () if self.avx2 => 1,
            () => 0,
        }
    }
}

/// A CPU as CPUID describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Who made it.
    pub vendor: Vendor,
    /// The vendor string.
    pub vendor_id: String,
    /// The brand string, blanks trimmed; empty if there is none.
    pub name: String,
    /// Family, extended family added.
    pub family: u32,
    /// Model, extended model included. Falsified by some hypervisors.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// What programs may use.
    pub features: Features,
    /// Cores of different kinds in one package (Alder Lake and later client parts).
    pub hybrid: bool,
    /// The hypervisor's signature, if there is a hypervisor.
    pub hypervisor: Option<String>,
    /// Register states the kernel switched on; `None` without XSAVE.
    pub xcr0: Option<u64>,
}

/// Describes the CPU that runs us.
pub fn read_cpu(source: &dyn Source) -> Cpu {
    let vendor_leaf = source.cpuid(0, 0);
    let vendor_id = ascii(&[vendor_leaf.ebx, vendor_leaf.edx, vendor_leaf.ecx]);
    let version = source.cpuid(1, 0);
    let hypervisor = bit(version.ecx, 31).then(|| {
        let leaf = source.cpuid(0x4000_0000, 0);
        ascii(&[leaf.ebx, leaf.ecx, leaf.edx])
    });
    let enabled = source.xcr0();
    let (family, model) = family_and_model(version.eax);
    Cpu {
        vendor: match vendor_id.as_str() {
            "GenuineIntel" => Vendor::Intel,
            "AuthenticAMD" | "HygonGenuine" => Vendor::Amd,
            _ => Vendor::Other,
        },
        vendor_id,
        name: brand(source),
        family,
        model,
        stepping: version.eax & 0xf,
        features: read_features(source, enabled.unwrap_or(0)),
        hybrid: bit(source.cpuid(7, 0).edx, 15),
        hypervisor,
        xcr0: enabled,
    }
}

/// Whether the time stamp counter runs at one rate in all states of the CPU (SDM volume 3,
/// 18.17.1).
pub fn has_invariant_tsc(source: &dyn Source) -> bool {
    bit(source.cpuid(0x8000_0007, 0).edx, 8)
}

fn read_features(source: &dyn Source, states_on: u64) -> Features {
    let (leaf1, leaf7) = (source.cpuid(1, 0), source.cpuid(7, 0));
    let xsave = source.cpuid(0xd, 1);
    let enabled = |states| states_on & states == states;
    let (avx, avx512, amx) = (enabled(xcr0::AVX), enabled(xcr0::AVX512), enabled(xcr0::AMX));
    Features {
        avx2: avx && bit(leaf7.ebx, 5),
        fma: avx && bit(leaf1.ecx, 12),
        avx512f: avx512 && bit(leaf7.ebx, 16),
        avx512vl: avx512 && bit(leaf7.ebx, 31),
        avx512bw: avx512 && bit(leaf7.ebx, 30),
        avx512dq: avx512 && bit(leaf7.ebx, 17),
        amx_tile: amx && bit(leaf7.edx, 24),
        xgetbv1: bit(xsave.eax, 2),
        xsaves: bit(xsave.eax, 3),
    }
}

/// SDM: the extended family counts for family 15 only, the extended model for 6 and 15.
fn family_and_model(eax: u32) -> (u32, u32) {
    let base_family = eax >> 8 & 0xf;
    let family = if base_family == 0xf { base_family + (eax >> 20 & 0xff) } else { base_family };
    let base_model = eax >> 4 & 0xf;
    let extended = matches!(base_family, 0x6 | 0xf);
    let model = if extended { (eax >> 16 & 0xf) << 4 | base_model } else { base_model };
    (family, model)
}

fn brand(source: &dyn Source) -> String {
    let leaves = (0x8000_0002..=0x8000_0004).map(|leaf| source.cpuid(leaf, 0));
    let registers: Vec<u32> = leaves.flat_map(|l| [l.eax, l.ebx, l.ecx, l.edx]).collect();
    ascii(&registers).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text that CPUID packs into registers, up to its first NUL.
fn ascii(registers: &[u32]) -> String {
    let bytes: Vec<u8> = registers.iter().flat_map(|register| register.to_le_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}

fn bit(register: u32, position: u32) -> bool {
    register >> position & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Live, Recorded};

    fn cpu(cpuid: &str) -> Cpu {
        read_cpu(&Recorded::parse("", cpuid).unwrap())
    }

    /// A Skylake-SP: vendor, family and model from their packed forms.
    #[test]
    fn decodes_family_and_model() {
        assert_eq!(family_and_model(0x0005_0654), (6, 85));
        assert_eq!(family_and_model(0x00a1_0f11), (25, 17));
        assert_eq!(family_and_model(0x0000_0f4a), (15, 4));
        let cpu = cpu("0 0 = 16 756e6547 6c65746e 49656e69\n1 0 = 50654 0 0 0\n");
        assert_eq!((cpu.vendor, cpu.family, cpu.model, cpu.stepping), (Vendor::Intel, 6, 85, 4));
        assert_eq!((cpu.hypervisor, cpu.name.as_str()), (None, ""));
    }

    /// A feature bit counts only with its register state switched on.
    #[test]
    fn features_need_their_register_state() {
        let leaves = "1 0 = 0 0 1000 0\n7 0 = 0 c0030020 0 1000000\nd 1 = f 0 0 0\n";
        let level = |xcr0: &str| cpu(&format!("{leaves}{xcr0}")).features.highest_license_level();
        assert_eq!(level(""), 0);
        assert_eq!(level("xcr0 = 7"), 1);
        assert_eq!(level("xcr0 = a7"), 1, "opmask and zmm16-31 without the upper halves");
        assert_eq!(level("xcr0 = e7"), 2);
        assert_eq!(level("xcr0 = 602e7"), 3);
        let all = cpu(&format!("{leaves}xcr0 = 602e7")).features;
        assert!(all.fma && all.avx512vl && all.avx512bw && all.avx512dq && all.xsaves);
    }

    /// Bit 8 of leaf 8000_0007h says that the counter is invariant; without the leaf it is not.
    #[test]
    fn an_invariant_counter_is_told() {
        let invariant = |text: &str| has_invariant_tsc(&Recorded::parse("", text).unwrap());
        assert!(invariant("80000007 0 = 0 0 0 100\n"));
        assert!(!invariant("80000007 0 = 0 0 0 0\n") && !invariant(""));
    }

    /// CPUID agrees with what the standard library detects on the machine that runs the tests.
    #[test]
    fn live_features_agree_with_std() {
        let features = read_cpu(&Live).features;
        assert_eq!(features.avx2, is_x86_feature_detected!("avx2"));
        assert_eq!(features.fma, is_x86_feature_detected!("fma"));
        assert_eq!(features.avx512f, is_x86_feature_detected!("avx512f"));
        assert_eq!(features.avx512vl, is_x86_feature_detected!("avx512vl"));
    }
}
